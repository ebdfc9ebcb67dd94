//! Products of bf16 factors with sums in f32, by the CPU's own instruction (`vdpbf16ps`).
//!
//! Both factors are rounded to the nearest bf16 once: activations and gradients when a product reads them, weights
//! when they are loaded or updated.
//!
//! Layout: the instruction takes two steps of the inner dimension at a time, so a word holds an even step in its low
//! half and the odd one after it in its high half. A right factor is panels of 32 columns, each `[pairs of steps, 32]`
//! words; a left factor is blocks of up to 12 rows, each `[pairs of steps, rows of the block]` words. Steps and columns
//! that are not there are zeros. The gradient by the input multiplies by the transposed weights: their pairs are those
//! of the other dimension, and a task turns the part of the panels that it reads, 32 KB at a time.
//!
//! Bits: every element is one chain of the instruction over the pairs, broken every [`CHAIN`] pairs, whatever the
//! tiling, the number of rows and of threads.

use crate::cpu::pool::{Cpu, Shared};
use crate::lanes::{WIDTH, kernel};
use crate::shapes::{Accumulate, MatShape};
use crate::{cpu::buffer::CpuBuf, cpu::convert::nearest};

/// Columns of a panel.
pub(in crate::cpu) const PANEL: usize = 2 * WIDTH;
/// Rows of a block: with two vectors of columns, their sums fill the registers.
const ROWS: usize = 12;
/// Pairs of one chain.
const CHAIN: usize = 256;
/// Pairs from a request of memory to its use.
const AHEAD: usize = 32;
/// Rows of a task: their part of a chain stays close to the CPU while panels pass by.
const TALL: usize = 64 * ROWS;
/// The fewest rows of a task where there are more.
const LEAST: usize = 8 * ROWS;

/// Pairs in `steps` inputs, rounded up.
pub(in crate::cpu) fn pairs(steps: usize) -> usize {
    steps.div_ceil(2)
}

/// Words of packed weights `[inputs, outputs]`.
pub(in crate::cpu) fn words(inputs: usize, outputs: usize) -> usize {
    outputs.div_ceil(PANEL) * pairs(inputs) * PANEL
}

/// Left factors of fewer words are not kept.
const SMALL: usize = 1 << 16;

/// Words of the copy that a product of `rows` rows and `steps` steps keeps.
pub(in crate::cpu) fn copied(rows: usize, steps: usize) -> usize {
    let words = rows * pairs(steps);
    if words <= SMALL { 0 } else { words }
}

/// `y = onto + x · w`.
pub(in crate::cpu) fn forward(
    cpu: &Cpu,
    MatShape { rows, inputs, outputs }: MatShape,
    x: &[f32],
    packed: &[f32],
    onto: &Accumulate<CpuBuf>,
    y: &mut [f32],
) {
    assert_eq!(x.len(), rows * inputs, "x is [rows, inputs]");
    assert_eq!(packed.len(), words(inputs, outputs), "a word for two weights");
    let right = Right::Packed { words: bytemuck::cast_slice(packed), pairs: pairs(inputs) };
    with_left(cpu, rows * pairs(inputs), |left| {
        pack_rows(cpu, x, [rows, inputs], left);
        multiply(cpu, [rows, outputs, pairs(inputs)], left, right, onto, y);
    });
}

/// `dx = onto + dy · wᵀ`.
pub(in crate::cpu) fn input_grad(
    cpu: &Cpu,
    MatShape { rows, inputs, outputs }: MatShape,
    dy: &[f32],
    packed: &[f32],
    onto: &Accumulate<CpuBuf>,
    dx: &mut [f32],
) {
    assert_eq!(dy.len(), rows * outputs, "dy is [rows, outputs]");
    assert_eq!(packed.len(), words(inputs, outputs), "a word for two weights");
    let right = Right::Turned { words: bytemuck::cast_slice(packed), pairs: pairs(inputs) };
    with_left(cpu, rows * pairs(outputs), |left| {
        pack_rows(cpu, dy, [rows, outputs], left);
        multiply(cpu, [rows, inputs, pairs(outputs)], left, right, onto, dx);
    });
}

/// `dw = onto + xᵀ · dy`.
pub(in crate::cpu) fn weight_grad(
    cpu: &Cpu,
    MatShape { rows, inputs, outputs }: MatShape,
    x: &[f32],
    dy: &[f32],
    onto: &Accumulate<CpuBuf>,
    dw: &mut [f32],
) {
    assert_eq!(x.len(), rows * inputs, "x is [rows, inputs]");
    assert_eq!(dy.len(), rows * outputs, "dy is [rows, outputs]");
    let right = Right::Columns { numbers: dy, shape: [rows, outputs] };
    with_left(cpu, inputs * pairs(rows), |left| {
        pack_columns(cpu, x, [rows, inputs], left);
        multiply(cpu, [inputs, outputs, pairs(rows)], left, right, onto, dw);
    });
}

