//! Products of f32 factors, cut into tasks.
//!
//! Bits: the order of every sum is that of [`super::kernel`], whatever the tasks are.

use super::kernel::{GROUP, Left, PANEL, Product, Right, product};
use crate::cpu::buffer::CpuBuf;
use crate::cpu::pool::{Cpu, Shared};
use crate::lanes::WIDTH;
use crate::shapes::{Accumulate, MatShape};

/// `y = onto + x · w`, `right` being w.
pub(in crate::cpu) fn forward(
    cpu: &Cpu,
    MatShape { rows, inputs, outputs }: MatShape,
    x: &[f32],
    right: Right,
    onto: &Accumulate<CpuBuf>,
    y: &mut [f32],
) {
    assert_eq!(x.len(), rows * inputs, "x is [rows, inputs]");
    let left = Left { data: x, row_stride: inputs, step_stride: 1 };
    multiply(cpu, [rows, outputs, inputs], left, right, onto, y);
}

/// `dw = onto + xᵀ · dy`.
pub(in crate::cpu) fn weight_grad(
    cpu: &Cpu,
    shape: MatShape,
    x: &[f32],
    dy: &[f32],
    onto: &Accumulate<CpuBuf>,
    dw: &mut [f32],
) {
    let MatShape { rows, inputs, outputs } = shape;
    assert_eq!(x.len(), rows * inputs, "x is [rows, inputs]");
    assert_eq!(dy.len(), rows * outputs, "dy is [rows, outputs]");
    let left = Left { data: x, row_stride: 1, step_stride: inputs };
    let right = Right::Numbers { data: dy, step_stride: outputs, column_stride: 1 };
    multiply(cpu, [inputs, outputs, rows], left, right, onto, dw);
}

/// `y [m, n] = onto + left · right`, in tiles that share nothing.
fn multiply(
    cpu: &Cpu,
    [m, n, k]: [usize; 3],
    left: Left,
    right: Right,
    onto: &Accumulate<CpuBuf>,
    y: &mut [f32],
) {
    /// Fewer rows do not pay for packing a group of columns once more.
    const LEAST: usize = 96;
    // Columns that are whole panels of every kernel.
    let strip = if matches!(right, Right::Panels { .. }) { PANEL } else { 48 };
    assert_eq!(y.len(), m * n, "one element for each row and column");
    // For few rows memory is read in long pieces, whose sums stay in a cache. Of many rows, what a task packs is packed
    // again by its neighbours: few tasks are best, in parts of the rows that the threads share evenly.
    let in_place = matches!(right, Right::Numbers { column_stride: 1, .. });
    let (of_each, most) = match m {
        ..=16 if in_place && left.step_stride == 1 => (1, 8 * GROUP),
        ..LEAST => (4, GROUP),
        _ => (2, GROUP),
    };
    let (threads, groups) = (cpu.threads(), n.div_ceil(most).max(1));
    let tasks = of_each * threads;
    let parts = (m / LEAST).clamp(1, tasks.div_ceil(groups).next_multiple_of(threads));
    let is_even = |parts: &usize| threads.is_multiple_of(*parts) || parts.is_multiple_of(threads);
    let down = (1..=parts).rev().find(is_even).unwrap_or(1);
    let across = tasks.div_ceil(down).min(n.div_ceil(strip)).max(groups);
    let height = m.div_ceil(down).next_multiple_of(WIDTH).max(1);
    let width = n.div_ceil(across).next_multiple_of(strip);
    let y = Shared::new(y);
    cpu.for_tasks(m.div_ceil(height) * across, |task| {
        let (row, column) = ((task / across) * height, (task % across) * width);
        if column >= n {
            return;
        }
        let (height, width) = (height.min(m - row), width.min(n - column));
        if let Accumulate::Bias(bias) = onto {
            for row in row..row + height {
                // SAFETY: tiles are disjoint.
                unsafe { y.part(row * n + column, width) }
                    .copy_from_slice(bias.part(column, width).read());
            }
        }
        let left =
            Left { data: left.data.get(row * left.row_stride..).unwrap_or_default(), ..left };
        let add = matches!(onto, Accumulate::Existing | Accumulate::Bias(_));
        let dst = y.tile(row * n + column, height, n, width);
        product(Product { m: height, n: width, k, left, right, column, add }, dst, n);
    });
}
