//! RMS norm, column sums and sums of squares.
//!
//! Sums over a row run in sixteen lanes and a fixed tree; sums over rows run within blocks of 64 rows and then over blocks
//! in order. Sums of squares are in f64, in an order fixed by the length.

use std::borrow::Cow;

use super::convert::join;
use super::pool::{Cpu, Shared};
use crate::device::{RmsNorm, RmsNormGrad};
use crate::lanes::{Lanes, fma, kernel};
use crate::row::{LANES, reduce};
use crate::shapes::Accumulate;

const ROWS: usize = 64;
/// Elements of a task of squares.
const SQUARES: usize = 64 * 1024;

/// What a norm multiplies by, `offset` + w.
fn factors(offset: f32, w: &[f32]) -> Cow<'_, [f32]> {
    if offset == 0.0 { w.into() } else { w.iter().map(|w| offset + w).collect() }
}

pub(super) fn rms_norm(cpu: &Cpu, it: RmsNorm<Cpu>) {
    let RmsNorm { eps, offset, x, w, y, inverse_rms, residual } = it;
    let (x, w, y, inverse_rms) =
        (x.read(), &*factors(offset, w.read()), y.write(), inverse_rms.write());
    let (width, rows) = (w.len(), inverse_rms.len());
    assert!(x.len() == rows * width && y.len() == rows * width, "x and y are [rows, width]");
    let (y, inverse) = (Shared::new(y), Shared::new(inverse_rms));
    let residual = residual.map(|r| {
        assert_eq!(r.len, rows * width, "residual is [rows, width]");
        Shared::new(r.write())
    });
    // Heads are narrow rows: more of them make a task.
    let block = ROWS * (512 / width.clamp(1, 512)).max(1);
    cpu.for_tasks(rows.div_ceil(block), |task| {
        let first = task * block;
        let n = block.min(rows - first);
        let x = &x[first * width..(first + n) * width];
        // SAFETY: blocks of rows are disjoint in each slice.
        let (y, inverse) = unsafe { (y.part(first * width, n * width), inverse.part(first, n)) };
        norm_rows(eps, x, w, y, inverse);
        if let Some(residual) = &residual {
            // SAFETY: as above.
            unsafe { residual.part(first * width, n * width) }.copy_from_slice(x);
        }
    });
}

pub(super) fn rms_norm_grad(cpu: &Cpu, it: RmsNormGrad<Cpu>) {
    let RmsNormGrad { offset, x, w, inverse_rms, dy, onto, dx, dw } = it;
    let (x, w, inverse_rms, dy) =
        (x.read(), &*factors(offset, w.read()), inverse_rms.read(), dy.read());
    let (dx, dw, add) = (dx.write(), dw.write(), matches!(onto, Accumulate::Existing));
    let (width, rows) = (w.len(), inverse_rms.len());
    assert!(
        x.len() == rows * width && dy.len() == x.len() && dx.len() == x.len(),
        "x, dy and dx are [rows, width]"
    );
    assert_eq!(dw.len(), width, "dw is [width]");
    let dx = Shared::new(dx);
    let block = ROWS * (512 / width.clamp(1, 512)).max(1);
    let parts = cpu.map_tasks(rows.div_ceil(block), |task| {
        let first = task * block;
        let n = block.min(rows - first);
        let range = first * width..(first + n) * width;
        // SAFETY: blocks of rows are disjoint.
        let dx = unsafe { dx.part(first * width, n * width) };
        let mut part = vec![0.0; width];
        let (x, dy, inverse) = (&x[range.clone()], &dy[range], &inverse_rms[first..first + n]);
        norm_rows_grad(x, w, inverse, dy, add, dx, &mut part);
        part
    });
    add_in_order(&parts, dw);
}

pub(super) fn add_column_sums(cpu: &Cpu, width: usize, dy: &[f32], out: &mut [f32]) {
    const BLOCK: usize = 256;
    assert!(
        out.len() == width && dy.len().is_multiple_of(width),
        "dy is [rows, width], out [width]"
    );
    let rows = dy.len() / width;
    let parts = cpu.map_tasks(rows.div_ceil(BLOCK), |task| {
        let first = task * BLOCK;
        let n = BLOCK.min(rows - first);
        let mut part = vec![0.0; width];
        column_sums(&dy[first * width..(first + n) * width], &mut part);
        part
    });
    add_in_order(&parts, out);
}

fn add_in_order(parts: &[Vec<f32>], out: &mut [f32]) {
    for part in parts {
        for (o, &p) in out.iter_mut().zip(part) {
            *o += p;
        }
    }
}

kernel! {
    fn column_sums<V>(dy: &[f32], out: &mut [f32]) {
        for row in dy.chunks_exact(out.len()) {
            for (o, &d) in out.iter_mut().zip(row) {
                *o += d;
            }
        }
    }
}

