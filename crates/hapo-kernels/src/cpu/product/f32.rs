//! Matrix products.
//!
//! Purpose: every output element is one chain of multiply-adds over the inner dimension, broken every
//! 512 steps, whatever the number of rows: `gemm`'s micro-kernel does exactly that when it is given at
//! most 512 steps at a time and at least two rows; fewer rows go through an own kernel with the same
//! chain. So the bits of a row do not depend on the other rows. Tiles are cut by the shape alone: `gemm` chooses its own
//! blocks by a tile's size, and with tiles of other heights a recorded run had other bits.
//!
//! Price: results are read back and added to once per 512 steps, which `gemm` would do as well.

use crate::cpu::buffer::CpuBuf;
use crate::cpu::pool::Cpu;
use crate::cpu::share::Shared;
use crate::isa::{Isa, kernel};
use crate::lanes::{Lanes, WIDTH, wide_kernel};
use crate::shapes::{Accumulate, MatShape};

/// Steps of one chain of multiply-adds.
pub(in crate::cpu) const CHAIN: usize = 512;
/// Fewer rows than this take the own kernel.
const FEW_ROWS: usize = 4;
/// Fewer steps or columns than this, as products with an adapter of rank 1 or 2 have, are special cases of `gemm`
/// with other chains: they take the own kernel too.
const LEAST_STEPS: usize = 3;
/// Columns an own kernel holds in registers.
const PANEL: usize = 64;

/// The initial value of a product.
#[derive(Clone, Copy)]
pub(in crate::cpu) enum Start<'a> {
    Nothing,
    Existing,
    Bias(&'a [f32]),
}

impl<'a> Start<'a> {
    pub(in crate::cpu) fn of(onto: &Accumulate<'a, CpuBuf>) -> Self {
        match onto {
            Accumulate::Nothing => Start::Nothing,
            Accumulate::Existing => Start::Existing,
            Accumulate::Bias(span) => Start::Bias(span.read()),
        }
    }
}

/// `y = start + x · w`.
pub(in crate::cpu) fn forward(
    cpu: &Cpu,
    shape: MatShape,
    x: &[f32],
    w: &[f32],
    start: Start,
    y: &mut [f32],
) {
    let MatShape { rows, inputs, outputs } = shape;
    assert_eq!(x.len(), rows * inputs, "x is [rows, inputs]");
    assert_eq!(w.len(), inputs * outputs, "w is [inputs, outputs]");
    assert_eq!(y.len(), rows * outputs, "y is [rows, outputs]");
    let y = Shared::new(y);
    for_tiles(cpu, [rows, outputs], TILE, |tile| {
        let start = match start {
            Start::Bias(bias) => {
                for row in tile.rows() {
                    // SAFETY: tiles are disjoint.
                    unsafe { y.part(row * outputs + tile.column, tile.width) }
                        .copy_from_slice(&bias[tile.column..tile.column + tile.width]);
                }
                true
            }
            Start::Existing => true,
            Start::Nothing => false,
        };
        let x = &x[tile.row * inputs..(tile.row + tile.height) * inputs];
        let dst = y.tile(tile.row * outputs + tile.column, tile.height, outputs, tile.width);
        // The chain of one row must not depend on the others, so `gemm`'s special cases for one row
        // are not taken.
        if rows < FEW_ROWS || inputs < LEAST_STEPS || outputs < LEAST_STEPS {
            for first in (0..tile.height).step_by(FEW_ROWS) {
                let height = FEW_ROWS.min(tile.height - first);
                // SAFETY: tiles are disjoint; one row of the tile at a time.
                let mut y_rows: Vec<&mut [f32]> = (first..first + height)
                    .map(|r| unsafe { y.part((tile.row + r) * outputs + tile.column, tile.width) })
                    .collect();
                few_rows(
                    &x[first * inputs..(first + height) * inputs],
                    inputs,
                    &w[tile.column..],
                    outputs,
                    start,
                    &mut y_rows,
                );
            }
        } else {
            product(
                Product {
                    m: tile.height,
                    n: tile.width,
                    k: inputs,
                    left: Left { data: x, row_stride: inputs, step_stride: 1 },
                    right: Right {
                        data: &w[tile.column..],
                        step_stride: outputs,
                        column_stride: 1,
                    },
                    add: start,
                },
                dst,
                outputs,
            );
        }
    });
}

