//! The optimiser's moments in either format, and how those in bf16 are rounded.
//!
//! Purpose: 4 bytes per parameter instead of 8. A decay of 0.999 moves a number by less than half a unit of bf16, so
//! the nearest number would stand still. A number is rounded up with the probability of what the lower one
//! lacks, and its mean over many steps is that of f32.
//!
//! Price: the generator, some 20 wide multiplications for 8 elements, beside 8 bytes less to read and 8 less to write
//! for each.

use hapo_core::{RngCounter, RngStream};

use super::CpuBuf;
use crate::device::SpanMut;
use crate::moments::MomentsMut;

/// Elements of one counter.
const ELEMENTS: usize = 8;

/// Both moments of the elements of an update.
pub(super) enum Moments<'a> {
    F32([&'a mut [f32]; 2]),
    Bf16 { moments: [&'a mut [u16]; 2], rounding: Rounding },
}

impl<'a> Moments<'a> {
    /// Those of `len` elements, at an update.
    pub(super) fn of(moments: MomentsMut<'a, CpuBuf>, len: usize, update: u64) -> Self {
        let it = match moments {
            MomentsMut::F32(moments) => Self::F32(moments.map(SpanMut::write)),
            MomentsMut::Bf16 { buffers, first, seed } => {
                let part = |it: &'a mut CpuBuf| {
                    &mut bytemuck::cast_slice_mut(it.as_mut_slice())[first..first + len]
                };
                let rounding = Rounding { seed, update, first };
                Self::Bf16 { moments: buffers.map(part), rounding }
            }
        };
        let [m, v] = match &it {
            Self::F32(moments) => moments.each_ref().map(|it| it.len()),
            Self::Bf16 { moments, .. } => moments.each_ref().map(|it| it.len()),
        };
        assert!(m == len && v == len, "moments as long as the gradient");
        it
    }
}

/// The draws of an update's elements from one on.
#[derive(Clone, Copy)]
pub(super) struct Rounding {
    seed: u64,
    update: u64,
    first: usize,
}

impl Rounding {
    /// The same from a later element on.
    pub(super) fn from(self, element: usize) -> Self {
        Self { first: self.first + element, ..self }
    }

    /// A word for each element: 16 bits for the first moment, above them 16 for the second.
    #[inline(always)]
    fn draws(self, to: &mut [u32]) {
        let (mut counter, mut skipped) = (self.first / ELEMENTS, self.first % ELEMENTS);
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

/// The upper half of a number after 16 random bits are added; what is not finite stays what it is.
#[inline(always)]
fn rounded(x: f32, draw: u32) -> u16 {
    let bits = x.to_bits();
    let draw = if x.is_finite() { draw } else { 0 };
    ((bits + draw) >> 16) as u16
}

/// Both moments of at most `N` elements, rounded.
#[inline(always)]
pub(super) fn narrow<const N: usize>(
    rounding: Rounding,
    [m, v]: [&[f32]; 2],
    [to_m, to_v]: [&mut [u16]; 2],
) {
    let mut draws = [0; N];
    let draws = &mut draws[..to_m.len()];
    rounding.draws(draws);
    for ((to, x), draw) in to_m.iter_mut().zip(m).zip(&*draws) {
        *to = rounded(*x, draw & 0xffff);
    }
    for ((to, x), draw) in to_v.iter_mut().zip(v).zip(draws) {
        *to = rounded(*x, *draw >> 16);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Cpu;
    use crate::cpu::bf16::widen;
    use crate::device::{AdamW, Buffer, Device};
    use crate::number_format::NumberFormat;

    fn step(step: u64) -> AdamW {
        AdamW {
            learning_rate: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.01,
            step,
            gradient_scale: 0.5,
        }
    }

    fn numbers(cpu: &Cpu, n: usize, seed: u32) -> CpuBuf {
        let mut buf = cpu.alloc(n).unwrap();
        for (i, to) in (0_u32..).zip(buf.as_mut_slice()) {
            let x = (i ^ seed).wrapping_mul(2_654_435_761);
            *to = ((x >> 8) as f32 / (1 << 24) as f32 - 0.5) * 0.1;
        }
        buf
    }

    /// Halves of a buffer's words, as numbers.
    fn read(buf: &CpuBuf, n: usize) -> Vec<f32> {
        let mut all = vec![0.0; n];
        widen(&bytemuck::cast_slice(buf.as_slice())[..n], &mut all);
        all
    }

    #[test]
    fn a_moment_is_a_neighbour_of_the_exact_one_by_its_own_draw() {
        let cpu = Cpu::new(1).unwrap();
        let (n, seed) = (1003, 9);
        let words = NumberFormat::Bf16.words(n);
        let g = numbers(&cpu, n, 1);
        let (mut p, mut exact_p) = (numbers(&cpu, n, 2), numbers(&cpu, n, 2));
        let mut moments = [cpu.alloc(words).unwrap(), cpu.alloc(words).unwrap()];
        for update in 1..=3 {
            // From the rounded moments of the step before, one step in f32.
            let mut exact = moments.each_ref().map(|it| {
                let mut wide = cpu.alloc(n).unwrap();
                wide.as_mut_slice().copy_from_slice(&read(it, n));
                wide
            });
            let wide = MomentsMut::F32(exact.each_mut().map(|it| it.first_mut(n)));
            cpu.adamw(step(update), g.first(n), exact_p.first_mut(n), wide);
            let rounded = MomentsMut::Bf16 { buffers: moments.each_mut(), first: 0, seed };
            cpu.adamw(step(update), g.first(n), p.first_mut(n), rounded);
            assert_eq!(p.as_slice(), exact_p.as_slice(), "the step is that of the exact moments");
            for (which, (got, exact)) in moments.iter().zip(&exact).enumerate() {
                let got = read(got, n);
                let mut up = 0;
                for (i, (got, exact)) in got.iter().zip(exact.as_slice()).enumerate() {
                    let at = RngCounter {
                        step: update,
                        prompt: (i / 8) as u64,
                        ..RngCounter::default()
                    };
                    let word = hapo_core::random_words(seed, RngStream::Moments, at)[i % 8 / 2];
                    let draw = word >> (32 * (i % 2) + 16 * which) & 0xffff;
                    let lower = exact.to_bits() & 0xffff_0000;
                    let goes_up = u64::from(exact.to_bits() & 0xffff) + draw > 0xffff;
                    up += usize::from(goes_up);
                    let expected = f32::from_bits(lower + if goes_up { 0x1_0000 } else { 0 });
                    assert_eq!(got.to_bits(), expected.to_bits(), "{which} {i}: {exact:e}");
                }
                assert!((n / 3..2 * n / 3).contains(&up), "{up} of {n} go up");
            }
        }
    }

    #[test]
    fn bits_do_not_depend_on_threads_or_on_how_an_update_is_cut() {
        let n = 200_003;
        let run = |threads, cuts: &[usize]| {
            let cpu = Cpu::new(threads).unwrap();
            let (g, mut p) = (numbers(&cpu, n, 1), numbers(&cpu, n, 2));
            let words = NumberFormat::Bf16.words(n);
            let mut moments = [cpu.alloc(words).unwrap(), cpu.alloc(words).unwrap()];
            for update in 1..=2 {
                let mut first = 0;
                for end in cuts.iter().copied().chain([n]) {
                    let part = MomentsMut::Bf16 { buffers: moments.each_mut(), first, seed: 3 };
                    let len = end - first;
                    cpu.adamw(step(update), g.at(first, len), p.at_mut(first, len), part);
                    first = end;
                }
            }
            let [m, v] = moments;
            [p, m, v].map(|it| it.as_slice().iter().map(|it| it.to_bits()).collect::<Vec<_>>())
        };
        let whole = run(1, &[]);
        assert!(run(2, &[]) == whole);
        assert!(run(2, &[1, 8, 77_777]) == whole);
    }

    #[test]
    fn a_slow_mean_moves_where_the_nearest_number_would_stand_still() {
        let cpu = Cpu::new(1).unwrap();
        let n = 4096;
        let mut g = cpu.alloc(n).unwrap();
        g.as_mut_slice().fill(0.5);
        let (mut p, words) = (cpu.alloc(n).unwrap(), NumberFormat::Bf16.words(n));
        let mut moments = [cpu.alloc(words).unwrap(), cpu.alloc(words).unwrap()];
        let (mut exact, mut nearest) = (0.0_f64, half::bf16::ZERO);
        for update in 1..=1500 {
            let all = MomentsMut::Bf16 { buffers: moments.each_mut(), first: 0, seed: 1 };
            cpu.adamw(step(update), g.first(n), p.first_mut(n), all);
            exact = 0.999 * exact + 0.001 * 0.0625;
            nearest = half::bf16::from_f32(0.999 * nearest.to_f32() + 0.001 * 0.0625);
        }
        let mean = read(&moments[1], n).iter().map(|it| f64::from(*it)).sum::<f64>() / n as f64;
        assert!((mean / exact - 1.0).abs() < 5e-3, "{mean} and {exact}");
        assert!(nearest.to_f64() < 0.6 * exact, "{nearest} and {exact}");
    }

    #[test]
    fn what_is_not_finite_stays_so() {
        for draw in [0, 1, 0xffff] {
            assert_eq!(rounded(f32::INFINITY, draw), 0x7f80);
            assert_eq!(rounded(f32::NEG_INFINITY, draw), 0xff80);
            assert!(f32::from_bits(u32::from(rounded(f32::NAN, draw)) << 16).is_nan());
            assert!(
                f32::from_bits(u32::from(rounded(f32::from_bits(0x7fff_ffff), draw)) << 16)
                    .is_nan()
            );
        }
    }
}
