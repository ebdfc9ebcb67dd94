//! Updates with moments in bf16 against those in f32.

use hapo_core::{RngCounter, RngStream};

use super::*;
use crate::cpu::CpuBuf;
use crate::device::Device;
use crate::number_format::NumberFormat;
use crate::shapes::MomentsMut;
use crate::span::Buffer;
use crate::weight::{NumbersMut, Placed};

/// A step of all numbers of a buffer, in parts that end at `cuts` and at its end.
fn update_parts(
    cpu: &Cpu,
    step: AdamW,
    g: &CpuBuf,
    p: &mut CpuBuf,
    moments: MomentsMut<'_, CpuBuf>,
    cuts: &[usize],
) {
    // A parameter is a buffer of its own.
    let ends: Vec<usize> = cuts.iter().copied().chain([p.len()]).collect();
    let mut first = 0;
    let mut parts: Vec<CpuBuf> = Vec::new();
    for &end in &ends {
        let mut part = cpu.alloc(end - first, NumberFormat::F32).unwrap();
        part.as_mut_slice().copy_from_slice(&p.as_slice()[first..end]);
        parts.push(part);
        first = end;
    }
    let mut at = 0;
    let placed = parts.iter_mut().map(|part| {
        let len = part.len();
        let placed = Placed { at, len, numbers: NumbersMut::Span(part.first_mut(len)) };
        at += len;
        placed
    });
    cpu.adamw(step, g, moments, placed.collect());
    p.as_mut_slice()
        .copy_from_slice(&parts.iter().map(CpuBuf::as_slice).collect::<Vec<_>>().concat());
}

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
    let mut buf = cpu.alloc(n, NumberFormat::F32).unwrap();
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
    let mut moments = [
        cpu.alloc(words, NumberFormat::F32).unwrap(),
        cpu.alloc(words, NumberFormat::F32).unwrap(),
    ];
    for update in 1..=3 {
        // From the rounded moments of the step before, one step in f32.
        let mut exact = moments.each_ref().map(|it| {
            let mut wide = cpu.alloc(n, NumberFormat::F32).unwrap();
            wide.as_mut_slice().copy_from_slice(&read(it, n));
            wide
        });
        let wide = MomentsMut::F32(exact.each_mut());
        update_parts(&cpu, step(update), &g, &mut exact_p, wide, &[]);
        let rounded = MomentsMut::Bf16 { buffers: moments.each_mut(), seed };
        update_parts(&cpu, step(update), &g, &mut p, rounded, &[]);
        assert_eq!(p.as_slice(), exact_p.as_slice(), "the step is that of the exact moments");
        for (which, (got, exact)) in moments.iter().zip(&exact).enumerate() {
            let got = read(got, n);
            let mut up = 0;
            for (i, (got, exact)) in got.iter().zip(exact.as_slice()).enumerate() {
                let at =
                    RngCounter { step: update, prompt: (i / 8) as u64, ..RngCounter::default() };
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
        let mut moments = [
            cpu.alloc(words, NumberFormat::F32).unwrap(),
            cpu.alloc(words, NumberFormat::F32).unwrap(),
        ];
        for update in 1..=2 {
            let all = MomentsMut::Bf16 { buffers: moments.each_mut(), seed: 3 };
            update_parts(&cpu, step(update), &g, &mut p, all, cuts);
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
    let mut g = cpu.alloc(n, NumberFormat::F32).unwrap();
    g.as_mut_slice().fill(0.5);
    let (mut p, words) = (cpu.alloc(n, NumberFormat::F32).unwrap(), NumberFormat::Bf16.words(n));
    let mut moments = [
        cpu.alloc(words, NumberFormat::F32).unwrap(),
        cpu.alloc(words, NumberFormat::F32).unwrap(),
    ];
    let (mut exact, mut nearest) = (0.0_f64, half::bf16::ZERO);
    for update in 1..=1500 {
        let all = MomentsMut::Bf16 { buffers: moments.each_mut(), seed: 1 };
        update_parts(&cpu, step(update), &g, &mut p, all, &[]);
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
            f32::from_bits(u32::from(rounded(f32::from_bits(0x7fff_ffff), draw)) << 16).is_nan()
        );
    }
}
