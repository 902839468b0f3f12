// Where a place around a row of `n` elements comes from: 1 reflects, 2 repeats the edge, 3 goes round.
fn inside(at: i32, n: i32, mode: u32) -> i32 {
  if (mode == 2u || n == 1) { return clamp(at, 0, n - 1); }
  let period = u32(select(n, 2 * (n - 1), mode == 1u));
  // Drivers differ in the rest of what is negative.
  var m = u32(max(at, 0)) % period;
  if (at < 0) { m = (period - u32(-at) % period) % period; }
  return i32(select(m, period - m, mode == 1u && m >= u32(n)));
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
  let i = id.x + id.y * n.x * 64u;
  if (i >= P(0u)) { return; }
  var left = i;
  var at = 0u;
  var outside = false;
  for (var k = P(1u); k > 0u; k--) {
    let place = 4u * k;
    let len = S(place + 1u);
    var step = i32(left % P(place)) - S(place + 2u);
    left /= P(place);
    if (step < 0 || step >= len) {
      if (P(2u) == 0u) { outside = true; step = 0; } else { step = inside(step, len, P(2u)); }
    }
    at += u32(step) * P(place + 3u);
  }
  if (outside) { put1(i, $value); } else { put1(i, get0(at)); }
}
