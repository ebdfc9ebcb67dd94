//! The optimiser: one pass over all parameters, wherever they lie.
//!
//! Purpose: a task is a block of a tensor or a band of a matrix that is split, so that small tensors share the workers.
//! Moments in bf16 take 4 bytes per parameter instead of 8; [`crate::MomentsMut`] says how they are rounded, and why.
//! Price: gradients and moments are laid out by rows, so an update of a split matrix walks along both layouts. The
//! generator of bf16 takes some 20 wide multiplications for 8 elements, beside 8 bytes less to read and 8 less to write
//! for each.

use std::ops::Range;

use hapo_core::{RngCounter, RngStream};

use super::convert::{join, split, widen};
use super::pool::{Cpu, Shared};
use super::product::bf16::{PANEL, pairs};
use crate::lanes::{Lanes, fma, kernel};
use crate::shapes::{AdamW, AdamWFactors};

/// Elements of a task.
const BLOCK: usize = 64 * 1024;
/// Panels of a task of a split matrix: 1 KB of each row.
const BAND: usize = 8;
/// Pairs of rows of such a task.
const HEIGHT: usize = 16;

#[derive(Clone, Copy)]
pub(super) enum Moments<'a> {
    F32([Shared<'a>; 2]),
    Bf16 { moments: [Shared<'a, u16>; 2], rounding: Rounding },
}

impl Moments<'_> {
    /// Hands over both moments of `n` elements, at most `N`, in f32, and keeps what they are then.
    ///
    /// # Safety
    /// That of [`Shared::part`].
    #[inline(always)]
    unsafe fn with<const N: usize>(
        self,
        first: usize,
        n: usize,
        work: impl FnOnce(&mut [f32], &mut [f32]),
    ) {
        match self {
            Self::F32(moments) => {
                // SAFETY: the caller's promise; the moments are two buffers.
                let [m, v] = moments.map(|it| unsafe { it.part(first, n) });
                work(m, v);
            }
            Self::Bf16 { moments, rounding } => {
                // SAFETY: as above.
                let [m, v] = moments.map(|it| unsafe { it.part(first, n) });
                let (mut wide_m, mut wide_v) = ([0.0_f32; N], [0.0_f32; N]);
                widen(m, &mut wide_m);
                widen(v, &mut wide_v);
                work(&mut wide_m[..n], &mut wide_v[..n]);
                narrow::<N>(rounding, first, [&wide_m, &wide_v], [m, v]);
            }
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum Parameter<'a> {
    Flat(Shared<'a>),
    /// A matrix `[inputs, outputs]` of pairs with tails.
    Split {
        shape: [usize; 2],
        words: Shared<'a>,
        tails: Shared<'a>,
    },
}

impl Parameter<'_> {
    fn tasks(&self, len: usize) -> usize {
        match self {
            Self::Flat(_) => len.div_ceil(BLOCK),
            Self::Split { shape: [inputs, outputs], .. } => {
                outputs.div_ceil(BAND * PANEL) * pairs(*inputs).div_ceil(HEIGHT)
            }
        }
    }
}

/// A parameter, its elements among the gradient's, and its tasks.
struct Job<'a> {
    parameter: Parameter<'a>,
    elements: Range<usize>,
    tasks: Range<usize>,
}

/// One step of parameters, each with its elements among the gradient's.
pub(super) fn adamw<'a>(
    cpu: &Cpu,
    step: AdamW,
    gradient: &[f32],
    moments: Moments,
    parameters: impl Iterator<Item = (Range<usize>, Parameter<'a>)>,
) {
    let mut end = 0;
    let jobs: Vec<Job> = parameters
        .map(|(elements, parameter)| {
            let first = end;
            end += parameter.tasks(elements.len());
            Job { parameter, elements, tasks: first..end }
        })
        .collect();
    let factors = step.factors();
    cpu.for_tasks(end, |task| {
        let job = &jobs[jobs.partition_point(|it| it.tasks.end <= task)];
        let task = task - job.tasks.start;
        let gradient = &gradient[job.elements.clone()];
        match job.parameter {
            Parameter::Flat(numbers) => {
                let block = task * BLOCK..gradient.len().min((task + 1) * BLOCK);
                let first = job.elements.start + block.start;
                // SAFETY: blocks are disjoint.
                let numbers = unsafe { numbers.part(block.start, block.len()) };
                update(factors, &gradient[block], numbers, moments, first);
            }
            Parameter::Split { shape, words, tails } => {
                let stride = pairs(shape[0]) * PANEL;
                for_pairs(shape, task, |first, rows| {
                    let words = Words { packed: words, tails, first, stride };
                    let g = rows.map(|(at, n)| &gradient[at..at + n]);
                    let rows = rows.map(|(at, n)| (job.elements.start + at, n));
                    update_pairs(factors, g, words, moments, rows);
                });
            }
        }
    });
}

/// Hands over the first word of every pair of rows of a task, with the first element and the number of each row.
fn for_pairs([inputs, outputs]: [usize; 2], task: usize, mut work: impl FnMut(usize, Rows)) {
    let all = pairs(inputs);
    let down = all.div_ceil(HEIGHT);
    let (band, first) = (task / down, task % down * HEIGHT);
    let column = band * BAND * PANEL;
    let width = (BAND * PANEL).min(outputs - column);
    for pair in first..all.min(first + HEIGHT) {
        // The step that an odd number of inputs lacks has no columns.
        let row = |odd: usize| {
            let step = 2 * pair + odd;
            if step < inputs { (step * outputs + column, width) } else { (0, 0) }
        };
        work((band * BAND * all + pair) * PANEL, [row(0), row(1)]);
    }
}

kernel! {
    /// A block of a flat parameter; `first` is its first element among all.
    fn update<V>(f: AdamWFactors, g: &[f32], p: &mut [f32], moments: Moments, first: usize) {
        const PIECE: usize = 256;
        for (piece, (g, p)) in g.chunks(PIECE).zip(p.chunks_mut(PIECE)).enumerate() {
            let at = first + piece * PIECE;
            // SAFETY: blocks are disjoint.
            unsafe { moments.with::<PIECE>(at, g.len(), |m, v| update_row::<V>(f, g, p, m, v)) };
        }
    }
}

/// The words of a pair of rows of a band of panels: `stride` from panel to panel.
#[derive(Clone, Copy)]
struct Words<'a> {
    packed: Shared<'a>,
    tails: Shared<'a>,
    first: usize,
    stride: usize,
}

impl<'a> Words<'a> {
    /// Those of a panel of the band, and their tails.
    #[inline(always)]
    fn of(&self, panel: usize) -> [&'a mut [f32]; 2] {
        let at = self.first + panel * self.stride;
        // SAFETY: a pair of rows of a panel is handed over once.
        [&self.packed, &self.tails].map(|it| unsafe { it.part(at, PANEL) })
    }
}

/// The first element and the number of elements of two rows of a band of panels.
type Rows = [(usize, usize); 2];

kernel! {
    /// A pair of rows of a band of panels.
    fn update_pairs<V>(f: AdamWFactors, g: [&[f32]; 2], words: Words, moments: Moments, rows: Rows) {
        for (panel, column) in (0..rows[0].1).step_by(PANEL).enumerate() {
            let [packed, tails] = words.of(panel);
            let (mut p, mut halves) = ([[0.0_f32; PANEL]; 2], [[0_u32; PANEL]; 2]);
            for j in 0..PANEL {
                [p[0][j], p[1][j]] = join(packed[j].to_bits(), tails[j].to_bits());
            }
            for ((p, g), (first, n)) in p.iter_mut().zip(g).zip(rows) {
                let at = column.min(n);
                let g = &g[at..n.min(at + PANEL)];
                let row = |m: &mut [f32], v: &mut [f32]| {
                    // A whole row of a panel is most of them, and known to be as wide as the vectors.
                    let (m_row, v_row) = (m.first_chunk_mut::<PANEL>(), v.first_chunk_mut::<PANEL>());
                    if let (Some(g), Some(m), Some(v)) = (g.first_chunk::<PANEL>(), m_row, v_row) {
                        update_row::<V>(f, g, p, m, v);
                    } else {
                        update_row::<V>(f, g, p, m, v);
                    }
                };
                // SAFETY: bands of panels are disjoint, and so are the rows of one.
                unsafe { moments.with::<PANEL>(first + at, g.len(), row) };
            }
            for j in 0..PANEL {
                [halves[0][j], halves[1][j]] = split([p[0][j], p[1][j]]);
            }
            for j in 0..PANEL {
                packed[j] = f32::from_bits(halves[0][j]);
                tails[j] = f32::from_bits(halves[1][j]);
            }
        }
    }
}

#[inline(always)]
fn update_row<V: Lanes>(f: AdamWFactors, g: &[f32], p: &mut [f32], m: &mut [f32], v: &mut [f32]) {
    for (((&g, p), m), v) in g.iter().zip(p).zip(m).zip(v) {
        let g = g * f.gradient;
        *m = fma::<V>(f.beta1, *m, f.one_less_beta1 * g);
        *v = fma::<V>(f.beta2, *v, f.one_less_beta2 * g * g);
        let root = fma::<V>(v.sqrt(), f.root_correction, f.epsilon);
        *p = fma::<V>(*p, f.decay, -(f.rate * *m / root));
    }
}

/// Elements of one counter.
const ELEMENTS: usize = 8;

/// The draws of an update's elements.
#[derive(Clone, Copy)]
pub(super) struct Rounding {
    pub(super) seed: u64,
    pub(super) update: u64,
}

impl Rounding {
    /// A word for each element from `first` on: 16 bits for the first moment, above them 16 for the second.
    #[inline(always)]
    fn draws(self, first: usize, to: &mut [u32]) {
        let (mut counter, mut skipped) = (first / ELEMENTS, first % ELEMENTS);
        let mut rest = to;
        while !rest.is_empty() {
            let at =
                RngCounter { step: self.update, prompt: counter as u64, ..RngCounter::default() };
            let words = hapo_core::random_words(self.seed, RngStream::Moments, at);
            let (now, later) = rest.split_at_mut(rest.len().min(ELEMENTS - skipped));
            for (i, draw) in now.iter_mut().enumerate() {
                let element = skipped + i;
                *draw = (words[element / 2] >> (32 * (element % 2))) as u32;
            }
            (rest, skipped, counter) = (later, 0, counter + 1);
        }
    }
}

/// The upper half of a number after 16 random bits are added; infinities and NaN stay as they are.
#[inline(always)]
pub(super) fn rounded(x: f32, draw: u32) -> u16 {
    let bits = x.to_bits();
    let draw = if x.is_finite() { draw } else { 0 };
    ((bits + draw) >> 16) as u16
}

/// Both moments of at most `N` elements from `first` on, rounded.
#[inline(always)]
pub(super) fn narrow<const N: usize>(
    rounding: Rounding,
    first: usize,
    [m, v]: [&[f32]; 2],
    [to_m, to_v]: [&mut [u16]; 2],
) {
    let mut draws = [0; N];
    let draws = &mut draws[..to_m.len()];
    rounding.draws(first, draws);
    for ((to, x), draw) in to_m.iter_mut().zip(m).zip(&*draws) {
        *to = rounded(*x, draw & 0xffff);
    }
    for ((to, x), draw) in to_v.iter_mut().zip(v).zip(draws) {
        *to = rounded(*x, *draw >> 16);
    }
}

#[cfg(test)]
mod tests;
