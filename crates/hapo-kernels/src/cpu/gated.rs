//! `f(gate) ⊙ up` and its gradient, in one pass each.

use super::pool::Cpu;
use super::share::Shared;
use crate::isa::{fma, kernel};
use crate::row::exp_of;
use crate::shapes::Activation;

const BLOCK: usize = 16 * 1024;

pub(super) fn forward(cpu: &Cpu, f: Activation, gate: &[f32], up: &[f32], h: &mut [f32]) {
    assert!(gate.len() == h.len() && up.len() == h.len(), "equal shapes");
    let len = h.len();
    let h = Shared::new(h);
    cpu.for_tasks(len.div_ceil(BLOCK), |task| {
        let (first, n) = (task * BLOCK, BLOCK.min(len - task * BLOCK));
        // SAFETY: blocks are disjoint.
        let h = unsafe { h.part(first, n) };
        let (gate, up) = (&gate[first..first + n], &up[first..first + n]);
        match f {
            Activation::Silu => silu_times(gate, up, h),
            Activation::GeluTanh => gelu_times(gate, up, h),
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
            Activation::Silu => silu_times_grad(gate, up, dh),
            Activation::GeluTanh => gelu_times_grad(gate, up, dh),
        }
    });
}

kernel! {
    fn silu_times<V>(gate: &[f32], up: &[f32], h: &mut [f32]) {
        for ((h, &g), &u) in h.iter_mut().zip(gate).zip(up) {
            *h = g / (1.0 + exp_of::<V>(-g)) * u;
        }
    }
}

kernel! {
    fn silu_times_grad<V>(gate: &mut [f32], up: &mut [f32], dh: &mut [f32]) {
        for ((d, g), u) in dh.iter_mut().zip(gate).zip(up) {
            let sigmoid = 1.0 / (1.0 + exp_of::<V>(-*g));
            let silu = *g * sigmoid;
            // silu' = σ·(1 + g·(1 − σ))
            let slope = sigmoid * fma::<V>(*g, 1.0 - sigmoid, 1.0);
            let h = silu * *u;
            *g = *d * *u * slope;
            *u = *d * silu;
            *d = h;
        }
    }
}

/// 2·√(2/π) and the factor of the cube.
const GELU: (f32, f32) = (1.595_769_2, 0.044_715);

kernel! {
    fn gelu_times<V>(gate: &[f32], up: &[f32], h: &mut [f32]) {
        let (outer, cube) = GELU;
        for ((h, &g), &u) in h.iter_mut().zip(gate).zip(up) {
            *h = g / (1.0 + exp_of::<V>(-outer * fma::<V>(cube * g * g, g, g))) * u;
        }
    }
}

kernel! {
    fn gelu_times_grad<V>(gate: &mut [f32], up: &mut [f32], dh: &mut [f32]) {
        let (outer, cube) = GELU;
        for ((d, g), u) in dh.iter_mut().zip(gate).zip(up) {
            let square = cube * *g * *g;
            let sigmoid = 1.0 / (1.0 + exp_of::<V>(-outer * fma::<V>(square, *g, *g)));
            let gelu = *g * sigmoid;
            // gelu' = σ·(1 + g·(1 − σ)·2u'), with 2u' = outer·(1 + 3·cube·g²)
            let inner = outer * fma::<V>(3.0, square, 1.0);
            let slope = sigmoid * fma::<V>(*g * (1.0 - sigmoid), inner, 1.0);
            let h = gelu * *u;
            *g = *d * *u * slope;
            *u = *d * gelu;
            *d = h;
        }
    }
}
