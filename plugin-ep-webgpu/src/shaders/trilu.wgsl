@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
  let i = id.x + id.y * n.x * 64u;
  if (i >= P(0u)) { return; }
  let column = i32(i % P(2u));
  let row = i32((i / P(2u)) % P(1u));
  let above = column - row - S(3u);
  let keeps = select(above <= 0, above >= 0, P(4u) != 0u);
  if (keeps) { put1(i, get0(i)); } else { put1(i, $type(0)); }
}
