$chain
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
  let i = id.x + id.y * n.x * 64u;
  if (i >= P(0u)) { return; }
  let c = (i / P(2u)) % P(1u);
  let y = (get0(i) - get3(c)) * (get1(c) / sqrt(get4(c) + F(3u))) + get2(c);
  put5(i, chain(i, y));
}
