// Place of output element `o` in an input that is broadcast: the axes stand at `axes`, the input's steps at `steps`.
fn spread(o: u32, axes: u32, steps: u32) -> u32 {
  var left = o;
  var at = 0u;
  for (var k = P(axes); k > 0u; k--) {
    let n = P(axes + k);
    at += (left % n) * P(steps + k - 1u);
    left /= n;
  }
  return at;
}

fn erf_(x: f32) -> f32 {
  let a = abs(x);
  if (a < 0.3) {
    let s = x * x;
    return x * (1.1283791671 + s * (-0.37612638903 + s * (0.11283791671 + s * (-0.026866170645 + s * 0.0052239776254))));
  }
  let t = 1.0 / (1.0 + 0.3275911 * a);
  let p = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  return sign(x) * (1.0 - p * exp(-a * a));
}

fn tanh_(x: f32) -> f32 {
  let a = abs(x);
  if (a < 0.25) {
    let s = x * x;
    return x * (1.0 + s * (-0.33333333333 + s * (0.13333333333 + s * (-0.053968253968 + s * 0.021869488536))));
  }
  let e = exp(-2.0 * min(a, 20.0));
  return sign(x) * (1.0 - e) / (1.0 + e);
}

fn softplus_(x: f32) -> f32 {
  return max(x, 0.0) + log(1.0 + exp(-abs(x)));
}

fn sigmoid_(x: f32) -> f32 {
  let e = exp(-abs(x));
  return select(e, 1.0, x >= 0.0) / (1.0 + e);
}

fn pow_(x: f32, y: f32) -> f32 {
  if (y == 0.0) { return 1.0; }
  if (y == 1.0) { return x; }
  if (y == 2.0) { return x * x; }
  let p = pow(abs(x), y);
  if (x >= 0.0) { return p; }
  // No constant may be NaN.
  if (floor(y) != y) { return bitcast<f32>(bitcast<u32>(x) | 0x7fc00000u); }
  let odd = abs(y - 2.0 * floor(y * 0.5)) == 1.0;
  return select(p, -p, odd);
}

fn ipow_(x: i32, y: i32) -> i32 {
  var left = y;
  var base = x;
  var out = 1;
  if (left < 0) { return select(select(0, select(1, -1, (left & 1) == 1), x == -1), 1, x == 1); }
  while (left > 0) {
    if ((left & 1) == 1) { out *= base; }
    base *= base;
    left = left >> 1u;
  }
  return out;
}

// x less whole times y, with the sign of x.
fn fmod_(x: f32, y: f32) -> f32 {
  if (is_inf_(y) && !is_inf_(x)) { return x; }
  return x - y * trunc(x / y);
}

// The same with the sign of y.
fn mod_(x: f32, y: f32) -> f32 {
  if (is_inf_(y) && !is_inf_(x)) { return select(y, x, x == 0.0 || (x < 0.0) == (y < 0.0)); }
  return x - y * floor(x / y);
}

fn is_nan_(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }

fn is_inf_(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u; }