/// Rows from which on [`input_grad`] copies the weights.
const MANY: usize = 512;

/// Numbers that [`input_grad`] copies: the weights for many rows, the result for few.
pub(in crate::cpu) fn copied(shape: MatShape) -> usize {
    let MatShape { rows, inputs, outputs } = shape;
    inputs * if rows >= MANY { outputs } else { rows }
}

/// `dx = start + dy · wᵀ`.
///
/// `gemm` would pack the transposed weights anew for every tile. Many rows share one transposed copy
/// instead; for few rows the roles are swapped, so that the rows are packed and not the weights.
pub(in crate::cpu) fn input_grad(
    cpu: &Cpu,
    shape: MatShape,
    dy: &[f32],
    w: &[f32],
    start: Start,
    dx: &mut [f32],
) {
    let MatShape { rows, inputs, outputs } = shape;
    assert_eq!(dy.len(), rows * outputs, "dy is [rows, outputs]");
    assert_eq!(w.len(), inputs * outputs, "w is [inputs, outputs]");
    assert_eq!(dx.len(), rows * inputs, "dx is [rows, inputs]");
    let add = matches!(start, Start::Existing);
    if rows >= MANY {
        cpu.with_copy(copied(shape), |wt| {
            transpose(cpu, w, [inputs, outputs], false, wt);
            let wt = &*wt;
            let dx = Shared::new(dx);
            for_tiles(cpu, [rows, inputs], TILE, |tile| {
                let dst = dx.tile(tile.row * inputs + tile.column, tile.height, inputs, tile.width);
                product(
                    Product {
                        m: tile.height,
                        n: tile.width,
                        k: outputs,
                        left: Left {
                            data: &dy[tile.row * outputs..],
                            row_stride: outputs,
                            step_stride: 1,
                        },
                        right: Right {
                            data: &wt[tile.column..],
                            step_stride: inputs,
                            column_stride: 1,
                        },
                        add,
                    },
                    dst,
                    inputs,
                );
            });
        });
        return;
    }
    cpu.with_copy(copied(shape), |dxt| {
        let shared = Shared::new(dxt);
        for_tiles(cpu, [inputs, rows], TILE, |tile| {
            let dst = shared.tile(tile.row * rows + tile.column, tile.height, rows, tile.width);
            product(
                Product {
                    m: tile.height,
                    n: tile.width,
                    k: outputs,
                    left: Left {
                        data: &w[tile.row * outputs..],
                        row_stride: outputs,
                        step_stride: 1,
                    },
                    right: Right {
                        data: &dy[tile.column * outputs..],
                        step_stride: 1,
                        column_stride: outputs,
                    },
                    add: false,
                },
                dst,
                rows,
            );
        });
        transpose(cpu, dxt, [inputs, rows], add, dx);
    });
}

/// `dw = start + xᵀ · dy`.
pub(in crate::cpu) fn weight_grad(
    cpu: &Cpu,
    shape: MatShape,
    x: &[f32],
    dy: &[f32],
    start: Start,
    dw: &mut [f32],
) {
    let MatShape { rows, inputs, outputs } = shape;
    assert_eq!(x.len(), rows * inputs, "x is [rows, inputs]");
    assert_eq!(dy.len(), rows * outputs, "dy is [rows, outputs]");
    assert_eq!(dw.len(), inputs * outputs, "dw is [inputs, outputs]");
    let add = matches!(start, Start::Existing);
    let dw = Shared::new(dw);
    for_tiles(cpu, [inputs, outputs], weight_tile(rows), |tile| {
        let dst = dw.tile(tile.row * outputs + tile.column, tile.height, outputs, tile.width);
        product(
            Product {
                m: tile.height,
                n: tile.width,
                k: rows,
                left: Left { data: &x[tile.row..], row_stride: 1, step_stride: inputs },
                right: Right { data: &dy[tile.column..], step_stride: outputs, column_stride: 1 },
                add,
            },
            dst,
            outputs,
        );
    });
}

