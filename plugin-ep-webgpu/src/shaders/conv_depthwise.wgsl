@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
  let plane_out = P(7u) * P(8u) * P(9u);
  let o = id.x + id.y * n.x * 64u;
  if (o >= P(0u) * P(1u) * plane_out) { return; }
  let plane_in = P(4u) * P(5u) * P(6u);
  let taps = P(10u) * P(11u) * P(12u);
  let plane = o / plane_out;
  let pixel = o % plane_out;
  let c = plane % P(1u);
  let z0 = i32(pixel / (P(8u) * P(9u))) * S(13u) - S(19u);
  let y0 = i32((pixel / P(9u)) % P(8u)) * S(14u) - S(20u);
  let x0 = i32(pixel % P(9u)) * S(15u) - S(21u);
  var a = 0.0;
  for (var t = 0u; t < taps; t++) {
    let z = z0 + i32(t / (P(11u) * P(12u))) * S(16u);
    let y = y0 + i32((t / P(12u)) % P(11u)) * S(17u);
    let x = x0 + i32(t % P(12u)) * S(18u);
    if (z >= 0 && z < S(4u) && y >= 0 && y < S(5u) && x >= 0 && x < S(6u)) {
      let at = u32((z * S(5u) + y) * S(6u) + x);
      for (var k = 0u; k < P(2u); k++) {
        a += get0((plane * P(2u) + k) * plane_in + at) * get1((c * P(2u) + k) * taps + t);
      }
    }
  }
  put2(o, chain(o, a + $bias));
}
