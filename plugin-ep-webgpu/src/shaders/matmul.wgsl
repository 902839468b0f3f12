// 32 x 32 results per workgroup, 4 x 4 per thread; neighbours in x read neighbours in memory.
@compute @workgroup_size(8, 8)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
  let base = offsets(group.z);
  let m = group.y * 32u + lane.y * 4u;
  let n = group.x * 32u + lane.x;
  let rows = vec4<u32>(m, m + 1u, m + 2u, m + 3u);
  let columns = vec4<u32>(n, n + 8u, n + 16u, n + 24u);
  var at = vec4<u32>(base.x) + min(rows, vec4<u32>(P(0u) - 1u)) * P(4u);
  var bt = vec4<u32>(base.y) + min(columns, vec4<u32>(P(1u) - 1u)) * P(7u);
  let a_step = P(5u);
  let b_step = P(6u);
  var y0 = vec4<f32>();
  var y1 = vec4<f32>();
  var y2 = vec4<f32>();
  var y3 = vec4<f32>();
  for (var k = 0u; k < P(2u); k++) {
    let b = vec4<f32>(get1(bt.x), get1(bt.y), get1(bt.z), get1(bt.w));
    y0 += get0(at.x) * b;
    y1 += get0(at.y) * b;
    y2 += get0(at.z) * b;
    y3 += get0(at.w) * b;
    at += vec4<u32>(a_step);
    bt += vec4<u32>(b_step);
  }
  for (var j = 0u; j < 4u; j++) {
    save(group.z, rows.x, columns[j], y0[j]);
    save(group.z, rows.y, columns[j], y1[j]);
    save(group.z, rows.z, columns[j], y2[j]);
    save(group.z, rows.w, columns[j], y3[j]);
  }
}