/// The left factor `[m, k]`.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Left<'a> {
    pub(in crate::cpu) data: &'a [f32],
    pub(in crate::cpu) row_stride: usize,
    pub(in crate::cpu) step_stride: usize,
}

/// The right factor `[k, n]`.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Right<'a> {
    pub(in crate::cpu) data: &'a [f32],
    pub(in crate::cpu) step_stride: usize,
    pub(in crate::cpu) column_stride: usize,
}

/// One product on the calling thread.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Product<'a> {
    pub(in crate::cpu) m: usize,
    pub(in crate::cpu) n: usize,
    pub(in crate::cpu) k: usize,
    pub(in crate::cpu) left: Left<'a>,
    pub(in crate::cpu) right: Right<'a>,
    pub(in crate::cpu) add: bool,
}

/// Writes `[m, n]` rows `stride` apart from `dst` on; `dst` comes from [`Shared::tile`] or a slice of
/// that extent.
pub(in crate::cpu) fn product(p: Product, dst: *mut f32, stride: usize) {
    let Product { m, n, k, left, right, .. } = p;
    if m == 0 || n == 0 {
        return;
    }
    if k > 0 {
        let left_end = (m - 1) * left.row_stride + (k - 1) * left.step_stride;
        let right_end = (k - 1) * right.step_stride + (n - 1) * right.column_stride;
        assert!(left_end < left.data.len(), "left factor inside its slice");
        assert!(right_end < right.data.len(), "right factor inside its slice");
    }
    let mut add = p.add;
    let mut first = 0;
    if !Isa::current().fused() {
        // `gemm` chooses its instructions by itself; the portable path has to be native.
        plain_product(p, dst, stride);
        return;
    }
    loop {
        let steps = CHAIN.min(k - first);
        // SAFETY: both factors are in bounds by the assertions above, the destination by the contract
        // of this function; strides are those of these slices.
        unsafe {
            fused_product(
                [m, n, steps],
                (dst, stride),
                add,
                (
                    left.data.as_ptr().add(first * left.step_stride),
                    left.step_stride,
                    left.row_stride,
                ),
                (
                    right.data.as_ptr().add(first * right.step_stride),
                    right.column_stride,
                    right.step_stride,
                ),
            );
        }
        add = true;
        first += steps;
        if first >= k {
            return;
        }
    }
}

/// `dst [m, n] (+)= left [m, k] × right [k, n]` in one chain per element; factors are `(start, stride of
/// columns, stride of rows)`.
///
/// The microkernels prefer columns, so a destination of rows is computed as its transpose. The crate
/// `gemm` does the same for every number type, and compiles the kernels of all of them.
///
/// # Safety
/// Every element of the three matrices lies inside its allocation.
unsafe fn fused_product(
    [m, n, k]: [usize; 3],
    (dst, stride): (*mut f32, usize),
    add: bool,
    left: (*const f32, usize, usize),
    right: (*const f32, usize, usize),
) {
    let transposed = |(start, columns, rows)| (start, rows, columns);
    let ([m, n], (dst_columns, dst_rows), left, right) = if stride > 1 {
        ([n, m], (stride, 1), transposed(right), transposed(left))
    } else {
        ([m, n], (1, stride), left, right)
    };
    // SAFETY: the caller's.
    unsafe {
        gemm_f32::gemm::f32::get_gemm_fn()(
            m,
            n,
            k,
            dst,
            dst_columns as isize,
            dst_rows as isize,
            add,
            left.0,
            left.1 as isize,
            left.2 as isize,
            right.0,
            right.1 as isize,
            right.2 as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            gemm_common::Parallelism::None,
        );
    }
}

