//! `f(gate) ⊙ up` and its gradient, in one pass each.

use super::pool::{Cpu, Shared};
use crate::lanes::{fma, kernel};
use crate::{row::exp_of, shapes::Activation};

const BLOCK: usize = 16 * 1024;

pub(super) fn forward(cpu: &Cpu, f: Activation, gate: &[f32], up: &[f32], h: &mut [f32]) {
    assert!(gate.len() == h.len() && up.len() == h.len(), "equal shapes");
    cpu.for_blocks(h, BLOCK, |first, h| {
        let [gate, up] = [gate, up].map(|it| &it[first..][..h.len()]);
        match f {
            Activation::Silu => times::<false>(gate, up, h),
            Activation::GeluTanh => times::<true>(gate, up, h),
        }
    });
}

pub(super) fn backward(cpu: &Cpu, f: Activation, gate: &mut [f32], up: &mut [f32], dh: &mut [f32]) {
    assert!(gate.len() == dh.len() && up.len() == dh.len(), "equal shapes");
    let len = dh.len();
    let (gate, up, dh) = (Shared::new(gate), Shared::new(up), Shared::new(dh));
    cpu.for_tasks(len.div_ceil(BLOCK), |task| {
        let (first, n) = (task * BLOCK, BLOCK.min(len - task * BLOCK));
        // SAFETY: blocks are disjoint, and the three slices are different ones.
        let (gate, up, dh) = unsafe { (gate.part(first, n), up.part(first, n), dh.part(first, n)) };
        match f {
            Activation::Silu => times_grad::<false>(gate, up, dh),
            Activation::GeluTanh => times_grad::<true>(gate, up, dh),
        }
    });
}

/// 2·√(2/π) and the factor of the cube.
const GELU: (f32, f32) = (1.595_769_2, 0.044_715);

kernel! {
    fn times<V, const IS_GELU: bool>(gate: &[f32], up: &[f32], h: &mut [f32]) {
        let (outer, cube) = GELU;
        for ((h, &g), &u) in h.iter_mut().zip(gate).zip(up) {
            let z = if IS_GELU { outer * fma::<V>(cube * g * g, g, g) } else { g };
            *h = g / (1.0 + exp_of::<V>(-z)) * u;
        }
    }
}

kernel! {
    fn times_grad<V, const IS_GELU: bool>(gate: &mut [f32], up: &mut [f32], dh: &mut [f32]) {
        let (outer, cube) = GELU;
        for ((d, g), u) in dh.iter_mut().zip(gate).zip(up) {
            let square = cube * *g * *g;
            let z = if IS_GELU { outer * fma::<V>(square, *g, *g) } else { *g };
            let sigmoid = 1.0 / (1.0 + exp_of::<V>(-z));
            let f = *g * sigmoid;
            // f' = σ·(1 + g·(1 − σ)·z'), of GELU with z' = outer·(1 + 3·cube·g²)
            let slope = if IS_GELU {
                let inner = outer * fma::<V>(3.0, square, 1.0);
                sigmoid * fma::<V>(*g * (1.0 - sigmoid), inner, 1.0)
            } else {
                sigmoid * fma::<V>(*g, 1.0 - sigmoid, 1.0)
            };
            let h = f * *u;
            *g = *d * *u * slope;
            *u = *d * f;
            *d = h;
        }
    }
}
