// Parameters from 4 on as in window.wgsl.
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
  let o = id.x + id.y * n.x * 64u;
  if (o >= P(0u)) { return; }
  let size = vec3<i32>(S(4u), S(5u), S(6u));
  let taps = vec3<i32>(S(10u), S(11u), S(12u));
  let step = vec3<i32>(S(16u), S(17u), S(18u));
  let plane_out = P(7u) * P(8u) * P(9u);
  let base = i32(o / plane_out) * size.x * size.y * size.z;
  let pixel = o % plane_out;
  let row = pixel / P(9u);
  let place = vec3<i32>(vec3<u32>(row / P(8u), row % P(8u), pixel % P(9u)));
  let at = place * vec3<i32>(S(13u), S(14u), S(15u)) - vec3<i32>(S(19u), S(20u), S(21u));
  let z1 = last_tap(at.x, size.x, taps.x, step.x);
  let y1 = last_tap(at.y, size.y, taps.y, step.y);
  let x1 = last_tap(at.z, size.z, taps.z, step.z);
  let y0 = first_tap(at.y, step.y);
  let x0 = first_tap(at.z, step.z);
  var a = 0.0;
  var seen = 0;
  for (var z = first_tap(at.x, step.x); z < z1; z++) {
    for (var y = y0; y < y1; y++) {
      let line = base + ((at.x + z * step.x) * size.y + at.y + y * step.y) * size.z + at.z;
      for (var x = x0; x < x1; x++) {
        let v = get0(u32(line + x * step.z));
        if ($average) { a += v; } else if (seen == 0 || v > a || v != v) { a = v; }
        seen++;
      }
    }
  }
  if ($average) {
    let padded = last_tap(at.x, size.x + S(22u), taps.x, step.x) * last_tap(at.y, size.y + S(23u), taps.y, step.y)
      * last_tap(at.z, size.z + S(24u), taps.z, step.z);
    a = a / f32(select(max(seen, 1), padded, $include_pad));
  }
  put1(o, a);
}
