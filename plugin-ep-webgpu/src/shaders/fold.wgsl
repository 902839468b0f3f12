fn map_(x: $type, m: f32) -> $type { return $map; }
fn join_(a: $type, b: $type) -> $type { return $join; }
fn finish_(a: $type, n: u32, m: f32) -> $type { return $finish; }
fn float_(x: $type) -> f32 { return $float; }

// Offset of the i-th element along `count` axes, whose lengths and steps stand at `first`.
fn walk(i: u32, first: u32, count: u32) -> u32 {
  var left = i;
  var at = 0u;
  for (var k = count; k > 0u; k--) {
    let place = first + 2u * (k - 1u);
    at += (left % P(place)) * P(place + 1u);
    left /= P(place);
  }
  return at;
}
