//! Products with weights held in bf16. Decoding reads every weight once per step, so its time is the memory
//! traffic of the weights. The gradient by the input widens weights when it packs them ([`super::kernel`]).
//!
//! Layout: panels of 32 columns, each `[inputs]` rows of 16 words; a word holds column `i` in its low
//! half and column `16 + i` in its high half. A panel is one contiguous stream, and its two halves
//! become `f32` by a shift and a mask.
//!
//! Bits: the same chain of multiply-adds, broken every 512 steps, as every other product; with
//! weights that are bf16 numbers the result is that of [`super::f32`], bit for bit.

use super::kernel::PANEL;
use crate::cpu::convert::halves;
use crate::cpu::pool::Cpu;
use crate::cpu::share::Shared;
use crate::lanes::WIDTH;

/// `x [tokens, width]` = the tokens' columns of packed weights `[width, vocabulary]`.
pub(in crate::cpu) fn embed(
    cpu: &Cpu,
    width: usize,
    tokens: &[u32],
    packed: &[f32],
    x: &mut [f32],
) {
    assert_eq!(x.len(), tokens.len() * width, "x is [tokens, width]");
    let packed: &[u32] = bytemuck::cast_slice(packed);
    let x = Shared::new(x);
    cpu.for_tasks(tokens.len(), |row| {
        let token = tokens[row] as usize;
        let (panel, column) = (token / PANEL, token % PANEL);
        let words = &packed[panel * width * WIDTH..][..width * WIDTH];
        // SAFETY: rows are disjoint.
        let x = unsafe { x.part(row * width, width) };
        for (x, words) in x.iter_mut().zip(words.as_chunks::<WIDTH>().0) {
            *x = halves(words[column % WIDTH])[column / WIDTH];
        }
    });
}

#[cfg(test)]
mod tests;
