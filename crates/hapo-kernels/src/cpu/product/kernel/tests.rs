//! Every instruction set, every layout of the factors and every cut gives the bits of the definition, written as a loop.

use super::*;
use crate::cpu::buffer::CpuBuf;
use crate::cpu::convert::nearest;
use crate::cpu::pool::Cpu;
use crate::cpu::product::f32::{forward, weight_grad};
use crate::isa::{CHOSEN, Isa};
use crate::shapes::{Accumulate, MatShape};
use crate::span::Buffer;

/// Numbers in [-1, 1), or among them zeros of both signs, denormals, infinities and NaN.
struct Source {
    state: u64,
    special: bool,
}

impl Source {
    fn next(&mut self) -> u32 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.state >> 33) as u32
    }

    fn number(&mut self) -> f32 {
        const SPECIAL: [f32; 6] = [0.0, -0.0, 1e-40, -3e38, f32::INFINITY, f32::NAN];
        match self.next() % 256 {
            at @ 0..6 if self.special => SPECIAL[at as usize],
            _ => f64::from(self.next()) as f32 / (1_u32 << 30) as f32 - 1.0,
        }
    }

    fn numbers(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.number()).collect()
    }
}

/// The definition. `x [m, k]`, `w [k, n]`, `y [m, n]`.
fn defined([m, n, k]: [usize; 3], x: &[f32], w: &[f32], add: bool, y: &mut [f32]) {
    for row in 0..m {
        for column in 0..n {
            let y = &mut y[row * n + column];
            let mut add = add;
            // Without steps, there is one empty chain to write and none to add.
            let end = if add { k } else { k.max(1) };
            for first in (0..end).step_by(CHAIN) {
                let chain = (first..k.min(first + CHAIN))
                    .fold(0.0, |sum, step| x[row * k + step].mul_add(w[step * n + column], sum));
                *y = if add { *y + chain } else { chain };
                add = true;
            }
        }
    }
}

fn bits(of: &[f32]) -> Vec<u32> {
    of.iter().map(|x| if x.is_nan() { u32::MAX } else { x.to_bits() }).collect()
}

fn transposed(x: &[f32], [rows, columns]: [usize; 2]) -> Vec<f32> {
    (0..rows * columns).map(|at| x[at % rows * columns + at / rows]).collect()
}

/// Weights `[inputs, outputs]` of bf16 numbers in panels.
fn panels_of(w: &[f32], [inputs, outputs]: [usize; 2]) -> Vec<u32> {
    let mut words = vec![0; panel_words(inputs, outputs)];
    for (at, x) in w.iter().enumerate() {
        let (row, column) = (at / outputs, at % outputs);
        let (panel, column) = (column / PANEL, column % PANEL);
        words[(panel * inputs + row) * WIDTH + column % WIDTH] |=
            nearest(*x) << (column / WIDTH * 16);
    }
    words
}

/// `y [m, n]` by a set of instructions; the factors and the result begin anywhere.
fn computed(isa: Isa, p: Product, y: &[f32]) -> Vec<f32> {
    const FREE: usize = 3;
    let mut to = vec![7.0; FREE + p.m * (p.n + FREE)];
    for (row, y) in y.chunks_exact(p.n.max(1)).enumerate() {
        to[FREE + row * (p.n + FREE)..][..p.n].copy_from_slice(y);
    }
    if p.m > 0 && p.n > 0 && (p.k > 0 || !p.add) {
        let mut room = vec![f32::NAN; CHAIN * (GROUP + BLOCK)];
        CHOSEN.set(Some(isa));
        in_room(p, to[FREE..].as_mut_ptr(), p.n + FREE, &mut room);
        CHOSEN.set(None);
    }
    let rows = to[FREE..].chunks(p.n + FREE);
    assert!(to[..FREE].iter().chain(rows.clone().flat_map(|row| &row[p.n..])).all(|x| *x == 7.0));
    rows.take(p.m).flat_map(|row| &row[..p.n]).copied().collect()
}