/// The right factor of a product.
#[derive(Clone, Copy)]
enum Right<'a> {
    /// Packed weights with `pairs` pairs of inputs.
    Packed {
        words: &'a [u32],
        pairs: usize,
    },
    Turned {
        words: &'a [u32],
        pairs: usize,
    },
    /// Numbers `[steps, columns]` that are still to be packed.
    Columns {
        numbers: &'a [f32],
        shape: [usize; 2],
    },
}

impl Right<'_> {
    /// The pairs `first..first + n` of a panel.
    fn part<'s>(&'s self, panel: usize, first: usize, n: usize, room: &'s mut [u32]) -> &'s [u32] {
        match *self {
            Self::Packed { words, pairs } => &words[(panel * pairs + first) * PANEL..][..n * PANEL],
            Self::Turned { words, pairs } => {
                let room = &mut room[..n * PANEL];
                turn(words, pairs, panel * WIDTH, first / WIDTH, room);
                room
            }
            Self::Columns { numbers, shape: [steps, columns] } => {
                let (room, column) = (&mut room[..n * PANEL], panel * PANEL);
                let from = numbers.get(2 * first * columns + column..).unwrap_or_default();
                let shape = [steps - 2 * first, columns];
                pack_panel(from, shape, PANEL.min(columns - column), room);
                room
            }
        }
    }
}

/// `y [m, n] = onto + left · right`, in tiles that share nothing.
fn multiply(
    cpu: &Cpu,
    [m, n, pairs]: [usize; 3],
    left: &[u32],
    right: Right,
    onto: &Accumulate<CpuBuf>,
    y: &mut [f32],
) {
    assert_eq!(y.len(), m * n, "one element for each row and column");
    let panels = n.div_ceil(PANEL);
    let width = (panels / (8 * cpu.threads())).clamp(1, 8);
    let across = panels.div_ceil(width);
    // Few enough that every worker has three tiles, and enough that a tile reuses what it packs.
    let down = (3 * cpu.threads()).div_ceil(across.max(1));
    let tall = m.div_ceil(down).clamp(LEAST, TALL);
    let height = m.div_ceil(m.div_ceil(tall).max(1)).next_multiple_of(ROWS).max(ROWS);
    let y = Shared::new(y);
    cpu.for_tasks(m.div_ceil(height) * across, |task| {
        let (row, panel) = ((task / across) * height, (task % across) * width);
        let tile = Tile {
            rows: row..m.min(row + height),
            panels: panel..panels.min(panel + width),
            m,
            n,
            pairs,
        };
        tile.multiply(left, right, onto, y);
    });
}

/// A part of a result that one task computes.
struct Tile {
    rows: std::ops::Range<usize>,
    panels: std::ops::Range<usize>,
    m: usize,
    n: usize,
    pairs: usize,
}

impl Tile {
    #[expect(
        clippy::large_stack_arrays,
        reason = "within a worker's stack; from the heap it would be mapped anew for each tile"
    )]
    fn multiply(self, left: &[u32], right: Right, onto: &Accumulate<CpuBuf>, y: Shared<'_>) {
        let Self { rows, panels, m, n, pairs } = self;
        let mut room = [0_u32; CHAIN * PANEL];
        for first in (0..pairs.max(1)).step_by(CHAIN) {
            let steps = CHAIN.min(pairs - first);
            for panel in panels.clone() {
                let column = panel * PANEL;
                let width = PANEL.min(n - column);
                let w = right.part(panel, first, steps, &mut room);
                for row in rows.clone().step_by(ROWS) {
                    let height = ROWS.min(m - row);
                    if let (Accumulate::Bias(bias), 0) = (onto, first) {
                        for row in row..row + height {
                            // SAFETY: tiles are disjoint.
                            unsafe { y.part(row * n + column, width) }
                                .copy_from_slice(bias.part(column, width).read());
                        }
                    }
                    let x = &left[row * pairs + first * height..][..steps * height];
                    let add =
                        first > 0 || matches!(onto, Accumulate::Existing | Accumulate::Bias(_));
                    let to = y.tile(row * n + column, height, n, width);
                    block(height, x, w, add, Output { to, stride: n, width });
                }
            }
        }
    }
}

