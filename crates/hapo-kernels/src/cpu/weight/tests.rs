//! Products with weights in panels against those with weights in f32.

use half::bf16;

use super::*;
use crate::number_format::NumberFormat;
use crate::shapes::Accumulate;
use crate::weight::{Numbers, Output};

const FROZEN: Held = Held::Frozen(NumberFormat::Bf16);

fn buf(cpu: &Cpu, values: &[f32]) -> CpuBuf {
    let mut it = cpu.alloc(values.len(), NumberFormat::F32).unwrap();
    cpu.upload(values, it.first_mut(values.len()));
    it
}

fn weight(cpu: &Cpu, shape: [usize; 2], held: Held, values: &[f32]) -> CpuWeight {
    let mut it = CpuWeight::zeros(cpu, shape, held).unwrap();
    it.write(cpu, 0, values);
    it
}

/// Numbers in (−1, 1), rounded to bf16 if `round`.
fn numbers(n: usize, seed: u32, round: bool) -> Vec<f32> {
    let mut state = seed;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let it = state as f32 / 2_147_483_648.0 - 1.0;
            if round { bf16::from_f32(it).to_f32() } else { it }
        })
        .collect()
}

#[test]
fn bf16_weights_give_the_bits_of_the_other_products() {
    for (rows, inputs, outputs) in [
        (1, 1, 1),
        (2, 7, 31),
        (3, 64, 33),
        (5, 513, 32),
        (8, 896, 128),
        (9, 1100, 97),
        (21, 40, 70),
        (65, 513, 65),
        (800, 70, 200),
        (900, 1040, 1000),
    ] {
        let shape = MatShape { rows, inputs, outputs };
        let (x, w) = (numbers(rows * inputs, 1, false), numbers(inputs * outputs, 2, true));
        let bias = numbers(outputs, 3, false);
        let before = numbers(rows * outputs, 4, false);
        for threads in [1, 2] {
            let cpu = Cpu::new(threads).unwrap();
            let (x, bias) = (buf(&cpu, &x), buf(&cpu, &bias));
            let matrix = [inputs, outputs];
            let wide = weight(&cpu, matrix, Held::Trained, &w);
            let mut quick = weight(&cpu, matrix, Held::Trained, &w);
            assert!(quick.pack_for_decode(&cpu).unwrap());
            let packed = weight(&cpu, matrix, FROZEN, &w);
            for kind in 0..3 {
                let onto = || match kind {
                    0 => Accumulate::Nothing,
                    1 => Accumulate::Existing,
                    _ => Accumulate::Bias(bias.first(outputs)),
                };
                let product = |weight: &CpuWeight| {
                    let mut y = buf(&cpu, &before);
                    let output = Output {
                        shape,
                        pair: None,
                        weight,
                        onto: onto(),
                        y: y.first_mut(before.len()),
                    };
                    cpu.product(x.first(x.len()), None, vec![output]);
                    y.as_slice().to_vec()
                };
                let expected = product(&wide);
                assert_eq!(product(&packed), expected, "{shape:?}, onto {kind}");
                assert_eq!(product(&quick), expected, "{shape:?}, onto {kind}");
            }
        }
    }
}

#[test]
fn packed_weights_are_all_that_is_needed() {
    for (rows, inputs, outputs) in [(1, 3, 5), (7, 70, 1030), (700, 130, 97), (800, 64, 513)] {
        let shape = MatShape { rows, inputs, outputs };
        let (w, dy) = (numbers(inputs * outputs, 2, true), numbers(rows * outputs, 3, false));
        let before = numbers(rows * inputs, 4, false);
        let mut all = Vec::new();
        for threads in [1, 2] {
            let cpu = Cpu::new(threads).unwrap();
            let wide = weight(&cpu, [inputs, outputs], Held::Trained, &w);
            let packed = weight(&cpu, [inputs, outputs], FROZEN, &w);
            let mut back = vec![0.0; w.len()];
            packed.read(&cpu, 0, &mut back);
            assert_eq!(back, w);
            let tokens: Vec<u32> = (0..outputs as u32).rev().collect();
            let mut x = buf(&cpu, &w);
            let layout = EmbeddingLayout::Columns { vocabulary: outputs };
            cpu.gather_rows(layout, &tokens, Numbers::Weight(&packed), x.first_mut(w.len()));
            for (row, &token) in x.as_slice().chunks(inputs).zip(&tokens) {
                let column = w[token as usize..].iter().step_by(outputs);
                assert!(row.iter().eq(column));
            }
            let dy = buf(&cpu, &dy);
            for existing in [false, true] {
                let grad = |weight: &CpuWeight| {
                    let onto = if existing { Accumulate::Existing } else { Accumulate::Nothing };
                    let mut dx = buf(&cpu, &before);
                    let to = dx.first_mut(before.len());
                    cpu.product_input_grad(shape, dy.first(dy.len()), weight, onto, to);
                    dx.as_slice().to_vec()
                };
                let (a, b) = (grad(&wide), grad(&packed));
                for (a, b) in a.iter().zip(&b) {
                    assert!((a - b).abs() < 1e-4, "{shape:?}: {a} and {b}");
                }
                all.push(b);
            }
        }
        let (one, two) = all.split_at(2);
        assert_eq!(one, two, "{shape:?} depends on the number of threads");
    }
}

#[test]
fn other_weights_are_told_apart_and_rounded() {
    let cpu = Cpu::new(1).unwrap();
    let mut wide = weight(&cpu, [1, 2], Held::Trained, &[1.0, 1.001]);
    assert!(!wide.pack_for_decode(&cpu).unwrap());
    let packed = weight(&cpu, [1, 2], FROZEN, &[1.0, 1.001]);
    let mut back = [0.0; 2];
    packed.read(&cpu, 0, &mut back);
    assert_eq!(back, [1.0, 1.0]);
}

/// A copy of the numbers before would be read by few rows, and only by them.
#[test]
fn a_write_and_an_update_undo_the_copy_for_few_rows() {
    let cpu = Cpu::new(1).unwrap();
    let mut w = weight(&cpu, [1, 2], Held::Trained, &[1.0, 2.0]);
    assert!(w.pack_for_decode(&cpu).unwrap());
    w.write(&cpu, 1, &[4.0]);
    let (x, mut y) = (buf(&cpu, &[1.0]), buf(&cpu, &[0.0; 2]));
    let shape = MatShape { rows: 1, inputs: 1, outputs: 2 };
    let output =
        Output { shape, pair: None, weight: &w, onto: Accumulate::Nothing, y: y.first_mut(2) };
    cpu.product(x.first(1), None, vec![output]);
    assert_eq!(y.as_slice(), [1.0, 4.0]);
}
