//! Weights under training where products are of bf16 factors: the packed numbers that products read, and tails.
//!
//! A weight's upper half is rounded to the nearest bf16, ties away from zero, so that what it lacks fits into 16 bits
//! with a sign: they are the lower half of the f32, and negative where the upper half was rounded up. Tails are laid
//! out as the packed numbers are. Purpose: 4 bytes per weight for both, and no copy to keep in step.
//!
//! Price: gradients and moments are laid out by rows, so an update walks along both layouts.

use super::adamw::updated;
use super::bf16::{PANEL, pairs, widen, words};
use super::moments::{Moments, Rounding, narrow};
use super::{Cpu, share::Shared};
use crate::device::{AdamW, AdamWFactors};
use crate::isa::kernel;

/// Two weights as the word that products read and the word of their tails.
#[inline(always)]
fn split(both: [f32; 2]) -> [u32; 2] {
    let [even, odd] = both.map(f32::to_bits);
    let upper = |bits: u32| bits.wrapping_add(0x8000) >> 16;
    [upper(even) | upper(odd) << 16, even & 0xffff | odd << 16]
}

/// [`split`] undone.
#[inline(always)]
fn join(word: u32, tails: u32) -> [f32; 2] {
    let below = |tail: u32| (tail.cast_signed() >> 16).cast_unsigned();
    [
        f32::from_bits((word << 16).wrapping_add(below(tails << 16))),
        f32::from_bits((word & 0xffff_0000).wrapping_add(below(tails))),
    ]
}

/// Where an element of a matrix is: its word, and whether it is the odd one.
fn place([inputs, outputs]: [usize; 2], element: usize) -> (usize, usize) {
    let (step, column) = (element / outputs, element % outputs);
    let panel = column / PANEL;
    ((panel * pairs(inputs) + step / 2) * PANEL + column % PANEL, step % 2)
}

/// The elements of a matrix from `first` on.
pub(super) fn upload(
    shape: [usize; 2],
    first: usize,
    src: &[f32],
    packed: &mut [f32],
    tails: &mut [f32],
) {
    assert_eq!(packed.len(), words(shape[0], shape[1]), "a word for two weights");
    assert_eq!(tails.len(), packed.len(), "as many tails");
    let packed: &mut [u32] = bytemuck::cast_slice_mut(packed);
    let tails: &mut [u32] = bytemuck::cast_slice_mut(tails);
    for (element, value) in (first..).zip(src) {
        let (at, odd) = place(shape, element);
        let mut both = join(packed[at], tails[at]);
        both[odd] = *value;
        [packed[at], tails[at]] = split(both);
    }
}

/// The same to the host.
pub(super) fn download(
    shape: [usize; 2],
    first: usize,
    packed: &[f32],
    tails: &[f32],
    dst: &mut [f32],
) {
    assert_eq!(packed.len(), words(shape[0], shape[1]), "a word for two weights");
    assert_eq!(tails.len(), packed.len(), "as many tails");
    for (element, value) in (first..).zip(dst) {
        let (at, odd) = place(shape, element);
        *value = join(packed[at].to_bits(), tails[at].to_bits())[odd];
    }
}

/// Σ x² in f64, in an order fixed by the shape.
pub(super) fn squared_norm(cpu: &Cpu, packed: &[f32], tails: &[f32]) -> f64 {
    const BLOCK: usize = 64 * 1024;
    assert_eq!(tails.len(), packed.len(), "as many tails");
    cpu.map_tasks(packed.len().div_ceil(BLOCK), |task| {
        let block = task * BLOCK..packed.len().min((task + 1) * BLOCK);
        let (packed, tails) = (&packed[block.clone()], &tails[block]);
        sum_of_squares(bytemuck::cast_slice(packed), bytemuck::cast_slice(tails))
    })
    .into_iter()
    .sum()
}

