//! Spectra and windows: `transform` has the operators that go from signals to spectra and back, on the plans of `fft`;
//! `window` makes what signals and spectra are weighted with.

mod fft;
mod transform;
mod window;

use super::float::FLOATS;
use super::narrow::{Bf16, F16};
use ortolan_ep_kit::element::{NUMBERS, set};
use ortolan_ep_kit::{DType, Kernel, Slot, typed};
use transform::{dft, stft};
use window::{blackman, hamming, hann, mel};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new(
        "BlackmanWindow",
        (17, 17),
        "blackmanwindow",
        typed!(blackman: f32 f64 F16 Bf16 i8 i16 i32 i64 u8 u16 u32 u64),
    )
    .types(MADE)
    .at(OUT)
    .late(),
    Kernel::new("DFT", (20, 20), "dft", typed!(dft: f32 f64 F16 Bf16)).types(&[("T1", FLOATS), ("T2", SIZES)]).late(),
    Kernel::new(
        "HammingWindow",
        (17, 17),
        "hammingwindow",
        typed!(hamming: f32 f64 F16 Bf16 i8 i16 i32 i64 u8 u16 u32 u64),
    )
    .types(MADE)
    .at(OUT)
    .late(),
    Kernel::new("HannWindow", (17, 17), "hannwindow", typed!(hann: f32 f64 F16 Bf16 i8 i16 i32 i64 u8 u16 u32 u64))
        .types(MADE)
        .at(OUT)
        .late(),
    Kernel::new("MelWeightMatrix", (17, 17), "melweights", typed!(mel: f32 f64 F16 Bf16 i8 i16 i32 i64 u8 u16 u32 u64))
        .types(&[("T3", ALL), ("T1", SIZES), ("T2", FLOATS)])
        .at(&[Slot::Out(0), Slot::In(0), Slot::In(3)])
        .late(),
    Kernel::new("STFT", (17, 17), "stft", typed!(stft: f32 f64 F16 Bf16))
        .types(&[("T1", FLOATS), ("T2", SIZES)])
        .late(),
];

const SIZES: u64 = set(&[DType::I32, DType::I64]);
const ALL: u64 = NUMBERS | FLOATS;
const MADE: &[(&str, u64)] = &[("T2", ALL), ("T1", SIZES)];
const OUT: &[Slot] = &[Slot::Out(0), Slot::In(0)];
