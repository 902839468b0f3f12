// Here the "input" of the window is what this operator makes, the "output" what it reads.
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
  for (var t = 0u; t < taps; t++) {
    let z = z1 - i32(t / (P(11u) * P(12u))) * S(16u);
    let y = y1 - i32((t / P(12u)) % P(11u)) * S(17u);
    let x = x1 - i32(t % P(12u)) * S(18u);
    let hits = z >= 0 && y >= 0 && x >= 0 && z % S(13u) == 0 && y % S(14u) == 0 && x % S(15u) == 0;
    let sz = z / S(13u);
    let sy = y / S(14u);
    let sx = x / S(15u);
    if (hits && sz < S(7u) && sy < S(8u) && sx < S(9u)) {
      let at = u32((sz * S(8u) + sy) * S(9u) + sx);
      for (var k = 0u; k < ins; k++) {
        let k_all = part * ins + k;
        a += get0((batch * P(1u) * ins + k_all) * plane_x + at) * get1((k_all * outs + c % outs) * taps + t);
      }
    }
  }
  put2(o, chain(o, a + $bias));
}
