// Few rows: a thread makes one result, 64 beside each other share a workgroup.
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let base = offsets(group.z);
  let m = group.y;
  let n = group.x * 64u + lane;
  if (n >= P(1u)) { return; }
  var at = base.x + m * P(4u);
  var bt = base.y + n * P(7u);
  var y = 0.0;
  for (var k = 0u; k < P(2u); k++) {
    y += get0(at) * get1(bt);
    at += P(5u);
    bt += P(6u);
  }
  save(group.z, m, n, y);
}