kernel! {
    fn sum_of_squares<FMA>(packed: &[u32], tails: &[u32]) -> f64 {
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

/// One step of a matrix `[inputs, outputs]`; the gradient and the moments are laid out by rows.
pub(super) fn adamw(
    cpu: &Cpu,
    step: AdamW,
    shape @ [inputs, outputs]: [usize; 2],
    gradient: &[f32],
    [packed, tails]: [&mut [f32]; 2],
    moments: Moments,
) {
    assert_eq!(gradient.len(), inputs * outputs, "the gradient is [inputs, outputs]");
    assert_eq!(packed.len(), words(inputs, outputs), "a word for two weights");
    assert_eq!(tails.len(), packed.len(), "as many tails");
    let factors = step.factors();
    let stride = pairs(inputs) * PANEL;
    let [packed, tails] = [packed, tails].map(Shared::new);
    let words = |first| Words { packed, tails, first, stride };
    let gradient = |rows: Rows| rows.map(|(at, n)| &gradient[at..at + n]);
    match moments {
        Moments::F32(moments) => {
            let [m, v] = moments.map(Shared::new);
            for_pairs(cpu, shape, |first, rows| {
                // SAFETY: bands of panels are disjoint, and so are the rows of one.
                let [m, v] = [&m, &v].map(|it| unsafe { parts(it, rows) });
                update(factors, gradient(rows), words(first), m, v);
            });
        }
        Moments::Bf16 { moments, rounding } => {
            let [m, v] = moments.map(Shared::new);
            for_pairs(cpu, shape, |first, rows| {
                // SAFETY: as above.
                let [m, v] = [&m, &v].map(|it| unsafe { parts(it, rows) });
                let rounding = rows.map(|(at, _)| rounding.from(at));
                update_rounded(factors, rounding, gradient(rows), words(first), m, v);
            });
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

/// Both rows of a buffer.
///
/// # Safety
/// That of [`Shared::part`].
unsafe fn parts<'a, T>(of: &Shared<'a, T>, rows: Rows) -> [&'a mut [T]; 2] {
    // SAFETY: the caller's promise.
    rows.map(|(at, n)| unsafe { of.part(at, n) })
}

/// Hands over the first word of every pair of rows of a band of panels, with the first element and the number of each row.
fn for_pairs(cpu: &Cpu, [inputs, outputs]: [usize; 2], work: impl Fn(usize, Rows) + Sync + Send) {
    /// Panels of a task: 1 KB of each row.
    const BAND: usize = 8;
    /// Pairs of rows of a task.
    const HEIGHT: usize = 16;
    let all = pairs(inputs);
    let down = all.div_ceil(HEIGHT);
    cpu.for_tasks(outputs.div_ceil(BAND * PANEL) * down, |task| {
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
    });
}

/// The columns of a panel in a row of a band.
#[inline(always)]
fn columns<T>(row: &mut [T], panel: usize) -> &mut [T] {
    let end = row.len().min((panel + 1) * PANEL);
    &mut row[(panel * PANEL).min(end)..end]
}

kernel! {
    /// A pair of rows of a band of panels.
    fn update<FMA>(
        f: AdamWFactors,
        g: [&[f32]; 2],
        words: Words,
        m: [&mut [f32]; 2],
        v: [&mut [f32]; 2],
    ) {
        let (mut m, mut v) = (m, v);
        for (panel, g0) in g[0].chunks(PANEL).enumerate() {
            let g = [g0, g[1].chunks(PANEL).nth(panel).unwrap_or_default()];
            let m = m.each_mut().map(|it| columns(it, panel));
            let v = v.each_mut().map(|it| columns(it, panel));
            update_panel::<FMA>(f, g, words.of(panel), m, v);
        }
    }
}

kernel! {
    /// The same with moments in bf16.
    fn update_rounded<FMA>(
        f: AdamWFactors,
        rounding: [Rounding; 2],
        g: [&[f32]; 2],
        words: Words,
        m: [&mut [u16]; 2],
        v: [&mut [u16]; 2],
    ) {
        let (mut m, mut v) = (m, v);
        for (panel, g0) in g[0].chunks(PANEL).enumerate() {
            let g = [g0, g[1].chunks(PANEL).nth(panel).unwrap_or_default()];
            let m = m.each_mut().map(|it| columns(it, panel));
            let v = v.each_mut().map(|it| columns(it, panel));
            let (mut wide_m, mut wide_v) = ([[0.0_f32; PANEL]; 2], [[0.0_f32; PANEL]; 2]);
            for odd in 0..2 {
                widen(m[odd], &mut wide_m[odd]);
                widen(v[odd], &mut wide_v[odd]);
            }
            let n = g.map(<[f32]>::len);
            let [m0, m1] = &mut wide_m;
            let [v0, v1] = &mut wide_v;
            let rows_m = [&mut m0[..n[0]], &mut m1[..n[1]]];
            let rows_v = [&mut v0[..n[0]], &mut v1[..n[1]]];
            update_panel::<FMA>(f, g, words.of(panel), rows_m, rows_v);
            for odd in 0..2 {
                let rounding = rounding[odd].from(panel * PANEL);
                let (m, v) = (&mut *m[odd], &mut *v[odd]);
                narrow::<PANEL>(rounding, [&wide_m[odd], &wide_v[odd]], [m, v]);
            }
        }
    }
}

/// A pair of rows of a panel.
#[inline(always)]
fn update_panel<const FMA: bool>(
    f: AdamWFactors,
    g: [&[f32]; 2],
    [packed, tails]: [&mut [f32]; 2],
    m: [&mut [f32]; 2],
    v: [&mut [f32]; 2],
) {
    let (mut p, mut words) = ([[0.0_f32; PANEL]; 2], [[0_u32; PANEL]; 2]);
    for j in 0..PANEL {
        [p[0][j], p[1][j]] = join(packed[j].to_bits(), tails[j].to_bits());
    }
    for ((p, g), (m, v)) in p.iter_mut().zip(g).zip(m.into_iter().zip(v)) {
        // A whole row of a panel is most of them, and known to be as wide as the vectors.
        let whole =
            (g.first_chunk::<PANEL>(), m.first_chunk_mut::<PANEL>(), v.first_chunk_mut::<PANEL>());
        if let (Some(g), Some(m), Some(v)) = whole {
            update_row::<FMA>(f, g, p, m, v);
        } else {
            update_row::<FMA>(f, g, p, m, v);
        }
    }
    for j in 0..PANEL {
        [words[0][j], words[1][j]] = split([p[0][j], p[1][j]]);
    }
    for j in 0..PANEL {
        packed[j] = f32::from_bits(words[0][j]);
        tails[j] = f32::from_bits(words[1][j]);
    }
}

#[inline(always)]
fn update_row<const FMA: bool>(
    f: AdamWFactors,
    g: &[f32],
    p: &mut [f32; PANEL],
    m: &mut [f32],
    v: &mut [f32],
) {
    for (((p, g), m), v) in p.iter_mut().zip(g).zip(m).zip(v) {
        *p = updated::<FMA>(f, *g, *p, m, v);
    }
}
