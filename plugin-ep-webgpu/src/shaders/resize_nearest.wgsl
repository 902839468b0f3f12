// Parameters per axis from 3 on: length, step in the input, 1, place of its table of (index, weight).
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
  let i = id.x + id.y * n.x * 64u;
  if (i >= P(0u)) { return; }
  var left = i;
  var at = 0u;
  for (var k = P(1u); k > 0u; k--) {
    let place = 4u * k - 1u;
    at += get1(P(place + 3u) + 2u * (left % P(place))) * P(place + 1u);
    left /= P(place);
  }
  put2(i, get0(at));
}
