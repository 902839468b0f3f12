@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
  let plane_out = P(7u) * P(8u) * P(9u);
  let o = id.x + id.y * n.x * 64u;
  if (o >= P(0u) * P(1u) * plane_out) { return; }
  let ins = P(2u);
  let size = vec3<i32>(S(4u), S(5u), S(6u));
  let taps = vec3<i32>(S(10u), S(11u), S(12u));
  let step = vec3<i32>(S(16u), S(17u), S(18u));
  let plane = o / plane_out;
  let pixel = o % plane_out;
  let row = pixel / P(9u);
  let place = vec3<i32>(vec3<u32>(row / P(8u), row % P(8u), pixel % P(9u)));
  let at = place * vec3<i32>(S(13u), S(14u), S(15u)) - vec3<i32>(S(19u), S(20u), S(21u));
  let z1 = last_tap(at.x, size.x, taps.x, step.x);
  let y1 = last_tap(at.y, size.y, taps.y, step.y);
  let x1 = last_tap(at.z, size.z, taps.z, step.z);
  let y0 = first_tap(at.y, step.y);
  let x0 = first_tap(at.z, step.z);
  let plane_in = u32(size.x * size.y * size.z);
  let window = u32(taps.x * taps.y * taps.z);
  var a = 0.0;
  for (var k = 0u; k < ins; k++) {
    let source = (plane * ins + k) * plane_in;
    let filter_ = ((plane % P(1u)) * ins + k) * window;
    for (var z = first_tap(at.x, step.x); z < z1; z++) {
      for (var y = y0; y < y1; y++) {
        let line = ((at.x + z * step.x) * size.y + at.y + y * step.y) * size.z + at.z;
        let w = (z * taps.y + y) * taps.z;
        for (var x = x0; x < x1; x++) {
          a += get0(source + u32(line + x * step.z)) * get1(filter_ + u32(w + x));
        }
      }
    }
  }
  let c = plane % P(1u);
  put2(o, chain(o, a + $bias));
}
