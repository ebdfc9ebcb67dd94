//! The optimiser: one pass over the flat buffers.

use super::{Cpu, share::Shared};
use crate::device::{AdamW, AdamWFactors};
use crate::isa::{fma, kernel};
use crate::row::{LANES, reduce};

const BLOCK: usize = 64 * 1024;

pub(super) fn adamw(cpu: &Cpu, step: AdamW, gradient: &[f32], state: [&mut [f32]; 3]) {
    let len = gradient.len();
    for part in &state {
        assert_eq!(part.len(), len, "parameters and moments as long as the gradient");
    }
    let factors = step.factors();
    let [p, m, v] = state.map(Shared::new);
    cpu.for_tasks(len.div_ceil(BLOCK), |task| {
        let (first, n) = (task * BLOCK, BLOCK.min(len - task * BLOCK));
        // SAFETY: blocks are disjoint, and the three slices are different ones.
        let (p, m, v) = unsafe { (p.part(first, n), m.part(first, n), v.part(first, n)) };
        update(factors, &gradient[first..first + n], p, m, v);
    });
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