/// [`product`] without fused multiply-adds, in the same order.
fn plain_product(p: Product, dst: *mut f32, stride: usize) {
    let Product { m, n, k, left, right, .. } = p;
    let mut chain = vec![0.0_f32; n];
    for row in 0..m {
        // SAFETY: the extent of the destination is the contract of `product`.
        let out = unsafe { std::slice::from_raw_parts_mut(dst.add(row * stride), n) };
        let mut add = p.add;
        for first in (0..k.max(1)).step_by(CHAIN) {
            chain.fill(0.0);
            for step in first..k.min(first + CHAIN) {
                let factor = left.data[row * left.row_stride + step * left.step_stride];
                let weights = &right.data[step * right.step_stride..];
                let weights = weights.iter().step_by(right.column_stride);
                for (c, &weight) in chain.iter_mut().zip(weights) {
                    *c += factor * weight;
                }
            }
            for (o, &c) in out.iter_mut().zip(&chain) {
                *o = if add { *o + c } else { c };
            }
            add = true;
        }
    }
}

/// A rectangle of the result.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Tile {
    pub(in crate::cpu) row: usize,
    pub(in crate::cpu) height: usize,
    pub(in crate::cpu) column: usize,
    pub(in crate::cpu) width: usize,
}

impl Tile {
    pub(in crate::cpu) fn rows(self) -> std::ops::Range<usize> {
        self.row..self.row + self.height
    }
}

/// Height and width of the tiles of a product: 64 columns of 512 steps stay close to the CPU
/// while the rows pass by. Measured, for eight rows as for six thousand.
pub(in crate::cpu) const TILE: [usize; 2] = [768, PANEL];

/// The same for the gradient of weights, by the number of rows summed over: few rows pack once for a
/// whole column, many are read in place (`gemm` packs beyond 48 times 128).
fn weight_tile(rows: usize) -> [usize; 2] {
    if rows < 1024 { [448, 64] } else { [48, 128] }
}

/// Runs `work` on tiles of the result of at most this height and width, heights balanced.
pub(in crate::cpu) fn for_tiles(
    cpu: &Cpu,
    [m, n]: [usize; 2],
    [height, width]: [usize; 2],
    work: impl Fn(Tile) + Sync + Send,
) {
    let down = m.div_ceil(height).max(1);
    let height = m.div_ceil(down).next_multiple_of(6).max(1);
    let (down, across) = (m.div_ceil(height), n.div_ceil(width));
    cpu.for_tasks(down * across, |task| {
        let (row, column) = ((task / across) * height, (task % across) * width);
        work(Tile { row, height: height.min(m - row), column, width: width.min(n - column) });
    });
}

/// `[rows, columns]` to `[columns, rows]`, or added to it.
fn transpose(cpu: &Cpu, x: &[f32], [rows, columns]: [usize; 2], add: bool, y: &mut [f32]) {
    const BAND: usize = 32;
    let y = Shared::new(y);
    cpu.for_tasks(columns.div_ceil(BAND), |task| {
        let first = task * BAND;
        let n = BAND.min(columns - first);
        // SAFETY: bands of output rows are disjoint.
        let y = unsafe { y.part(first * rows, n * rows) };
        transpose_band(x, [rows, columns], first, add, y);
    });
}

