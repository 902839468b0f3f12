//! Regions, boxes and pictures: `boxes` keeps the best of boxes that overlap, `regions` pools what lies in boxes, `columns`
//! puts patches back where they came from.

mod boxes;
mod columns;
mod regions;

use super::narrow::{Bf16, F16};
use boxes::suppress;
use columns::col2im;
use ortolan_ep_kit::{Kernel, any, typed};
use regions::{align, max_pool};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("Col2Im", (18, 18), "col2im", typed!(col2im: f32 f64 F16 Bf16 i8 i16 i32 i64 u8 u16 u32 u64)).late(),
    Kernel::new("MaxRoiPool", (1, 22), "maxroipool", typed!(max_pool: f32 f64 F16 Bf16)),
    Kernel::new("NonMaxSuppression", (11, 11), "nonmaxsuppression", any!(suppress: f32)).late(),
    Kernel::new("RoiAlign", (16, 22), "roialign", typed!(align: f32 f64 F16 Bf16)),
];
