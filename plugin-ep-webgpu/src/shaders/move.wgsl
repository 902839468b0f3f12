@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
  let i = id.x + id.y * n.x * 64u;
  if (i >= P(0u)) { return; }
  var left = i;
  var from_at = S(2u);
  var to_at = S(3u);
  for (var k = P(1u); k > 0u; k--) {
    let at = 1u + 3u * k;
    let len = P(at);
    let step = i32(left % len);
    from_at += step * S(at + 1u);
    to_at += step * S(at + 2u);
    left /= len;
  }
  put1(u32(to_at), get0(u32(from_at)));
}
