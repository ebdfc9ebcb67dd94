//! `silu(gate) ⊙ up` and its gradient, in one pass each.

use super::pool::Cpu;
use super::share::Shared;
use crate::isa::{fma, kernel};
use crate::row::exp_of;

const BLOCK: usize = 16 * 1024;

pub(super) fn forward(cpu: &Cpu, gate: &[f32], up: &[f32], h: &mut [f32]) {
    assert!(gate.len() == h.len() && up.len() == h.len(), "equal shapes");
    let len = h.len();
    let h = Shared::new(h);
    cpu.for_tasks(len.div_ceil(BLOCK), |task| {
        let (first, n) = (task * BLOCK, BLOCK.min(len - task * BLOCK));
        // SAFETY: blocks are disjoint.
        let h = unsafe { h.part(first, n) };
        silu_times(&gate[first..first + n], &up[first..first + n], h);
    });
}

pub(super) fn backward(cpu: &Cpu, gate: &mut [f32], up: &mut [f32], dh: &mut [f32]) {
    assert!(gate.len() == dh.len() && up.len() == dh.len(), "equal shapes");
    let len = dh.len();
    let (gate, up, dh) = (Shared::new(gate), Shared::new(up), Shared::new(dh));
    cpu.for_tasks(len.div_ceil(BLOCK), |task| {
        let (first, n) = (task * BLOCK, BLOCK.min(len - task * BLOCK));
        // SAFETY: blocks are disjoint, and the three slices are different ones.
        let (gate, up, dh) = unsafe { (gate.part(first, n), up.part(first, n), dh.part(first, n)) };
        silu_times_grad(gate, up, dh);
    });
}

kernel! {
    fn silu_times<FMA>(gate: &[f32], up: &[f32], h: &mut [f32]) {
        for ((h, &g), &u) in h.iter_mut().zip(gate).zip(up) {
            *h = g / (1.0 + exp_of::<FMA>(-g)) * u;
        }
    }
}

kernel! {
    fn silu_times_grad<FMA>(gate: &mut [f32], up: &mut [f32], dh: &mut [f32]) {
        for ((d, g), u) in dh.iter_mut().zip(gate).zip(up) {
            let sigmoid = 1.0 / (1.0 + exp_of::<FMA>(-*g));
            let silu = *g * sigmoid;
            // silu' = σ·(1 + g·(1 − σ))
            let slope = sigmoid * fma::<FMA>(*g, 1.0 - sigmoid, 1.0);
            let h = silu * *u;
            *g = *d * *u * slope;
            *u = *d * silu;
            *d = h;
        }
    }
}
