//! The products against a scalar model of the instruction, bit for bit.

use super::*;
use crate::cpu::{CpuBuf, CpuWeight};
use crate::device::Device;
use crate::isa::multiplies_bf16;
use crate::number_format::{Compute, NumberFormat};
use crate::shapes::{Accumulate, AdamW, EmbeddingLayout, MomentsMut};
use crate::span::Buffer;
use crate::weight::{Held, Matrix, Numbers, NumbersMut, Output, Placed};

const FROZEN: Held = Held::Frozen(NumberFormat::Bf16);

fn weight(cpu: &Cpu, shape: [usize; 2], held: Held, values: &[f32]) -> CpuWeight {
    let mut it = CpuWeight::zeros(cpu, shape, held).unwrap();
    it.write(cpu, 0, values);
    it
}

/// The instruction treats denormals as zeros, on reading and on writing.
fn flushed(x: f32) -> f32 {
    if x.is_subnormal() { 0.0_f32.copysign(x) } else { x }
}

/// `vdpbf16ps` of one lane (Intel SDM, volume 2): `sum` plus the product of the odd elements, then of the even ones,
/// each rounded once to the nearest even; denormals are zeros.
fn instruction(sum: f32, x: [f32; 2], w: [f32; 2]) -> f32 {
    let [x0, x1] = x.map(flushed);
    let [w0, w1] = w.map(flushed);
    let sum = flushed(x1.mul_add(w1, flushed(sum)));
    flushed(x0.mul_add(w0, sum))
}

fn round(x: f32) -> f32 {
    half::bf16::from_f32(x).to_f32()
}

/// One element: chains of 256 pairs, each added to the value so far.
fn element(
    steps: usize,
    x: impl Fn(usize) -> f32,
    w: impl Fn(usize) -> f32,
    start: Option<f32>,
) -> f32 {
    let at = |of: &dyn Fn(usize) -> f32, step| if step < steps { round(of(step)) } else { 0.0 };
    let mut total = start;
    for first in (0..steps.max(1)).step_by(2 * CHAIN) {
        let mut sum = 0.0;
        for step in (first..steps.min(first + 2 * CHAIN)).step_by(2) {
            let pair = |of| [at(of, step), at(of, step + 1)];
            sum = instruction(sum, pair(&x), pair(&w));
        }
        total = Some(total.map_or(sum, |it| it + sum));
    }
    total.expect("there is a chain")
}

/// Numbers of both signs over a wide range; some are zero or denormal, or have such products.
fn numbers(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let it = state as f32 / 2_147_483_648.0 - 1.0;
            match state >> 8 & 63 {
                0 => 0.0,
                1 => it * 1e-39,
                2 => it * 1e-20,
                3 => it * 1e4,
                _ => it,
            }
        })
        .collect()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|it| it.to_bits()).collect()
}

fn buf(cpu: &Cpu, values: &[f32]) -> CpuBuf {
    let mut it = cpu.alloc(values.len(), NumberFormat::F32).unwrap();
    cpu.upload(values, it.first_mut(values.len()));
    it
}

/// The results of the three products.
fn products(cpu: &Cpu, shape: MatShape, start: &str) -> [Vec<f32>; 3] {
    let MatShape { rows, inputs, outputs } = shape;
    let (x, w) = (numbers(rows * inputs, 1), numbers(inputs * outputs, 2));
    let (dy, bias) = (numbers(rows * outputs, 3), buf(cpu, &numbers(outputs, 4)));
    let (x, dy) = (buf(cpu, &x), buf(cpu, &dy));
    let packed = weight(cpu, [inputs, outputs], FROZEN, &w);
    let onto = |bias_too: bool| match start {
        "bias" if bias_too => Accumulate::Bias(bias.first(outputs)),
        "nothing" => Accumulate::Nothing,
        _ => Accumulate::Existing,
    };
    let mut y = buf(cpu, &numbers(rows * outputs, 5));
    let mut dx = buf(cpu, &numbers(rows * inputs, 6));
    let mut dw = buf(cpu, &numbers(inputs * outputs, 7));
    let (ny, nx, nw) = (y.len(), dx.len(), dw.len());
    let output =
        Output { shape, pair: None, weight: &packed, onto: onto(true), y: y.first_mut(ny) };
    cpu.product(x.first(nx), None, vec![output]);
    cpu.product_input_grad(shape, dy.first(ny), &packed, onto(false), dx.first_mut(nx));
    cpu.product_weight_grad(shape, x.first(nx), dy.first(ny), onto(false), dw.first_mut(nw));
    [y, dx, dw].map(|it| it.as_slice().to_vec())
}

