// Taps of a window that lie inside along one axis: from the first one to before the last one. `at` is where tap 0 lies.
fn first_tap(at: i32, dilation: i32) -> i32 { return select(0, (-at + dilation - 1) / dilation, at < 0); }

fn last_tap(at: i32, len: i32, taps: i32, dilation: i32) -> i32 {
  return min(taps, select(0, (len - 1 - at) / dilation + 1, at < len));
}