#[test]
fn every_instruction_set_and_layout_gives_the_defined_bits() {
    let (ms, ns) =
        ([0, 1, 2, 3, 4, 7, 8, 13, 17, 64, 70], [0, 1, 15, 16, 17, 31, 48, 53, 97, 144, 151]);
    let ks = [0, 1, 2, 16, 31, 127, 511, 512, 513, 1031];
    let mut from = Source { state: 1, special: false };
    for case in 0..240 {
        from.special = case % 3 == 0;
        let pick = |of: &[usize], from: &mut Source| of[from.next() as usize % of.len()];
        let [m, n, k] = [pick(&ms, &mut from), pick(&ns, &mut from), pick(&ks, &mut from)];
        let add = case % 2 == 0;
        let (x, mut w) = (from.numbers(m * k), from.numbers(k * n));
        for x in &mut w {
            *x = f32::from_bits(nearest(*x) << 16);
        }
        let y = from.numbers(m * n);
        let mut expected = y.clone();
        defined([m, n, k], &x, &w, add, &mut expected);
        let offset = |of: &[f32]| [&[0.0], of].concat();
        let (x_rows, x_columns) = (offset(&x), offset(&transposed(&x, [m, k])));
        let (w_rows, w_columns) = (offset(&w), offset(&transposed(&w, [k, n])));
        let (words, turned) = (panels_of(&w, [k, n]), panels_of(&transposed(&w, [k, n]), [n, k]));
        let lefts = [
            Left { data: &x_rows[1..], row_stride: k, step_stride: 1 },
            Left { data: &x_columns[1..], row_stride: 1, step_stride: m },
        ];
        let rights = [
            Right::Numbers { data: &w_rows[1..], step_stride: n, column_stride: 1 },
            Right::Numbers { data: &w_columns[1..], step_stride: 1, column_stride: k },
            Right::Panels { words: &words, steps: k },
            Right::Turned { words: &turned, columns: n },
        ];
        for (isa, left) in Isa::all().into_iter().flat_map(|isa| lefts.map(|left| (isa, left))) {
            for (i, right) in rights.into_iter().enumerate() {
                let got = computed(isa, Product { m, n, k, left, right, column: 0, add }, &y);
                assert_eq!(bits(&got), bits(&expected), "{isa:?}, {m} × {n} × {k}, layout {i}");
            }
        }
    }
}

#[test]
fn threads_and_the_number_of_rows_change_no_bits() {
    let mut from = Source { state: 5, special: false };
    // 1,024 and 2,048 outputs are whole pages.
    for (rows, inputs, outputs) in
        [(1, 577, 300), (4, 521, 1024), (16, 40, 2048), (17, 600, 97), (401, 530, 61)]
    {
        let shape = MatShape { rows, inputs, outputs };
        let (x, w) = (from.numbers(rows * inputs), from.numbers(inputs * outputs));
        let (dy, bias) = (from.numbers(rows * outputs), from.numbers(outputs));
        let mut biases = CpuBuf::zeros(outputs).unwrap();
        biases.as_mut_slice().copy_from_slice(&bias);
        let onto_bias = Accumulate::Bias(biases.first(outputs));
        let old = from.numbers(inputs * outputs.max(rows));
        let run = |threads: usize| {
            let cpu = Cpu::new(threads).unwrap();
            let (mut y, mut dx) = (vec![0.0; rows * outputs], old[..rows * inputs].to_vec());
            let mut dw = old[..inputs * outputs].to_vec();
            let right = |step_stride, column_stride| Right::Numbers {
                data: &w,
                step_stride,
                column_stride,
            };
            forward(&cpu, shape, &x, right(outputs, 1), &onto_bias, &mut y);
            let turned = MatShape { rows, inputs: outputs, outputs: inputs };
            forward(&cpu, turned, &dy, right(1, outputs), &Accumulate::Existing, &mut dx);
            weight_grad(&cpu, shape, &x, &dy, &Accumulate::Existing, &mut dw);
            [y, dx, dw].map(|it| bits(&it))
        };
        let one = run(1);
        assert!([2, 3, 5].iter().all(|threads| run(*threads) == one), "{shape:?}");
        let mut y = bias.repeat(rows);
        defined([rows, outputs, inputs], &x, &w, true, &mut y);
        assert_eq!(one[0], bits(&y), "{shape:?}: y");
        let mut dx = old[..rows * inputs].to_vec();
        defined([rows, inputs, outputs], &dy, &transposed(&w, [inputs, outputs]), true, &mut dx);
        assert_eq!(one[1], bits(&dx), "{shape:?}: dx");
        let mut dw = old[..inputs * outputs].to_vec();
        defined([inputs, outputs, rows], &transposed(&x, [rows, inputs]), &dy, true, &mut dw);
        assert_eq!(one[2], bits(&dw), "{shape:?}: dw");
        let (cpu, last) = (Cpu::new(1).unwrap(), rows - 1);
        let mut alone = vec![0.0; outputs];
        let x = &x[last * inputs..];
        let right = Right::Numbers { data: &w, step_stride: outputs, column_stride: 1 };
        forward(&cpu, MatShape { rows: 1, ..shape }, x, right, &onto_bias, &mut alone);
        assert_eq!(bits(&alone), one[0][last * outputs..], "{shape:?}: one row alone");
    }
}

#[test]
fn no_rows_are_no_work_and_no_steps_add_nothing() {
    let (cpu, shape) = (Cpu::new(2).unwrap(), MatShape { rows: 0, inputs: 3, outputs: 2 });
    let right = Right::Numbers { data: &[1.0; 6], step_stride: 2, column_stride: 1 };
    forward(&cpu, shape, &[], right, &Accumulate::Nothing, &mut []);
    let mut dw = [7.0; 6];
    weight_grad(&cpu, shape, &[], &[], &Accumulate::Existing, &mut dw);
    assert_eq!(dw, [7.0; 6]);
    weight_grad(&cpu, shape, &[], &[], &Accumulate::Nothing, &mut dw);
    assert_eq!(dw, [0.0; 6]);
}
