@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
  let i = id.x + id.y * n.x * 64u;
  if (i >= P(0u)) { return; }
  let at = walk(i, 5u, P(2u));
  let gone = 5u + 2u * P(2u);
  var m = $bottom;
  if ($greatest) {
    for (var r = 0u; r < P(1u); r++) { m = max(m, float_(get0(at + walk(r, gone, P(3u))))); }
  }
  var a: $type = $neutral;
  for (var r = 0u; r < P(1u); r++) { a = join_(a, map_(get0(at + walk(r, gone, P(3u))), m)); }
  put1(i, finish_(a, P(1u), m));
}
