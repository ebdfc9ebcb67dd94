//! Products with weights held in bf16. Decoding reads every weight once per step, so its time is the memory
//! traffic of the weights. Many rows, and the gradient by the input, widen a tile of the weights at a time and
//! go through the product of every other weight.
//!
//! Layout: panels of 32 columns, each `[inputs]` rows of 16 words; a word holds column `i` in its low
//! half and column `16 + i` in its high half. A panel is one contiguous stream, and its two halves
//! become `f32` by a shift and a mask.
//!
//! Bits: the same chain of multiply-adds, broken every [`CHAIN`] steps, as every other product; with
//! weights that are bf16 numbers the result is that of [`super::f32`], bit for bit.

use super::f32::{CHAIN, Left, Product, Right, Start, TILE, for_tiles, product, transpose_band};
use crate::cpu::convert::halves;
use crate::cpu::pool::Cpu;
use crate::cpu::share::Shared;
use crate::lanes::{Lanes, WIDTH, wide_kernel};
use crate::shapes::MatShape;

/// Columns of a panel.
pub(in crate::cpu) const PANEL: usize = 2 * WIDTH;
/// Rows that pass over a panel together: their sums stay in registers.
const ROWS: usize = 8;

/// More rows than this pay for widening tiles; up to them a copy in bf16 is faster than weights in f32.
pub(in crate::cpu) const FEW_ROWS: usize = 64;

/// Words of packed weights `[inputs, outputs]`.
pub(in crate::cpu) fn words(inputs: usize, outputs: usize) -> usize {
    outputs.div_ceil(PANEL) * inputs * WIDTH
}

