// Here the "input" of the window is what this operator makes, the "output" what it reads.

// Place along one axis of what is read, if a tap meets it; else -1.
fn reached(at: i32, stride: i32, len: i32) -> i32 {
  let place = at / stride;
  return select(-1, place, at >= 0 && place * stride == at && place < len);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
  let plane_y = P(4u) * P(5u) * P(6u);
  let plane_x = P(7u) * P(8u) * P(9u);
  let taps = P(10u) * P(11u) * P(12u);
  let ins = P(2u);
  let outs = P(3u);
  let o = id.x + id.y * n.x * 64u;
  if (o >= P(0u) * P(1u) * outs * plane_y) { return; }
  let plane = o / plane_y;
  let pixel = o % plane_y;
  let batch = plane / (P(1u) * outs);
  let c = plane % (P(1u) * outs);
  let part = c / outs;
  let z1 = i32(pixel / (P(5u) * P(6u))) + S(19u);
  let y1 = i32((pixel / P(6u)) % P(5u)) + S(20u);
  let x1 = i32(pixel % P(6u)) + S(21u);
  var a = 0.0;
  for (var tz = 0; tz < S(10u); tz++) {
    let z = reached(z1 - tz * S(16u), S(13u), S(7u));
    if (z < 0) { continue; }
    for (var ty = 0; ty < S(11u); ty++) {
      let y = reached(y1 - ty * S(17u), S(14u), S(8u));
      if (y < 0) { continue; }
      for (var tx = 0; tx < S(12u); tx++) {
        let x = reached(x1 - tx * S(18u), S(15u), S(9u));
        if (x < 0) { continue; }
        let t = u32((tz * S(11u) + ty) * S(12u) + tx);
        var at = (batch * P(1u) + part) * ins * plane_x + u32((z * S(8u) + y) * S(9u) + x);
        var w = (part * ins * outs + c % outs) * taps + t;
        for (var k = 0u; k < ins; k++) {
          a += get0(at) * get1(w);
          at += plane_x;
          w += outs * taps;
        }
      }
    }
  }
  put2(o, chain(o, a + $bias));
}