/// Σ aᵢ·bᵢ in lanes.
#[inline(always)]
fn dot<V: Lanes>(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    let (a_chunks, a_rest) = a.as_chunks::<LANES>();
    let (b_chunks, b_rest) = b.as_chunks::<LANES>();
    for (p, q) in a_chunks.iter().zip(b_chunks) {
        for i in 0..LANES {
            lanes[i] = fma::<V>(p[i], q[i], lanes[i]);
        }
    }
    for (i, (&p, &q)) in a_rest.iter().zip(b_rest).enumerate() {
        lanes[i] = fma::<V>(p, q, lanes[i]);
    }
    reduce(lanes)
}

kernel! {
    fn norm_rows<V>(eps: f32, x: &[f32], w: &[f32], y: &mut [f32], inverse: &mut [f32]) {
        let width = w.len();
        for ((x, y), inverse) in x
            .chunks_exact(width)
            .zip(y.chunks_exact_mut(width))
            .zip(inverse)
        {
            let r = 1.0 / (dot::<V>(x, x) / width as f32 + eps).sqrt();
            *inverse = r;
            for ((y, &x), &w) in y.iter_mut().zip(x).zip(w) {
                *y = x * r * w;
            }
        }
    }
}

kernel! {
    fn norm_rows_grad<V>(
        x: &[f32],
        w: &[f32],
        inverse: &[f32],
        dy: &[f32],
        add: bool,
        dx: &mut [f32],
        dw: &mut [f32],
    ) {
        let width = w.len();
        let w = &w[..width];
        let dw = &mut dw[..width];
        for (((x, dy), dx), &r) in x
            .chunks_exact(width)
            .zip(dy.chunks_exact(width))
            .zip(dx.chunks_exact_mut(width))
            .zip(inverse)
        {
            // dx = r·(w⊙dy) − x·r³·mean(x⊙w⊙dy)
            let mut lanes = [0.0_f32; LANES];
            let (x_chunks, x_rest) = x.as_chunks::<LANES>();
            let (dy_chunks, dy_rest) = dy.as_chunks::<LANES>();
            let (w_chunks, w_rest) = w.as_chunks::<LANES>();
            for ((x, dy), w) in x_chunks.iter().zip(dy_chunks).zip(w_chunks) {
                for i in 0..LANES {
                    lanes[i] = fma::<V>(x[i], dy[i] * w[i], lanes[i]);
                }
            }
            for (i, ((&x, &dy), &w)) in x_rest.iter().zip(dy_rest).zip(w_rest).enumerate() {
                lanes[i] = fma::<V>(x, dy * w, lanes[i]);
            }
            let c = r * r * r * reduce(lanes) / width as f32;
            for ((((&x, &dy), &w), dw), dx) in x.iter().zip(dy).zip(w).zip(dw.iter_mut()).zip(dx) {
                let d = fma::<V>(r, dy * w, -(x * c));
                *dx = if add { *dx + d } else { d };
                *dw = fma::<V>(dy, x * r, *dw);
            }
        }
    }
}

/// Σ x²: lanes of 16 in blocks of 256, blocks in order.
pub(super) fn squared_norm(cpu: &Cpu, x: &[f32]) -> f64 {
    cpu.map_tasks(x.len().div_ceil(SQUARES), |task| {
        sum_of_squares(&x[task * SQUARES..((task + 1) * SQUARES).min(x.len())])
    })
    .into_iter()
    .sum()
}

kernel! {
    fn sum_of_squares<V>(x: &[f32]) -> f64 {
        let mut total = 0.0_f64;
        for block in x.chunks(256) {
            let mut lanes = [0.0_f32; LANES];
            let (chunks, rest) = block.as_chunks::<LANES>();
            for chunk in chunks {
                for i in 0..LANES {
                    lanes[i] = fma::<V>(chunk[i], chunk[i], lanes[i]);
                }
            }
            for (i, &v) in rest.iter().enumerate() {
                lanes[i] = fma::<V>(v, v, lanes[i]);
            }
            total += f64::from(reduce(lanes));
        }
        total
    }
}

/// Σ x² of a matrix that is split.
pub(super) fn squared_norm_split(cpu: &Cpu, words: &[f32], tails: &[f32]) -> f64 {
    assert_eq!(tails.len(), words.len(), "as many tails");
    cpu.map_tasks(words.len().div_ceil(SQUARES), |task| {
        let block = task * SQUARES..words.len().min((task + 1) * SQUARES);
        let (words, tails) = (&words[block.clone()], &tails[block]);
        sum_of_split_squares(bytemuck::cast_slice(words), bytemuck::cast_slice(tails))
    })
    .into_iter()
    .sum()
}

kernel! {
    fn sum_of_split_squares<V>(packed: &[u32], tails: &[u32]) -> f64 {
        const LANES: usize = 8;
        let mut sums = [0.0_f64; LANES];
        for (words, tails) in packed.chunks(LANES).zip(tails.chunks(LANES)) {
            for (sum, (word, tails)) in sums.iter_mut().zip(words.iter().zip(tails)) {
                let [even, odd] = join(*word, *tails).map(f64::from);
                *sum += even * even + odd * odd;
            }
        }
        sums.iter().sum()
    }
}