/// Where the sums of a block go: rows `stride` apart, `width` columns of each.
#[derive(Clone, Copy)]
struct Output {
    to: *mut f32,
    stride: usize,
    width: usize,
}

/// Part of a chain for up to [`ROWS`] rows and a panel.
fn block(height: usize, x: &[u32], w: &[u32], add: bool, out: Output) {
    macro_rules! by_height {
        ($($rows:literal)+) => {
            match height {
                // SAFETY: a device that multiplies bf16 is made only where the instructions were detected; the
                // output is part of a slice by `Shared::tile`, and no other task writes it.
                $($rows => unsafe { sums::<$rows>(x, w, add, out) },)+
                _ => unreachable!("a block has 1 to 12 rows"),
            }
        };
    }
    by_height!(1 2 3 4 5 6 7 8 9 10 11 12);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bf16")]
fn sums<const R: usize>(x: &[u32], w: &[u32], add: bool, out: Output) {
    use std::arch::x86_64::{
        __m512bh, __m512i, _MM_HINT_T0, _mm_prefetch, _mm512_add_ps, _mm512_dpbf16_ps,
        _mm512_loadu_si512, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_set1_epi32,
        _mm512_setzero_ps,
    };
    // SAFETY: both are 512 bits.
    let pairs = |it: __m512i| unsafe { std::mem::transmute::<__m512i, __m512bh>(it) };
    let mut sums = [[_mm512_setzero_ps(); 2]; R];
    for (x, w) in x.as_chunks::<R>().0.iter().zip(w.as_chunks::<PANEL>().0) {
        for at in [0, WIDTH] {
            _mm_prefetch::<_MM_HINT_T0>(w.as_ptr().wrapping_add(AHEAD * PANEL + at).cast());
        }
        // SAFETY: the two halves of 32 words.
        let w =
            [0, WIDTH].map(|at| pairs(unsafe { _mm512_loadu_si512(w.as_ptr().add(at).cast()) }));
        for r in 0..R {
            let factor = pairs(_mm512_set1_epi32(x[r] as i32));
            sums[r][0] = _mm512_dpbf16_ps(sums[r][0], factor, w[0]);
            sums[r][1] = _mm512_dpbf16_ps(sums[r][1], factor, w[1]);
        }
    }
    let masks =
        [0, WIDTH].map(|at| ((1_u32 << out.width.saturating_sub(at).min(WIDTH)) - 1) as u16);
    for (r, sums) in sums.iter().enumerate() {
        for (half, (sum, mask)) in sums.iter().zip(masks).enumerate() {
            let to = out.to.wrapping_add(r * out.stride + half * WIDTH);
            // SAFETY: the mask leaves out elements beyond the width.
            unsafe {
                let sum =
                    if add { _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to), *sum) } else { *sum };
                _mm512_mask_storeu_ps(to, mask, sum);
            }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn sums<const R: usize>(_: &[u32], _: &[u32], _: bool, _: Output) {
    unreachable!("a device that multiplies bf16 is made only where the instructions are")
}

/// Runs `work` on room for the words of a left factor.
fn with_left<R>(cpu: &Cpu, words: usize, work: impl FnOnce(&mut [u32]) -> R) -> R {
    if words <= SMALL {
        return work(&mut vec![0; words]);
    }
    cpu.with_copy(words, |room| work(bytemuck::cast_slice_mut(room)))
}

/// `x [rows, steps]` as the left factor of a product.
fn pack_rows(cpu: &Cpu, x: &[f32], [rows, steps]: [usize; 2], left: &mut [u32]) {
    let left: Shared<u32> = Shared::new(bytemuck::cast_slice_mut(left));
    cpu.for_tasks(rows.div_ceil(ROWS), |block| {
        let first = block * ROWS;
        let height = ROWS.min(rows - first);
        // SAFETY: blocks are disjoint.
        let to = unsafe { left.part(first * pairs(steps), height * pairs(steps)) };
        pack_block(&x[first * steps..][..height * steps], steps, bytemuck::cast_slice_mut(to));
    });
}

kernel! {
    fn pack_block<V>(x: &[f32], steps: usize, to: &mut [u32]) {
        let height = x.len() / steps;
        let mut words = [[0_u32; WIDTH]; ROWS];
        for (part, to) in to.chunks_mut(height * WIDTH).enumerate() {
            for (words, x) in words.iter_mut().zip(x.chunks_exact(steps)) {
                let x = &x[part * PANEL..];
                if let Some(x) = x.first_chunk::<PANEL>() {
                    *words = words_of(x);
                } else {
                    let mut padded = [0.0; PANEL];
                    padded[..x.len()].copy_from_slice(x);
                    *words = words_of(&padded);
                }
            }
            for (pair, to) in to.chunks_exact_mut(height).enumerate() {
                for (to, words) in to.iter_mut().zip(&words) {
                    *to = words[pair];
                }
            }
        }
    }
}

/// 32 steps as 16 pairs.
#[inline(always)]
fn words_of(x: &[f32; PANEL]) -> [u32; WIDTH] {
    let mut rounded = [0_u16; PANEL];
    for (to, x) in rounded.iter_mut().zip(x) {
        *to = nearest(*x) as u16;
    }
    let mut words = [0; WIDTH];
    for (i, word) in words.iter_mut().enumerate() {
        *word = u32::from(rounded[2 * i]) | u32::from(rounded[2 * i + 1]) << 16;
    }
    words
}

/// `xᵀ` of `x [steps, rows]` as the left factor of a product.
fn pack_columns(cpu: &Cpu, x: &[f32], [steps, rows]: [usize; 2], left: &mut [u32]) {
    /// Pairs of a task.
    const BAND: usize = 32;
    let all = pairs(steps);
    let left: Shared<u32> = Shared::new(bytemuck::cast_slice_mut(left));
    cpu.for_tasks(all.div_ceil(BAND), |band| {
        let first = band * BAND;
        let n = BAND.min(all - first);
        for row in (0..rows).step_by(ROWS) {
            let height = ROWS.min(rows - row);
            // SAFETY: bands of pairs are disjoint within each block.
            let to = unsafe { left.part(row * all + first * height, n * height) };
            let shape = [steps - 2 * first, rows];
            pack_pairs(&x[2 * first * rows + row..], shape, height, bytemuck::cast_slice_mut(to));
        }
    });
}

kernel! {
    /// Pairs of steps of `height` columns of numbers `[steps, columns]`.
    fn pack_pairs<V>(x: &[f32], shape: [usize; 2], height: usize, to: &mut [u32]) {
        let [steps, columns] = shape;
        for (pair, to) in to.chunks_exact_mut(height).enumerate() {
            let even = &x[2 * pair * columns..][..height];
            for (to, x) in to.iter_mut().zip(even) {
                *to = nearest(*x);
            }
            if 2 * pair + 1 < steps {
                let odd = &x[(2 * pair + 1) * columns..][..height];
                for (to, x) in to.iter_mut().zip(odd) {
                    *to |= nearest(*x) << 16;
                }
            }
        }
    }
}

kernel! {
    /// Pairs of steps of up to 32 columns of numbers `[steps, columns]`, as a panel.
    fn pack_panel<V>(x: &[f32], shape: [usize; 2], width: usize, to: &mut [u32]) {
        let [steps, columns] = shape;
        for (pair, to) in to.as_chunks_mut::<PANEL>().0.iter_mut().enumerate() {
            let mut both = [[0.0_f32; PANEL]; 2];
            for (step, row) in (2 * pair..steps.min(2 * pair + 2)).zip(&mut both) {
                let x = &x[step * columns..][..width];
                if let Some(x) = x.first_chunk::<PANEL>() {
                    *row = *x;
                } else {
                    row[..width].copy_from_slice(x);
                }
            }
            for i in 0..PANEL {
                to[i] = nearest(both[0][i]) | nearest(both[1][i]) << 16;
            }
        }
    }
}

kernel! {
    /// Of packed weights, 16 pairs of inputs from `row` on, and the outputs of the panels from `panel` on: as a panel
    /// of 32 inputs whose pairs are of outputs.
    fn turn<V>(words: &[u32], pairs: usize, row: usize, panel: usize, to: &mut [u32]) {
        let rows = WIDTH.min(pairs - row);
        for (i, to) in to.chunks_mut(WIDTH * PANEL).enumerate() {
            let from = &words[((panel + i) * pairs + row) * PANEL..][..rows * PANEL];
            // Two columns of two steps are 64 bits, which change places as a whole.
            let mut square = [[0_u64; WIDTH]; WIDTH];
            for (r, from) in from.as_chunks::<PANEL>().0.iter().enumerate() {
                for (row, [a, b]) in square.iter_mut().zip(from.as_chunks().0) {
                    let (low, high) = (a & 0xffff | b << 16, a >> 16 | b & 0xffff_0000);
                    row[r] = u64::from(low) | u64::from(high) << 32;
                }
            }
            for (to, both) in to.as_chunks_mut().0.iter_mut().zip(square.as_flattened()) {
                *to = [*both as u32, (*both >> 32) as u32];
            }
        }
    }
}

#[cfg(test)]
mod tests;
