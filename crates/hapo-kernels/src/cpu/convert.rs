//! Bf16 numbers and f32.

use super::pool::Cpu;
use crate::lanes::kernel;

/// The bits of the nearest bf16, ties to even; NaN stays NaN.
#[inline(always)]
pub(super) fn nearest(x: f32) -> u32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    if x.is_nan() { bits >> 16 | 0x40 } else { rounded }
}

/// The nearest bf16 as an f32.
#[inline(always)]
pub fn nearest_bf16(x: f32) -> f32 {
    f32::from_bits(nearest(x) << 16)
}

pub(super) fn round(cpu: &Cpu, x: &mut [f32]) {
    cpu.for_blocks(x, 64 * 1024, |_, x| round_block(x));
}

kernel! {
    fn round_block<V>(x: &mut [f32]) {
        for it in x {
            *it = nearest_bf16(*it);
        }
    }
}

#[inline(always)]
pub(super) fn widen(from: &[u16], to: &mut [f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = f32::from_bits(u32::from(*from) << 16);
    }
}

/// The two halves of a word.
#[inline(always)]
pub(super) fn halves(word: u32) -> [f32; 2] {
    [f32::from_bits(word << 16), f32::from_bits(word & 0xffff_0000)]
}

/// True if every element is a bf16 number.
pub(super) fn is_bf16(cpu: &Cpu, x: &[f32]) -> bool {
    const BLOCK: usize = 1 << 20;
    cpu.map_tasks(x.len().div_ceil(BLOCK), |task| {
        let block = &x[task * BLOCK..x.len().min((task + 1) * BLOCK)];
        let bits = block.iter().fold(0, |all, it| all | it.to_bits());
        bits.trailing_zeros() >= 16
    })
    .into_iter()
    .all(|it| it)
}
