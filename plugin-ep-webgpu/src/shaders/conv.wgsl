// A thread makes 4 channels of 4 pixels, which lie apart so that neighbours read neighbours. Parameter 25 is how many
// threads of a workgroup share a row of channels: small images leave more of them for channels.
fn read(at: u32, inside: bool) -> f32 {
  if (inside) { return get0(at); }
  return 0.0;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let ins = P(2u);
  let outs = P(3u);
  let plane_in = P(4u) * P(5u) * P(6u);
  let plane_out = P(7u) * P(8u) * P(9u);
  let taps = P(10u) * P(11u) * P(12u);
  let filter_ = group.z % P(1u);
  let beside = P(25u);
  let pixel = vec4<u32>(group.x * 4u * beside + lane % beside) + vec4<u32>(0u, beside, 2u * beside, 3u * beside);
  let oz = vec4<i32>(pixel / (P(8u) * P(9u)));
  let oy = vec4<i32>((pixel / P(9u)) % P(8u));
  let ox = vec4<i32>(pixel % P(9u));
  let z0 = oz * S(13u) - S(19u);
  let y0 = oy * S(14u) - S(20u);
  let x0 = ox * S(15u) - S(21u);
  let first = (group.y * (64u / beside) + lane / beside) * 4u;
  if (first >= outs) { return; }
  let channel = min(vec4<u32>(first, first + 1u, first + 2u, first + 3u), vec4<u32>(outs - 1u)) + filter_ * outs;
  var a0 = vec4<f32>();
  var a1 = vec4<f32>();
  var a2 = vec4<f32>();
  var a3 = vec4<f32>();
  for (var t = 0u; t < taps; t++) {
    let z = z0 + i32(t / (P(11u) * P(12u))) * S(16u);
    let y = y0 + i32((t / P(12u)) % P(11u)) * S(17u);
    let x = x0 + i32(t % P(12u)) * S(18u);
    let inside = (z >= vec4<i32>(0)) & (z < vec4<i32>(S(4u))) & (y >= vec4<i32>(0)) & (y < vec4<i32>(S(5u)))
      & (x >= vec4<i32>(0)) & (x < vec4<i32>(S(6u))) & (pixel < vec4<u32>(plane_out));
    var at = vec4<u32>((z * S(5u) + y) * S(6u) + x) + group.z * ins * plane_in;
    var w = channel * ins * taps + t;
    for (var k = 0u; k < ins; k++) {
      let v = vec4<f32>(read(at.x, inside.x), read(at.y, inside.y), read(at.z, inside.z), read(at.w, inside.w));
      a0 += get1(w.x) * v;
      a1 += get1(w.y) * v;
      a2 += get1(w.z) * v;
      a3 += get1(w.w) * v;
      at += vec4<u32>(plane_in);
      w += vec4<u32>(taps);
    }
  }
  for (var j = 0u; j < 4u; j++) {
    let sums = vec4<f32>(a0[j], a1[j], a2[j], a3[j]);
    for (var i = 0u; i < 4u; i++) {
      if (first + i < outs && pixel[j] < plane_out) {
        let c = channel[i];
        let o = ((group.z / P(1u)) * P(1u) * outs + c) * plane_out + pixel[j];
        put2(o, chain(o, sums[i] + $bias));
      }
    }
  }
}
