//! Products with weights held in bf16. Decoding reads every weight once per step, so its time is the memory
//! traffic of the weights. The gradient by the input widens weights when it packs them ([`super::kernel`]).
//!
//! Layout: panels of 32 columns, each `[inputs]` rows of 16 words; a word holds column `i` in its low
//! half and column `16 + i` in its high half. A panel is one contiguous stream, and its two halves
//! become `f32` by a shift and a mask.
//!
//! Bits: the same chain of multiply-adds, broken every 512 steps, as every other product; with
//! weights that are bf16 numbers the result is that of [`super::f32`], bit for bit.

use super::f32::{Start, multiply};
use super::kernel::{Left, PANEL, Right, panel_words};
use crate::cpu::convert::halves;
use crate::cpu::pool::Cpu;
use crate::cpu::share::Shared;
use crate::lanes::WIDTH;
use crate::shapes::MatShape;

/// `y = start + x · w`.
pub(in crate::cpu) fn forward(
    cpu: &Cpu,
    MatShape { rows, inputs, outputs }: MatShape,
    x: &[f32],
    packed: &[f32],
    start: Start,
    y: &mut [f32],
) {
    assert_eq!(x.len(), rows * inputs, "x is [rows, inputs]");
    assert_eq!(packed.len(), panel_words(inputs, outputs), "a word for two weights");
    assert_eq!(y.len(), rows * outputs, "y is [rows, outputs]");
    let left = Left { data: x, row_stride: inputs, step_stride: 1 };
    let right = Right::Panels { words: bytemuck::cast_slice(packed), steps: inputs };
    multiply(cpu, [rows, outputs, inputs], left, right, start, y);
}

/// `dx = start + dy · wᵀ`.
pub(in crate::cpu) fn input_grad(
    cpu: &Cpu,
    MatShape { rows, inputs, outputs }: MatShape,
    dy: &[f32],
    packed: &[f32],
    start: Start,
    dx: &mut [f32],
) {
    assert_eq!(dy.len(), rows * outputs, "dy is [rows, outputs]");
    assert_eq!(packed.len(), panel_words(inputs, outputs), "a word for two weights");
    let left = Left { data: dy, row_stride: outputs, step_stride: 1 };
    let right = Right::Turned { words: bytemuck::cast_slice(packed), columns: inputs };
    multiply(cpu, [rows, inputs, outputs], left, right, start, dx);
}

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
