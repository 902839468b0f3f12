// Parameters from 4 on as in window.wgsl.
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
  let o = id.x + id.y * n.x * 64u;
  if (o >= P(0u)) { return; }
  let plane_out = P(7u) * P(8u) * P(9u);
  let base = (o / plane_out) * P(4u) * P(5u) * P(6u);
  let pixel = o % plane_out;
  let taps = P(10u) * P(11u) * P(12u);
  let z0 = i32(pixel / (P(8u) * P(9u))) * S(13u) - S(19u);
  let y0 = i32((pixel / P(9u)) % P(8u)) * S(14u) - S(20u);
  let x0 = i32(pixel % P(9u)) * S(15u) - S(21u);
  var a = 0.0;
  var seen = 0u;
  var padded = 0u;
  for (var t = 0u; t < taps; t++) {
    let z = z0 + i32(t / (P(11u) * P(12u))) * S(16u);
    let y = y0 + i32((t / P(12u)) % P(11u)) * S(17u);
    let x = x0 + i32(t % P(12u)) * S(18u);
    if (z < S(4u) + S(22u) && y < S(5u) + S(23u) && x < S(6u) + S(24u)) { padded++; }
    if (z >= 0 && z < S(4u) && y >= 0 && y < S(5u) && x >= 0 && x < S(6u)) {
      let v = get0(base + u32((z * S(5u) + y) * S(6u) + x));
      if ($average) { a += v; } else if (seen == 0u || v > a || v != v) { a = v; }
      seen++;
    }
  }
  if ($average) { a = a / f32(select(max(seen, 1u), padded, $include_pad)); }
  put1(o, a);
}
