var<workgroup> part: array<f32, 64>;

fn result(x: f32, m: f32, s: f32) -> f32 { return $result; }

@compute @workgroup_size(64)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) n: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let row = group.x + group.y * n.x;
  if (row >= P(0u)) { return; }
  let len = P(1u);
  let inner = P(2u);
  let at = (row / inner) * len * inner + row % inner;
  var m = -3.4028235e38;
  for (var k = lane; k < len; k += 64u) { m = max(m, get0(at + k * inner)); }
  part[lane] = m;
  workgroupBarrier();
  for (var half = 32u; half > 0u; half = half >> 1u) {
    if (lane < half) { part[lane] = max(part[lane], part[lane + half]); }
    workgroupBarrier();
  }
  m = part[0];
  workgroupBarrier();
  var s = 0.0;
  for (var k = lane; k < len; k += 64u) { s += exp(get0(at + k * inner) - m); }
  part[lane] = s;
  workgroupBarrier();
  for (var half = 32u; half > 0u; half = half >> 1u) {
    if (lane < half) { part[lane] += part[lane + half]; }
    workgroupBarrier();
  }
  s = part[0];
  for (var k = lane; k < len; k += 64u) { put1(at + k * inner, result(get0(at + k * inner), m, s)); }
}