kernel! {
    pub(in crate::cpu) fn transpose_band<FMA>(x: &[f32], shape: [usize; 2], first: usize, add: bool, y: &mut [f32]) {
        const BLOCK: usize = 16;
        let [rows, columns] = shape;
        let n = y.len() / rows;
        for block in (0..rows).step_by(BLOCK) {
            for c0 in (0..n).step_by(BLOCK) {
                let at = block * columns + first + c0;
                if block + BLOCK <= rows && c0 + BLOCK <= n {
                    let mut square = [[0.0_f32; BLOCK]; BLOCK];
                    for r in 0..BLOCK {
                        let row: &[f32; BLOCK] = x[at + r * columns..][..BLOCK]
                            .try_into()
                            .expect("a row of a square");
                        for c in 0..BLOCK {
                            square[c][r] = row[c];
                        }
                    }
                    for (c, square) in square.iter().enumerate() {
                        let y = &mut y[(c0 + c) * rows + block..][..BLOCK];
                        for (y, &v) in y.iter_mut().zip(square) {
                            *y = if add { *y + v } else { v };
                        }
                    }
                } else {
                    for c in c0..(c0 + BLOCK).min(n) {
                        for r in block..(block + BLOCK).min(rows) {
                            let v = x[r * columns + first + c];
                            let y = &mut y[c * rows + r];
                            *y = if add { *y + v } else { v };
                        }
                    }
                }
            }
        }
    }
}

/// Runs `work` on a buffer that is kept between calls, one for all threads. It is taken out while in use: what asks
/// Up to four rows of a product, the weights streamed once.
fn few_rows(x: &[f32], inputs: usize, w: &[f32], stride: usize, add: bool, y: &mut [&mut [f32]]) {
    match y.len() {
        1 => rows_kernel::<1>(x, inputs, w, stride, add, y),
        2 => rows_kernel::<2>(x, inputs, w, stride, add, y),
        3 => rows_kernel::<3>(x, inputs, w, stride, add, y),
        _ => rows_kernel::<4>(x, inputs, w, stride, add, y),
    }
}

wide_kernel! {
    fn rows_kernel<V, const R: usize>(
        x: &[f32],
        inputs: usize,
        w: &[f32],
        stride: usize,
        add: bool,
        y: &mut [&mut [f32]],
    ) = rows_body
}

#[inline(always)]
fn rows_body<V: Lanes, const R: usize>(
    x: &[f32],
    inputs: usize,
    w: &[f32],
    stride: usize,
    add: bool,
    y: &mut [&mut [f32]],
) {
    const N: usize = PANEL / WIDTH;
    let width = y[0].len();
    let mut add = add;
    let mut first = 0;
    loop {
        let steps = CHAIN.min(inputs - first);
        let mut column = 0;
        while column < width {
            column += if width - column >= PANEL {
                rows_panel::<V, R, N>(x, inputs, w, stride, first..first + steps, column, add, y)
            } else {
                rows_panel::<V, R, 1>(x, inputs, w, stride, first..first + steps, column, add, y)
            };
        }
        add = true;
        first += steps;
        if first >= inputs {
            return;
        }
    }
}

/// Up to `N · 16` columns of `R` rows, one chain; returns the number of columns.
#[inline(always)]
fn rows_panel<V: Lanes, const R: usize, const N: usize>(
    x: &[f32],
    inputs: usize,
    w: &[f32],
    stride: usize,
    steps: std::ops::Range<usize>,
    column: usize,
    add: bool,
    y: &mut [&mut [f32]],
) -> usize {
    let columns = (N * WIDTH).min(y[0].len() - column);
    let mut sums = [[V::splat(0.0); N]; R];
    for step in steps {
        let weights = &w[step * stride + column..][..columns];
        let weights: [V; N] = std::array::from_fn(|n| V::load_part(&weights[n * WIDTH..]));
        for r in 0..R {
            let factor = V::splat(x[r * inputs + step]);
            for n in 0..N {
                sums[r][n] = sums[r][n].add_product(factor, weights[n]);
            }
        }
    }
    for r in 0..R {
        for n in 0..N {
            let end = columns.min((n + 1) * WIDTH);
            let out = &mut y[r][column + n * WIDTH..column + end];
            let sum = if add { V::load_part(out).add(sums[r][n]) } else { sums[r][n] };
            sum.store_part(out);
        }
    }
    columns
}
