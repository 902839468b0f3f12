//! What a run costs besides computing: heap blocks and system calls in steady state must be none.
//!
//! One test, because the counts are of the whole process.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod heap;

use heap::counted;

#[test]
fn counter_sees_this_program_and_plugins() {
    let (blocks, text) = counted(|| String::from("a block").into_boxed_str());
    assert!(blocks >= 1, "{text}");
    assert_eq!(counted(|| 1 + 1).0, 0);
}
