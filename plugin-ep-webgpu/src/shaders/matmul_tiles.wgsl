// 64 x 64 results per workgroup, 4 x 4 per thread, over tiles of 16 in workgroup memory.
var<workgroup> left: array<f32, 1024>;
var<workgroup> right: array<f32, 1024>;

@compute @workgroup_size(16, 16)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_id) lane: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  let base = offsets(group.z);
  let m = group.y * 64u;
  let n = group.x * 64u;
  var y0 = vec4<f32>();
  var y1 = vec4<f32>();
  var y2 = vec4<f32>();
  var y3 = vec4<f32>();
  for (var k0 = 0u; k0 < P(2u); k0 += 16u) {
    for (var j = index; j < 1024u; j += 256u) {
      let row = m + j / 16u;
      let k = k0 + j % 16u;
      left[j] = 0.0;
      if (row < P(0u) && k < P(2u)) { left[j] = get0(base.x + row * P(4u) + k * P(5u)); }
      let down = k0 + j / 64u;
      let column = n + j % 64u;
      right[j] = 0.0;
      if (down < P(2u) && column < P(1u)) { right[j] = get1(base.y + down * P(6u) + column * P(7u)); }
    }
    workgroupBarrier();
    for (var k = 0u; k < 16u; k++) {
      let r = k * 64u + lane.x;
      let b = vec4<f32>(right[r], right[r + 16u], right[r + 32u], right[r + 48u]);
      let l = lane.y * 64u + k;
      y0 += left[l] * b;
      y1 += left[l + 16u] * b;
      y2 += left[l + 32u] * b;
      y3 += left[l + 48u] * b;
    }
    workgroupBarrier();
  }
  let row = m + lane.y * 4u;
  for (var j = 0u; j < 4u; j++) {
    let column = n + lane.x + 16u * j;
    save(group.z, row, column, y0[j]);
    save(group.z, row + 1u, column, y1[j]);
    save(group.z, row + 2u, column, y2[j]);
    save(group.z, row + 3u, column, y3[j]);
  }
}