/// The same by the scalar model.
fn expected(MatShape { rows, inputs, outputs }: MatShape, start: &str) -> [Vec<f32>; 3] {
    let (x, w) = (numbers(rows * inputs, 1), numbers(inputs * outputs, 2));
    let (dy, bias) = (numbers(rows * outputs, 3), numbers(outputs, 4));
    let before =
        [numbers(rows * outputs, 5), numbers(rows * inputs, 6), numbers(inputs * outputs, 7)];
    let onto = |of: usize, at: usize| match start {
        "nothing" => None,
        "bias" if of == 0 => Some(bias[at % outputs]),
        _ => Some(before[of][at]),
    };
    let y = (0..rows * outputs).map(|at| {
        let (r, c) = (at / outputs, at % outputs);
        element(inputs, |k| x[r * inputs + k], |k| w[k * outputs + c], onto(0, at))
    });
    let dx = (0..rows * inputs).map(|at| {
        let (r, k) = (at / inputs, at % inputs);
        element(outputs, |c| dy[r * outputs + c], |c| w[k * outputs + c], onto(1, at))
    });
    let dw = (0..inputs * outputs).map(|at| {
        let (k, c) = (at / outputs, at % outputs);
        element(rows, |r| x[r * inputs + k], |r| dy[r * outputs + c], onto(2, at))
    });
    [y.collect(), dx.collect(), dw.collect()]
}

