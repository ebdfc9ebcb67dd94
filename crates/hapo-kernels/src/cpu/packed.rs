//! Products with weights held in bf16. Decoding reads every weight once per step, so its time is the memory
//! traffic of the weights. Many rows, and the gradient by the input, widen a tile of the weights at a time and
//! go through the product of every other weight.
//!
//! Layout: panels of 32 columns, each `[inputs]` rows of 16 words; a word holds column `i` in its low
//! half and column `16 + i` in its high half. A panel is one contiguous stream, and its two halves
//! become `f32` by a shift and a mask.
//!
//! Bits: the same chain of multiply-adds, broken every [`CHAIN`] steps, as every other product; with
//! weights that are bf16 numbers the result is that of [`super::matmul`], bit for bit.

use half::bf16;

use super::bf16::halves;
use super::matmul::{CHAIN, Left, Product, Right, Start, TILE, for_tiles, product, transpose_band};
use super::{Cpu, share::Shared};
use crate::device::MatShape;
use crate::lanes::{Lanes, WIDTH, wide_kernel};

/// Columns of a panel.
const PANEL: usize = 2 * WIDTH;
/// Rows that pass over a panel together: their sums stay in registers.
const ROWS: usize = 8;

/// More rows than this pay for widening tiles.
const FEW_ROWS: usize = 64;

/// Words of packed weights `[inputs, outputs]`.
pub(super) fn words(inputs: usize, outputs: usize) -> usize {
    outputs.div_ceil(PANEL) * inputs * WIDTH
}

/// Packs `w [inputs, outputs]`, rounded to the nearest bf16.
pub(super) fn pack(cpu: &Cpu, inputs: usize, outputs: usize, w: &[f32], packed: &mut [f32]) {
    assert_eq!(w.len(), inputs * outputs, "w is [inputs, outputs]");
    assert_eq!(packed.len(), words(inputs, outputs), "a word for two weights");
    let size = inputs * WIDTH;
    let packed = Shared::new(packed);
    cpu.for_tasks(outputs.div_ceil(PANEL), |panel| {
        // SAFETY: panels are disjoint.
        let to: &mut [u32] = bytemuck::cast_slice_mut(unsafe { packed.part(panel * size, size) });
        let first = panel * PANEL;
        for (step, to) in to.as_chunks_mut::<WIDTH>().0.iter_mut().enumerate() {
            let row = &w[step * outputs..][..outputs];
            let at = |column: usize| {
                let it = row.get(column).copied().unwrap_or(0.0);
                u32::from(bf16::from_f32(it).to_bits())
            };
            for (i, word) in to.iter_mut().enumerate() {
                *word = at(first + i) | at(first + WIDTH + i) << 16;
            }
        }
    });
}

/// Whether every element is a bf16 number.
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

