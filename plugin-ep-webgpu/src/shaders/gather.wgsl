@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
  let i = id.x + id.y * n.x * 64u;
  if (i >= P(0u)) { return; }
  let inner = P(2u);
  let picks = P(3u);
  let row = i / inner;
  let at = u32(get1(row % picks));
  put2(i, get0(((row / picks) * P(1u) + at) * inner + i % inner));
}
