//! Bf16 numbers and f32, and trained weights with bf16 products: the packed numbers that products read, and tails.
//!
//! A weight's upper half is rounded to the nearest bf16, ties away from zero. The difference fits into 16 bits with a
//! sign: the lower half of the f32, negative where the upper half was rounded up. Tails are laid out like the packed
//! numbers. Purpose: 4 bytes per weight for both, and no copy to keep in step.

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

/// Two weights as the word that products read and the word of their tails.
#[inline(always)]
pub(super) fn split(both: [f32; 2]) -> [u32; 2] {
    let [low, high] = both.map(upper);
    let [even, odd] = both.map(f32::to_bits);
    [low | high << 16, even & 0xffff | odd << 16]
}

/// The upper half of a weight.
#[inline(always)]
pub(super) fn upper(weight: f32) -> u32 {
    weight.to_bits().wrapping_add(0x8000) >> 16
}

/// Two weights of their word and that of their tails; of tails of 0, the two bf16 numbers.
#[inline(always)]
pub(super) fn join(word: u32, tails: u32) -> [f32; 2] {
    let below = |tail: u32| (tail.cast_signed() >> 16).cast_unsigned();
    [
        f32::from_bits((word << 16).wrapping_add(below(tails << 16))),
        f32::from_bits((word & 0xffff_0000).wrapping_add(below(tails))),
    ]
}
