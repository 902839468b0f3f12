// Parameters per axis from 3 on: length, step in the input, taps, place of its table of (index, weight).
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
  let i = id.x + id.y * n.x * 64u;
  if (i >= P(0u)) { return; }
  var sum = 0.0;
  for (var t = 0u; t < P(2u); t++) {
    var left = i;
    var tap = t;
    var at = 0u;
    var weight = 1.0;
    for (var k = P(1u); k > 0u; k--) {
      let place = 4u * k - 1u;
      let taps = P(place + 2u);
      let entry = P(place + 3u) + 2u * ((left % P(place)) * taps + tap % taps);
      at += get1(entry) * P(place + 1u);
      weight *= bitcast<f32>(get1(entry + 1u));
      left /= P(place);
      tap /= taps;
    }
    if (weight != 0.0) { sum += weight * get0(at); }
  }
  put2(i, sum);
}