/// `y = start + x · w`.
pub(in crate::cpu) fn forward(
    cpu: &Cpu,
    shape: MatShape,
    x: &[f32],
    packed: &[f32],
    start: Start,
    y: &mut [f32],
) {
    let MatShape { rows, inputs, outputs } = shape;
    assert_eq!(x.len(), rows * inputs, "x is [rows, inputs]");
    assert_eq!(packed.len(), words(inputs, outputs), "a word for two weights");
    assert_eq!(y.len(), rows * outputs, "y is [rows, outputs]");
    let packed: &[u32] = bytemuck::cast_slice(packed);
    if rows > FEW_ROWS {
        return forward_many(cpu, shape, x, packed, start, y);
    }
    let x = &transposed(x, rows, inputs);
    let y = Shared::new(y);
    let panels = outputs.div_ceil(PANEL);
    let task_panels = (panels / (8 * cpu.threads())).clamp(1, 8);
    cpu.for_tasks(panels.div_ceil(task_panels), |task| {
        for panel in task * task_panels..panels.min((task + 1) * task_panels) {
            let column = panel * PANEL;
            let width = PANEL.min(outputs - column);
            let w = &packed[panel * inputs * WIDTH..][..inputs * WIDTH];
            for first in (0..rows).step_by(ROWS) {
                let height = ROWS.min(rows - first);
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

/// [`forward`] of many rows.
#[expect(
    clippy::large_stack_arrays,
    reason = "within a worker's stack; from the heap it would be mapped anew for each tile"
)]
fn forward_many(
    cpu: &Cpu,
    MatShape { rows, inputs, outputs }: MatShape,
    x: &[f32],
    packed: &[u32],
    start: Start,
    y: &mut [f32],
) {
    const COLUMNS: usize = TILE[1];
    let y = Shared::new(y);
    for_tiles(cpu, [rows, outputs], TILE, |tile| {
        if let Start::Bias(bias) = start {
            for row in tile.rows() {
                // SAFETY: tiles are disjoint.
                unsafe { y.part(row * outputs + tile.column, tile.width) }
                    .copy_from_slice(&bias[tile.column..tile.column + tile.width]);
            }
        }
        let mut w = [0.0_f32; CHAIN * COLUMNS];
        for first in (0..inputs).step_by(CHAIN) {
            let steps = CHAIN.min(inputs - first);
            for panel in 0..tile.width.div_ceil(PANEL) {
                let from = (tile.column / PANEL + panel) * inputs + first;
                let words = &packed[from * WIDTH..(from + steps) * WIDTH];
                widen(words, COLUMNS, &mut w[panel * PANEL..]);
            }
            let of_tile = Product {
                m: tile.height,
                n: tile.width,
                k: steps,
                left: Left {
                    data: &x[tile.row * inputs + first..],
                    row_stride: inputs,
                    step_stride: 1,
                },
                right: Right { data: &w, step_stride: COLUMNS, column_stride: 1 },
                add: first > 0 || !matches!(start, Start::Nothing),
            };
            let dst = y.tile(tile.row * outputs + tile.column, tile.height, outputs, tile.width);
            product(of_tile, dst, outputs);
        }
    });
}

/// `dx = start + dy · wᵀ`.
#[expect(
    clippy::large_stack_arrays,
    reason = "within a worker's stack; from the heap it would be mapped anew for each tile"
)]
pub(in crate::cpu) fn input_grad(
    cpu: &Cpu,
    MatShape { rows, inputs, outputs }: MatShape,
    dy: &[f32],
    packed: &[f32],
    start: Start,
    dx: &mut [f32],
) {
    const COLUMNS: usize = TILE[1];
    assert_eq!(dy.len(), rows * outputs, "dy is [rows, outputs]");
    assert_eq!(packed.len(), words(inputs, outputs), "a word for two weights");
    assert_eq!(dx.len(), rows * inputs, "dx is [rows, inputs]");
    let packed: &[u32] = bytemuck::cast_slice(packed);
    let dx = Shared::new(dx);
    for_tiles(cpu, [rows, inputs], TILE, |tile| {
        let mut w = [0.0_f32; CHAIN * COLUMNS];
        let mut transposed = [0.0_f32; CHAIN * COLUMNS];
        for first in (0..outputs).step_by(CHAIN) {
            let steps = CHAIN.min(outputs - first);
            for panel in 0..steps.div_ceil(PANEL) {
                let from = (first / PANEL + panel) * inputs + tile.column;
                let words = &packed[from * WIDTH..(from + tile.width) * WIDTH];
                widen(words, CHAIN, &mut w[panel * PANEL..]);
            }
            let shape = [tile.width, CHAIN];
            transpose_band(&w, shape, 0, false, &mut transposed[..CHAIN * tile.width]);
            let of_tile = Product {
                m: tile.height,
                n: tile.width,
                k: steps,
                left: Left {
                    data: &dy[tile.row * outputs + first..],
                    row_stride: outputs,
                    step_stride: 1,
                },
                right: Right { data: &transposed, step_stride: tile.width, column_stride: 1 },
                add: first > 0 || matches!(start, Start::Existing),
            };
            let dst = dx.tile(tile.row * inputs + tile.column, tile.height, inputs, tile.width);
            product(of_tile, dst, inputs);
        }
    });
}

/// Rows of a panel, as f32 in rows `stride` apart.
fn widen(words: &[u32], stride: usize, to: &mut [f32]) {
    for (row, words) in words.as_chunks::<WIDTH>().0.iter().enumerate() {
        let to = &mut to[row * stride..][..PANEL];
        let (low, high) = to.split_at_mut(WIDTH);
        for ((low, high), word) in low.iter_mut().zip(high).zip(words) {
            [*low, *high] = halves(*word);
        }
    }
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

/// `[rows, inputs]` as blocks of up to [`ROWS`] rows, each `[inputs, rows of the block]`.
fn transposed(x: &[f32], rows: usize, inputs: usize) -> Vec<f32> {
    let mut all = vec![0.0; x.len()];
    for first in (0..rows).step_by(ROWS) {
        let height = ROWS.min(rows - first);
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
        let mut sums = [[V::splat(0.0); 2]; R];
        for (x, w) in x.iter().zip(w) {
            let [low, high] = V::load_halves(w);
            for r in 0..R {
                let factor = V::splat(x[r]);
                sums[r][0] = sums[r][0].add_product(factor, low);
                sums[r][1] = sums[r][1].add_product(factor, high);
            }
        }
        for r in 0..R {
            let middle = WIDTH.min(y[r].len());
            let (low, high) = y[r].split_at_mut(middle);
            for (out, sum) in [low, high].into_iter().zip(sums[r]) {
                let sum = if add { V::load_part(out).add(sum) } else { sum };
                sum.store_part(out);
            }
        }
        add = true;
    }
}

#[cfg(test)]
mod tests;
