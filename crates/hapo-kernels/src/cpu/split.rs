//! Trained weights with bf16 products: the packed numbers that products read, and tails.
//!
//! A weight's upper half is rounded to the nearest bf16, ties away from zero. The difference fits into 16 bits with a
//! sign: the lower half of the f32, negative where the upper half was rounded up. Tails are laid out like the packed
//! numbers. Purpose: 4 bytes per weight for both, and no copy to keep in step.

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

#[inline(always)]
pub(super) fn join(word: u32, tails: u32) -> [f32; 2] {
    let below = |tail: u32| (tail.cast_signed() >> 16).cast_unsigned();
    [
        f32::from_bits((word << 16).wrapping_add(below(tails << 16))),
        f32::from_bits((word & 0xffff_0000).wrapping_add(below(tails))),
    ]
}
