//! Rounding of the optimiser's moments in bf16.
//!
//! Purpose: 4 bytes per parameter instead of 8. A decay of 0.999 moves a number by less than half a unit of bf16, so
//! rounding to nearest would never move it. It is rounded up at random instead, with a probability equal to the
//! fraction dropped, and its mean over many steps is that of f32.
//!
//! Price: the generator, some 20 wide multiplications for 8 elements, beside 8 bytes less to read and 8 less to write
//! for each.

use hapo_core::{RngCounter, RngStream};

/// Elements of one counter.
const ELEMENTS: usize = 8;

/// The draws of an update's elements.
#[derive(Clone, Copy)]
pub(super) struct Rounding {
    pub(super) seed: u64,
    pub(super) update: u64,
}

impl Rounding {
    /// A word for each element from `first` on: 16 bits for the first moment, above them 16 for the second.
    #[inline(always)]
    fn draws(self, first: usize, to: &mut [u32]) {
        let (mut counter, mut skipped) = (first / ELEMENTS, first % ELEMENTS);
        let mut rest = to;
        while !rest.is_empty() {
            let at =
                RngCounter { step: self.update, prompt: counter as u64, ..RngCounter::default() };
            let words = hapo_core::random_words(self.seed, RngStream::Moments, at);
            let (now, later) = rest.split_at_mut(rest.len().min(ELEMENTS - skipped));
            for (i, draw) in now.iter_mut().enumerate() {
                let element = skipped + i;
                *draw = (words[element / 2] >> (32 * (element % 2))) as u32;
            }
            (rest, skipped, counter) = (later, 0, counter + 1);
        }
    }
}

/// The upper half of a number after 16 random bits are added; infinities and NaN stay as they are.
#[inline(always)]
pub(super) fn rounded(x: f32, draw: u32) -> u16 {
    let bits = x.to_bits();
    let draw = if x.is_finite() { draw } else { 0 };
    ((bits + draw) >> 16) as u16
}

/// Both moments of at most `N` elements from `first` on, rounded.
#[inline(always)]
pub(super) fn narrow<const N: usize>(
    rounding: Rounding,
    first: usize,
    [m, v]: [&[f32]; 2],
    [to_m, to_v]: [&mut [u16]; 2],
) {
    let mut draws = [0; N];
    let draws = &mut draws[..to_m.len()];
    rounding.draws(first, draws);
    for ((to, x), draw) in to_m.iter_mut().zip(m).zip(&*draws) {
        *to = rounded(*x, draw & 0xffff);
    }
    for ((to, x), draw) in to_v.iter_mut().zip(v).zip(draws) {
        *to = rounded(*x, *draw >> 16);
    }
}
