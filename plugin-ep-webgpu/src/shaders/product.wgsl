$chain
// Offsets of matrix `b` of a batch in both operands.
fn offsets(b: u32) -> vec2<u32> {
  var left = b;
  var at = vec2<u32>(0u, 0u);
  for (var k = P(3u); k > 0u; k--) {
    let place = 5u + 3u * k;
    let step = left % P(place);
    left /= P(place);
    at += step * vec2<u32>(P(place + 1u), P(place + 2u));
  }
  return at;
}

fn save(batch: u32, m: u32, n: u32, x: f32) {
  if (m < P(0u) && n < P(1u)) {
    let o = (batch * P(0u) + m) * P(1u) + n;
    put2(o, chain(o, x + $bias));
  }
}