#[test]
fn products_have_the_bits_of_the_scalar_model() {
    if !multiplies_bf16() {
        return;
    }
    for (rows, inputs, outputs) in [
        (1, 1, 1),
        (2, 7, 31),
        (3, 64, 33),
        (5, 513, 32),
        (12, 40, 65),
        (13, 33, 64),
        (25, 30, 97),
        (33, 1030, 40),
        (37, 20, 1100),
        (780, 18, 34),
        (1100, 10, 12),
    ] {
        let shape = MatShape { rows, inputs, outputs };
        for start in ["nothing", "existing", "bias"] {
            let expected = expected(shape, start);
            for threads in [1, 2] {
                let cpu = Cpu::computing(threads, Compute::Bf16).unwrap();
                let got = products(&cpu, shape, start);
                for (name, (got, expected)) in
                    ["y", "dx", "dw"].iter().zip(got.iter().zip(&expected))
                {
                    assert_eq!(bits(got), bits(expected), "{name} of {shape:?}, {start}");
                }
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_whatever_the_others() {
    if !multiplies_bf16() {
        return;
    }
    let (inputs, outputs) = (600, 70);
    let cpu = Cpu::computing(2, Compute::Bf16).unwrap();
    let shape = |rows| MatShape { rows, inputs, outputs };
    let [all, _, _] = products(&cpu, shape(1000), "nothing");
    for rows in [1, 2, 11, 12, 13, 64, 300, 769] {
        let [some, _, _] = products(&cpu, shape(rows), "nothing");
        assert_eq!(bits(&some), bits(&all[..rows * outputs]), "{rows} rows");
    }
}

#[test]
fn packed_weights_unpack_and_are_looked_up_rounded() {
    if !multiplies_bf16() {
        return;
    }
    let cpu = Cpu::computing(2, Compute::Bf16).unwrap();
    for (inputs, outputs) in [(1, 1), (7, 33), (64, 100)] {
        let values = numbers(inputs * outputs, 2);
        let packed = weight(&cpu, [inputs, outputs], FROZEN, &values);
        let rounded: Vec<f32> = values.iter().map(|it| round(*it)).collect();
        let mut back = vec![0.0; values.len()];
        packed.read(&cpu, 0, &mut back);
        assert_eq!(bits(&back), bits(&rounded));
        let tokens: Vec<u32> = (0..outputs as u32).rev().collect();
        let mut x = buf(&cpu, &values);
        let layout = EmbeddingLayout::Columns { vocabulary: outputs };
        cpu.gather_rows(layout, &tokens, Numbers::Weight(&packed), x.first_mut(values.len()));
        for (row, &token) in x.as_slice().chunks(inputs).zip(&tokens) {
            let column = rounded[token as usize..].iter().step_by(outputs);
            assert!(row.iter().eq(column), "{inputs} x {outputs}");
        }
    }
}

#[test]
fn split_weights_are_exactly_the_f32_and_move_as_they_do() {
    if !multiplies_bf16() {
        return;
    }
    let cpu = Cpu::computing(2, Compute::Bf16).unwrap();
    let plain = Cpu::new(1).unwrap();
    let step = AdamW {
        learning_rate: 1e-2,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        weight_decay: 0.1,
        step: 3,
        gradient_scale: 0.5,
    };
    for (inputs, outputs) in [(1, 1), (7, 33), (64, 300), (30, 512)] {
        let n = inputs * outputs;
        let shape = [inputs, outputs];
        let mut values = numbers(n, 1);
        // Halfway between two bf16 numbers, of either parity and sign, and the ends of the range.
        let odd = [0x3f80_8000, 0x3f81_8000, 0xbf80_8000, 0xbf81_8000, 0x8000_0000, 0x7f7f_ffff, 1];
        for (value, bits) in values.iter_mut().zip(odd) {
            *value = f32::from_bits(bits);
        }
        let mut split = CpuWeight::zeros(&cpu, shape, Held::Trained).unwrap();
        // In two pieces, the second first.
        let cut = n / 3;
        for part in [cut..n, 0..cut] {
            split.write(&cpu, part.start, &values[part]);
        }
        let read = |split: &CpuWeight| {
            let mut all = vec![0.0; n];
            let (one, two) = all.split_at_mut(n / 2);
            split.read(&cpu, 0, one);
            split.read(&cpu, n / 2, two);
            all
        };
        assert_eq!(bits(&read(&split)), bits(&values));
        let upper = read(&split.copy_of(&cpu).unwrap());
        for (upper, value) in upper.iter().zip(&values) {
            let nearest = value.to_bits().wrapping_add(0x8000) & 0xffff_0000;
            assert_eq!(upper.to_bits(), nearest, "{value:e}");
        }
        // The update and the norm of the same numbers, split and not.
        for it in &mut values {
            *it = it.clamp(-1e4, 1e4);
        }
        split.write(&cpu, 0, &values);
        let [g, m, v] = [5, 6, 7].map(|seed| numbers(n + 13, seed));
        let v: Vec<f32> = v.iter().map(|it| it.abs()).collect();
        let (g, mut w) = (buf(&cpu, &g), weight(&plain, shape, Held::Trained, &values));
        let update = |cpu: &Cpu, w: &mut CpuWeight, moments: MomentsMut<'_, CpuBuf>| {
            let placed = Placed { at: 13, len: n, numbers: NumbersMut::Weight(w) };
            cpu.adamw(step, &g, moments, vec![placed]);
        };
        let plain_read = |w: &CpuWeight| {
            let mut all = vec![0.0; n];
            w.read(&plain, 0, &mut all);
            all
        };
        let (mut m1, mut v1) = (buf(&cpu, &m), buf(&cpu, &v));
        let (mut m2, mut v2) = (buf(&cpu, &m), buf(&cpu, &v));
        update(&plain, &mut w, MomentsMut::F32([&mut m1, &mut v1]));
        update(&cpu, &mut split, MomentsMut::F32([&mut m2, &mut v2]));
        assert_eq!(bits(&read(&split)), bits(&plain_read(&w)));
        assert_eq!(bits(m2.as_slice()), bits(m1.as_slice()));
        assert_eq!(bits(v2.as_slice()), bits(v1.as_slice()));
        // The same with moments in bf16, from the second half of a word on.
        let moments = || {
            let words = NumberFormat::Bf16.words(n + 13);
            [0; 2].map(|_| cpu.alloc(words, NumberFormat::F32).unwrap())
        };
        let (mut one, mut two) = (moments(), moments());
        for _ in 0..3 {
            let buffers = one.each_mut();
            update(&plain, &mut w, MomentsMut::Bf16 { buffers, seed: 5 });
            let buffers = two.each_mut();
            update(&cpu, &mut split, MomentsMut::Bf16 { buffers, seed: 5 });
        }
        assert_eq!(bits(&read(&split)), bits(&plain_read(&w)));
        for (one, two) in one.iter().zip(&two) {
            assert_eq!(bits(one.as_slice()), bits(two.as_slice()));
        }
        let norm = cpu.squared_norms(&[Numbers::Weight(&split)])[0];
        let exact: f64 = plain_read(&w).iter().map(|it| f64::from(*it).powi(2)).sum();
        assert!((norm - exact).abs() <= 1e-12 * exact, "{norm} and {exact}");
    }
}

#[test]
fn what_a_cpu_cannot_multiply_is_an_error_that_says_so() {
    let error = Cpu::computing(1, Compute::Tf32).unwrap_err();
    assert_eq!(error.to_string(), "compute = \"tf32\": the CPU has no TF32 products");
    assert_eq!(Cpu::computing(1, Compute::F32).unwrap().compute(), Compute::F32);
    match Cpu::computing(1, Compute::Bf16) {
        Ok(it) => assert_eq!((it.compute(), multiplies_bf16()), (Compute::Bf16, true)),
        Err(it) => {
            assert!(!multiplies_bf16());
            assert!(it.to_string().contains("avx512_bf16"), "{it}");
        }
    }
}
