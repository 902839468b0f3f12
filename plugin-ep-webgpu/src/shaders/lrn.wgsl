@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
  let i = id.x + id.y * n.x * 64u;
  if (i >= P(0u)) { return; }
  let plane = P(2u);
  let c = (i / plane) % P(1u);
  let low = c - min(c, P(6u));
  let high = min(c + P(7u), P(1u) - 1u);
  var s = 0.0;
  for (var k = low; k <= high; k++) {
    let x = get0(i + k * plane - c * plane);
    s += x * x;
  }
  put1(i, get0(i) * pow(F(5u) + F(3u) * s, -F(4u)));
}
