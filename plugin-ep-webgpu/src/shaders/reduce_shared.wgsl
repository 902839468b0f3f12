var<workgroup> part: array<$type, 64>;
var<workgroup> high: array<f32, 64>;

@compute @workgroup_size(64)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) n: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let i = group.x + group.y * n.x;
  if (i >= P(0u)) { return; }
  let at = walk(i, 5u, P(2u));
  let gone = 5u + 2u * P(2u);
  var m = $bottom;
  if ($greatest) {
    for (var r = lane; r < P(1u); r += 64u) { m = max(m, float_(get0(at + walk(r, gone, P(3u))))); }
    high[lane] = m;
    workgroupBarrier();
    for (var half = 32u; half > 0u; half = half >> 1u) {
      if (lane < half) { high[lane] = max(high[lane], high[lane + half]); }
      workgroupBarrier();
    }
    m = high[0];
  }
  var a: $type = $neutral;
  for (var r = lane; r < P(1u); r += 64u) { a = join_(a, map_(get0(at + walk(r, gone, P(3u))), m)); }
  part[lane] = a;
  workgroupBarrier();
  for (var half = 32u; half > 0u; half = half >> 1u) {
    if (lane < half) { part[lane] = join_(part[lane], part[lane + half]); }
    workgroupBarrier();
  }
  if (lane == 0u) { put1(i, finish_(part[0], P(1u), m)); }
}
