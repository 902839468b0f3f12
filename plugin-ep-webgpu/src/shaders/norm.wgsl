var<workgroup> part: array<f32, 64>;

fn total(lane: u32, x: f32) -> f32 {
  workgroupBarrier();
  part[lane] = x;
  workgroupBarrier();
  for (var half = 32u; half > 0u; half = half >> 1u) {
    if (lane < half) { part[lane] += part[lane + half]; }
    workgroupBarrier();
  }
  return part[0];
}

@compute @workgroup_size(64)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) n: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let row = group.x + group.y * n.x;
  if (row >= P(0u)) { return; }
  let len = P(1u);
  let first = row * len;
  var mean = 0.0;
  if ($centred) {
    var s = 0.0;
    for (var k = lane; k < len; k += 64u) { s += get0(first + k); }
    mean = total(lane, s) / f32(len);
  }
  var v = 0.0;
  for (var k = lane; k < len; k += 64u) {
    let d = get0(first + k) - mean;
    v += d * d;
  }
  let inverse = inverseSqrt(total(lane, v) / f32(len) + F(4u));
  let scales = (row % P(2u)) * (len / P(3u));
  for (var k = lane; k < len; k += 64u) {
    let at = scales + k / P(3u);
    put$out(first + k, (get0(first + k) - mean) * inverse * get1(at)$bias);
  }
  if (lane == 0u) {
$extra  }
}