/// `y = start + x · w`.
pub(super) fn forward(
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
pub(super) fn input_grad(
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

/// `w [inputs, outputs]` of packed weights.
pub(super) fn unpack(cpu: &Cpu, inputs: usize, outputs: usize, packed: &[f32], w: &mut [f32]) {
    assert_eq!(packed.len(), words(inputs, outputs), "a word for two weights");
    assert_eq!(w.len(), inputs * outputs, "w is [inputs, outputs]");
    let packed: &[u32] = bytemuck::cast_slice(packed);
    let w = Shared::new(w);
    cpu.for_tasks(outputs.div_ceil(PANEL), |panel| {
        let column = panel * PANEL;
        let width = PANEL.min(outputs - column);
        let mut wide = [0.0; PANEL];
        for step in 0..inputs {
            widen(&packed[(panel * inputs + step) * WIDTH..][..WIDTH], PANEL, &mut wide);
            // SAFETY: panels are disjoint.
            unsafe { w.part(step * outputs + column, width) }.copy_from_slice(&wide[..width]);
        }
    });
}

/// `x [tokens, width]` = the tokens' columns of packed weights `[width, vocabulary]`.
pub(super) fn embed(cpu: &Cpu, width: usize, tokens: &[u32], packed: &[f32], x: &mut [f32]) {
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
mod tests {
    use super::*;
    use crate::device::{Accumulate, Buffer, Device};

    /// Numbers in (−1, 1), rounded to bf16 when asked to.
    fn numbers(n: usize, seed: u32, round: bool) -> Vec<f32> {
        let mut state = seed;
        (0..n)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let it = state as f32 / 2_147_483_648.0 - 1.0;
                if round { bf16::from_f32(it).to_f32() } else { it }
            })
            .collect()
    }

    #[test]
    fn bf16_weights_give_the_bits_of_the_other_products() {
        for (rows, inputs, outputs) in [
            (1, 1, 1),
            (2, 7, 31),
            (3, 64, 33),
            (5, 513, 32),
            (8, 896, 128),
            (9, 1100, 97),
            (21, 40, 70),
            (65, 513, 65),
            (800, 70, 200),
            (900, 1040, 1000),
        ] {
            let shape = MatShape { rows, inputs, outputs };
            let (x, w) = (numbers(rows * inputs, 1, false), numbers(inputs * outputs, 2, true));
            let bias = numbers(outputs, 3, false);
            let before = numbers(rows * outputs, 4, false);
            for threads in [1, 2] {
                let cpu = Cpu::new(threads).unwrap();
                let buf = |values: &[f32]| {
                    let mut it = cpu.alloc(values.len()).unwrap();
                    cpu.upload(values, it.first_mut(values.len()));
                    it
                };
                let (x, w, bias) = (buf(&x), buf(&w), buf(&bias));
                assert!(cpu.is_bf16(w.first(w.len())));
                let len = cpu.packed_len(inputs, outputs).unwrap();
                let mut packed = cpu.alloc(len).unwrap();
                cpu.pack([inputs, outputs], 0, w.first(w.len()), packed.first_mut(len));
                for kind in 0..3 {
                    let onto = || match kind {
                        0 => Accumulate::Nothing,
                        1 => Accumulate::Existing,
                        _ => Accumulate::Bias(bias.first(outputs)),
                    };
                    let (mut a, mut b) = (buf(&before), buf(&before));
                    let n = before.len();
                    cpu.matmul(shape, x.first(x.len()), w.first(w.len()), onto(), a.first_mut(n));
                    cpu.matmul_packed(
                        shape,
                        x.first(x.len()),
                        packed.first(len),
                        onto(),
                        b.first_mut(n),
                    );
                    assert_eq!(a.as_slice(), b.as_slice(), "{shape:?}, onto {kind}");
                }
            }
        }
    }

    #[test]
    fn packed_weights_are_all_that_is_needed() {
        for (rows, inputs, outputs) in [(1, 3, 5), (7, 70, 1030), (700, 130, 97), (800, 64, 513)] {
            let shape = MatShape { rows, inputs, outputs };
            let (w, dy) = (numbers(inputs * outputs, 2, true), numbers(rows * outputs, 3, false));
            let before = numbers(rows * inputs, 4, false);
            let mut all = Vec::new();
            for threads in [1, 2] {
                let cpu = Cpu::new(threads).unwrap();
                let buf = |values: &[f32]| {
                    let mut it = cpu.alloc(values.len()).unwrap();
                    cpu.upload(values, it.first_mut(values.len()));
                    it
                };
                let len = cpu.packed_len(inputs, outputs).unwrap();
                let (w, dy, mut packed) = (buf(&w), buf(&dy), cpu.alloc(len).unwrap());
                cpu.pack([inputs, outputs], 0, w.first(w.len()), packed.first_mut(len));
                let mut back = cpu.alloc(w.len()).unwrap();
                cpu.unpack(inputs, outputs, packed.first(len), back.first_mut(w.len()));
                assert_eq!(back.as_slice(), w.as_slice());
                let tokens: Vec<u32> = (0..outputs as u32).rev().collect();
                let mut x = cpu.alloc(w.len()).unwrap();
                cpu.embed_packed(inputs, &tokens, packed.first(len), x.first_mut(w.len()));
                for (row, &token) in x.as_slice().chunks(inputs).zip(&tokens) {
                    let column = w.as_slice()[token as usize..].iter().step_by(outputs);
                    assert!(row.iter().eq(column));
                }
                for existing in [false, true] {
                    let onto = || if existing { Accumulate::Existing } else { Accumulate::Nothing };
                    let (mut a, mut b, n) = (buf(&before), buf(&before), before.len());
                    let dy = || dy.first(dy.len());
                    cpu.matmul_input_grad(shape, dy(), w.first(w.len()), onto(), a.first_mut(n));
                    cpu.matmul_packed_input_grad(
                        shape,
                        dy(),
                        packed.first(len),
                        onto(),
                        b.first_mut(n),
                    );
                    for (a, b) in a.as_slice().iter().zip(b.as_slice()) {
                        assert!((a - b).abs() < 1e-4, "{shape:?}: {a} and {b}");
                    }
                    all.push(b.as_slice().to_vec());
                }
            }
            let (one, two) = all.split_at(2);
            assert_eq!(one, two, "{shape:?} depends on the number of threads");
        }
    }

    #[test]
    fn other_weights_are_told_apart_and_rounded() {
        let cpu = Cpu::new(1).unwrap();
        let mut w = cpu.alloc(2).unwrap();
        cpu.upload(&[1.0, 1.001], w.first_mut(2));
        assert!(!cpu.is_bf16(w.first(2)));
        let len = cpu.packed_len(1, 2).unwrap();
        let mut packed = cpu.alloc(len).unwrap();
        cpu.pack([1, 2], 0, w.first(2), packed.first_mut(len));
        let mut x = cpu.alloc(1).unwrap();
        cpu.upload(&[1.0], x.first_mut(1));
        let mut y = cpu.alloc(2).unwrap();
        let shape = MatShape { rows: 1, inputs: 1, outputs: 2 };
        cpu.matmul_packed(
            shape,
            x.first(1),
            packed.first(len),
            Accumulate::Nothing,
            y.first_mut(2),
        );
        assert_eq!(y.as_slice(), [1.0, 1.0]);
    }
}
