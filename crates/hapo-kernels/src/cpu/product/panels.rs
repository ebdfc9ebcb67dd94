//! Products with weights held in bf16. Decoding reads every weight once per step, so its time is the memory
//! traffic of the weights. Many rows, and the gradient by the input, widen weights when they pack them
//! ([`super::kernel`]).
//!
//! Layout: panels of 32 columns, each `[inputs]` rows of 16 words; a word holds column `i` in its low
//! half and column `16 + i` in its high half. A panel is one contiguous stream, and its two halves
//! become `f32` by a shift and a mask.
//!
//! Bits: the same chain of multiply-adds, broken every [`CHAIN`] steps, as every other product; with
//! weights that are bf16 numbers the result is that of [`super::f32`], bit for bit.

use super::f32::{Start, multiply};
use super::kernel::{CHAIN, Left, PANEL, Right, panel_words};
use crate::cpu::convert::halves;
use crate::cpu::pool::Cpu;
use crate::cpu::share::Shared;
use crate::isa::Isa;
use crate::lanes::{Lanes, WIDTH, wide_kernel};
use crate::shapes::MatShape;

/// Rows that pass over a panel together: their sums stay in registers.
const ROWS: usize = 8;

/// More rows than this pay for widening tiles; up to them a copy in bf16 is faster than weights in f32.
pub(in crate::cpu) const FEW_ROWS: usize = 64;

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
    let packed: &[u32] = bytemuck::cast_slice(packed);
    if rows > FEW_ROWS {
        let left = Left { data: x, row_stride: inputs, step_stride: 1 };
        let right = Right::Panels { words: packed, steps: inputs };
        return multiply(cpu, [rows, outputs, inputs], left, right, start, y);
    }
    // Blocks of equal heights.
    let block = rows.div_ceil(rows.div_ceil(most_rows()).max(1)).max(1);
    let x = &transposed(x, [rows, inputs], block);
    let y = Shared::new(y);
    let panels = outputs.div_ceil(PANEL);
    let task_panels = (panels / (8 * cpu.threads())).clamp(1, 8);
    cpu.for_tasks(panels.div_ceil(task_panels), |task| {
        for panel in task * task_panels..panels.min((task + 1) * task_panels) {
            let column = panel * PANEL;
            let width = PANEL.min(outputs - column);
            let w = &packed[panel * inputs * WIDTH..][..inputs * WIDTH];
            for first in (0..rows).step_by(block) {
                let height = block.min(rows - first);
                let x = &x[first * inputs..(first + height) * inputs];
                // SAFETY: panels are disjoint, and so are the rows of one.
                let mut out: [&mut [f32]; ROWS] = std::array::from_fn(|r| {
                    let row = first + r.min(height);
                    let width = if r < height { width } else { 0 };
                    unsafe { y.part((row * outputs + column).min(rows * outputs - width), width) }
                });
                let add = match start {
                    Start::Nothing => false,
                    Start::Existing => true,
                    Start::Bias(bias) => {
                        for out in &mut out[..height] {
                            out.copy_from_slice(&bias[column..column + width]);
                        }
                        true
                    }
                };
                rows_of_panel(height, x, w, add, &mut out);
            }
        }
    });
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

/// The most rows whose sums stay in registers.
fn most_rows() -> usize {
    match Isa::current() {
        Isa::Avx512 => ROWS,
        Isa::Avx2 | Isa::Portable => 6,
    }
}

/// `[rows, inputs]` as blocks of `block` rows and less in the last, each `[inputs, rows of the block]`.
fn transposed(x: &[f32], [rows, inputs]: [usize; 2], block: usize) -> Vec<f32> {
    let mut all = vec![0.0; x.len()];
    for first in (0..rows).step_by(block) {
        let height = block.min(rows - first);
        let block = &mut all[first * inputs..(first + height) * inputs];
        for (r, row) in x[first * inputs..].chunks_exact(inputs).take(height).enumerate() {
            for (to, value) in block[r..].iter_mut().step_by(height).zip(row) {
                *to = *value;
            }
        }
    }
    all
}

fn rows_of_panel(height: usize, x: &[f32], w: &[u32], add: bool, y: &mut [&mut [f32]; ROWS]) {
    match height {
        1 => panel_kernel::<1>(x, w, add, y),
        2 => panel_kernel::<2>(x, w, add, y),
        3 => panel_kernel::<3>(x, w, add, y),
        4 => panel_kernel::<4>(x, w, add, y),
        5 => panel_kernel::<5>(x, w, add, y),
        6 => panel_kernel::<6>(x, w, add, y),
        7 => panel_kernel::<7>(x, w, add, y),
        _ => panel_kernel::<8>(x, w, add, y),
    }
}

wide_kernel! {
    fn panel_kernel<V, const R: usize>(x: &[f32], w: &[u32], add: bool, y: &mut [&mut [f32]; ROWS]) = panel_body
}

#[inline(always)]
fn panel_body<V: Lanes, const R: usize>(
    x: &[f32],
    w: &[u32],
    add: bool,
    y: &mut [&mut [f32]; ROWS],
) {
    let (x, w) = (x.as_chunks::<R>().0, w.as_chunks::<WIDTH>().0);
    let mut add = add;
    for (x, w) in x.chunks(CHAIN).zip(w.chunks(CHAIN)) {
        // Both halves of a panel at once where their sums fit into the registers; else words are read twice, close by.
        if V::REGISTERS == 1 || R <= 3 {
            let sums = chains::<V, R, 2>(x, w, V::load_halves);
            for (half, sums) in sums.into_iter().enumerate() {
                finish(half, sums, add, y);
            }
        } else {
            let [low] = chains::<V, R, 1>(x, w, |it| [V::load_halves(it)[0]]);
            finish(0, low, add, y);
            let [high] = chains::<V, R, 1>(x, w, |it| [V::load_halves(it)[1]]);
            finish(1, high, add, y);
        }
        add = true;
    }
}

/// One chain of `R` rows for each of `N` vectors of columns.
#[inline(always)]
fn chains<V: Lanes, const R: usize, const N: usize>(
    x: &[[f32; R]],
    w: &[[u32; WIDTH]],
    load: impl Fn(&[u32; WIDTH]) -> [V; N],
) -> [[V; R]; N] {
    let mut sums = [[V::splat(0.0); R]; N];
    for (x, w) in x.iter().zip(w) {
        let w = load(w);
        for r in 0..R {
            let factor = V::splat(x[r]);
            for n in 0..N {
                sums[n][r] = sums[n][r].add_product(factor, w[n]);
            }
        }
    }
    sums
}

/// Writes the chains of half a panel.
#[inline(always)]
fn finish<V: Lanes, const R: usize>(
    half: usize,
    sums: [V; R],
    add: bool,
    y: &mut [&mut [f32]; ROWS],
) {
    for (y, sum) in y.iter_mut().zip(sums) {
        let range = (half * WIDTH).min(y.len())..((half + 1) * WIDTH).min(y.len());
        let out = &mut y[range];
        let sum = if add { V::load_part(out).add(sum) } else { sum };
        sum.store_part(out);
    }
}

#[cfg(test)]
mod tests;
