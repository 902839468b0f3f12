@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
  let i = id.x + id.y * n.x * 64u;
  if (i >= P(0u)) { return; }
  var left = i;
  var at = 0u;
  for (var k = P(2u); k > 0u; k--) {
    let place = 2u + 2u * k;
    let step = left % P(place);
    left /= P(place);
    at += select(step, u32(get1(i)), k - 1u == P(3u)) * P(place + 1u);
  }
  put2(i, get0(at));
}
