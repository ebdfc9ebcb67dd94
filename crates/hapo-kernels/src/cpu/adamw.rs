//! The optimiser: one pass over the flat buffers.

use super::bf16::widen;
use super::moments::{Moments, Rounding, narrow};
use super::{Cpu, share::Shared};
use crate::device::{AdamW, AdamWFactors};
use crate::isa::{fma, kernel};
use crate::row::{LANES, reduce};

const BLOCK: usize = 64 * 1024;

pub(super) fn adamw(
    cpu: &Cpu,
    step: AdamW,
    gradient: &[f32],
    parameter: &mut [f32],
    moments: Moments,
) {
    let len = gradient.len();
    assert_eq!(parameter.len(), len, "parameters as long as the gradient");
    let (factors, p) = (step.factors(), Shared::new(parameter));
    let blocks = |task: usize| (task * BLOCK, BLOCK.min(len - task * BLOCK));
    match moments {
        Moments::F32(moments) => {
            let [m, v] = moments.map(Shared::new);
            cpu.for_tasks(len.div_ceil(BLOCK), |task| {
                let (first, n) = blocks(task);
                // SAFETY: blocks are disjoint, and the three slices are different ones.
                let (p, m, v) = unsafe { (p.part(first, n), m.part(first, n), v.part(first, n)) };
                update(factors, &gradient[first..first + n], p, m, v);
            });
        }
        Moments::Bf16 { moments, rounding } => {
            let [m, v] = moments.map(Shared::new);
            cpu.for_tasks(len.div_ceil(BLOCK), |task| {
                let (first, n) = blocks(task);
                // SAFETY: as above.
                let (p, m, v) = unsafe { (p.part(first, n), m.part(first, n), v.part(first, n)) };
                let gradient = &gradient[first..first + n];
                update_rounded(factors, rounding.from(first), gradient, p, m, v);
            });
        }
    }
}

/// Σ x² in f64: lanes of 16 in blocks of 256, blocks in order.
pub(super) fn squared_norm(cpu: &Cpu, x: &[f32]) -> f64 {
    cpu.map_tasks(x.len().div_ceil(BLOCK), |task| {
        sum_of_squares(&x[task * BLOCK..((task + 1) * BLOCK).min(x.len())])
    })
    .into_iter()
    .sum()
}

kernel! {
    fn update<FMA>(f: AdamWFactors, g: &[f32], p: &mut [f32], m: &mut [f32], v: &mut [f32]) {
        for (((&g, p), m), v) in g.iter().zip(p).zip(m).zip(v) {
            *p = updated::<FMA>(f, g, *p, m, v);
        }
    }
}

kernel! {
    fn update_rounded<FMA>(
        f: AdamWFactors,
        rounding: Rounding,
        g: &[f32],
        p: &mut [f32],
        m: &mut [u16],
        v: &mut [u16],
    ) {
        const PIECE: usize = 256;
        let (mut wide_m, mut wide_v) = ([0.0_f32; PIECE], [0.0_f32; PIECE]);
        let pieces = g.chunks(PIECE).zip(p.chunks_mut(PIECE));
        for (piece, ((g, p), (m, v))) in
            pieces.zip(m.chunks_mut(PIECE).zip(v.chunks_mut(PIECE))).enumerate()
        {
            widen(m, &mut wide_m);
            widen(v, &mut wide_v);
            for (((&g, p), m), v) in g.iter().zip(p).zip(&mut wide_m).zip(&mut wide_v) {
                *p = updated::<FMA>(f, g, *p, m, v);
            }
            narrow::<PIECE>(rounding.from(piece * PIECE), [&wide_m, &wide_v], [m, v]);
        }
    }
}

/// A parameter after its step.
#[inline(always)]
pub(super) fn updated<const FMA: bool>(
    f: AdamWFactors,
    g: f32,
    p: f32,
    m: &mut f32,
    v: &mut f32,
) -> f32 {
    let g = g * f.gradient;
    *m = fma::<FMA>(f.beta1, *m, f.one_less_beta1 * g);
    *v = fma::<FMA>(f.beta2, *v, f.one_less_beta2 * g * g);
    let root = fma::<FMA>(v.sqrt(), f.root_correction, f.epsilon);
    fma::<FMA>(p, f.decay, -(f.rate * *m / root))
}

kernel! {
    fn sum_of_squares<FMA>(x: &[f32]) -> f64 {
        let mut total = 0.0_f64;
        for block in x.chunks(256) {
            let mut lanes = [0.0_f32; LANES];
            let (chunks, rest) = block.as_chunks::<LANES>();
            for chunk in chunks {
                for i in 0..LANES {
                    lanes[i] = fma::<FMA>(chunk[i], chunk[i], lanes[i]);
                }
            }
            for (i, &v) in rest.iter().enumerate() {
                lanes[i] = fma::<FMA>(v, v, lanes[i]);
            }
            total += f64::from(reduce(lanes));
        }
        total
    }
}
