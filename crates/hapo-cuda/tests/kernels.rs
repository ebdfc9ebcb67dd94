//! Every operation against the CPU's, on shapes that do not fit the tiles, with the kernels run on
//! the CPU as fibers.

mod support;

use hapo_cuda::{CudaDevice, CudaWeight};
use hapo_kernels::{
    Accumulate, Activation, AdamW, Attention, AttentionDecode, AttentionGrad, AttentionShape,
    Beside, Buffer, BufferSize, CacheAppend, CacheLayer, CacheRow, Compute, Cpu, Device, DrawRow,
    EmbeddingLayout, HeadGrad, HeadPart, HeadStats, HeadTarget, Heads, Held, MatShape, Matrix,
    MomentsMut, NumberFormat, Numbers, NumbersMut, Output, PAGE, Pair, Placed, RmsNorm,
    RmsNormGrad, Rotation, SegmentRow, Span, SpanMut, draw,
};
use hapo_sampler::{Decoding, Truncation};
use support::Machine;
use support::mutants::{MUTANT, MUTANTS};

fn cpu() -> Cpu {
    Cpu::new(1).unwrap()
}

fn fibers() -> Option<CudaDevice<Machine>> {
    support::gpu(Compute::F32)
}

/// Numbers in (−1, 1).
fn numbers(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(747_796_405).wrapping_add(1);
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 8_388_608.0 - 1.0
        })
        .collect()
}

fn buf<D: Device>(device: &D, values: &[f32]) -> D::Buf {
    let mut it = device.alloc(values.len(), NumberFormat::F32).unwrap();
    device.upload(values, it.first_mut(values.len()));
    it
}

/// The same in a format.
fn buf_as<D: Device>(device: &D, values: &[f32], format: NumberFormat) -> D::Buf {
    let mut it = device.alloc(values.len(), format).unwrap();
    device.upload(values, it.first_mut(values.len()));
    it
}

/// The same values in the device's format for factors.
fn factor<D: Device>(device: &D, values: &[f32]) -> D::Buf {
    buf_as(device, values, device.caps().factors())
}

/// A matrix `[inputs, outputs]` in the order of the device.
fn held<D: Device>(device: &D, shape: [usize; 2], values: &[f32]) -> Vec<f32> {
    if device.caps().holds_published() { turned(shape, values) } else { values.to_vec() }
}

/// `[rows, columns]` to `[columns, rows]`.
fn turned([rows, columns]: [usize; 2], values: &[f32]) -> Vec<f32> {
    (0..values.len()).map(|i| values[i % rows * columns + i / rows]).collect()
}

fn weight<D: Device>(device: &D, shape: [usize; 2], as_held: Held, values: &[f32]) -> D::Weight {
    let mut it = D::Weight::zeros(device, shape, as_held).unwrap();
    it.write(device, 0, &held(device, shape, values));
    it
}

/// Numbers of a matrix, or its gradient, from the order of the device.
fn by_inputs<D: Device>(device: &D, [inputs, outputs]: [usize; 2], values: &[f32]) -> Vec<f32> {
    held(device, [outputs, inputs], values)
}

fn read_weight<D: Device>(device: &D, shape: [usize; 2], weight: &D::Weight) -> Vec<f32> {
    let mut values = vec![0.0; shape[0] * shape[1]];
    weight.read(device, 0, &mut values);
    device.check().unwrap();
    by_inputs(device, shape, &values)
}

/// Numbers in (−1, 1) that bf16 holds.
fn halves_of(n: usize, seed: u32) -> Vec<f32> {
    rounded(&numbers(n, seed))
}

fn read<D: Device>(device: &D, buf: &D::Buf) -> Vec<f32> {
    let mut values = vec![0.0; buf.len()];
    device.download(all(buf), &mut values);
    device.check().unwrap();
    values
}

/// Two bf16 numbers of a word.
fn halves(word: f32) -> [f32; 2] {
    [word.to_bits() << 16, word.to_bits() & 0xffff_0000].map(f32::from_bits)
}

/// The rows of a norm, with room for pairs beside them.
fn normed<D: Device>(device: &D, size: BufferSize, format: NumberFormat, from: &[f32]) -> D::Buf {
    let mut y = device.alloc(size, format).unwrap();
    let mut inverse = buf(device, &vec![0.0; size.rows]);
    let (from, ones) = (buf(device, from), buf(device, &vec![1.0; size.width]));
    device.rms_norm(RmsNorm {
        eps: 1e-6,
        offset: 0.0,
        x: all(&from),
        w: all(&ones),
        y: all_mut(&mut y),
        inverse_rms: all_mut(&mut inverse),
        residual: None,
    });
    y
}

fn all<B: Buffer>(buf: &B) -> Span<'_, B> {
    buf.first(buf.len())
}

fn all_mut<B: Buffer>(buf: &mut B) -> SpanMut<'_, B> {
    let len = buf.len();
    buf.first_mut(len)
}

fn near(what: &str, ours: &[f32], theirs: &[f32], tolerance: f32) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    let tolerance = tolerance * support::slack();
    for (i, (a, b)) in ours.iter().zip(theirs).enumerate() {
        let off = (a - b).abs();
        assert!(off <= tolerance * b.abs().max(1.0), "{what}: element {i} is {a}, on the CPU {b}");
    }
}

/// Runs one piece of work on both devices and compares the results. On the fibers it runs four times: order and copies
/// change from launch to launch, and bits must not.
macro_rules! both {
    ($what:expr, $tolerance:expr, $work:expr) => {
        both!($what, $tolerance, Compute::F32, $work)
    };
    ($what:expr, $tolerance:expr, $products:expr, $work:expr) => {{
        let Some(gpu) = support::gpu($products) else { return };
        let (ours, theirs): (Vec<Vec<f32>>, Vec<Vec<f32>>) = ($work(&gpu), $work(&cpu()));
        for _ in 1..4 {
            assert_eq!(ours, $work(&gpu), "{}: bits depend on the schedule", $what);
        }
        for (i, (a, b)) in ours.iter().zip(&theirs).enumerate() {
            near(&format!("{}, result {i}", $what), a, b, $tolerance);
        }
    }};
}

/// Relative error of bf16, twice: the result is read and stored again.
const STORED_IN_BF16: f32 = 1.0 / 128.0;

#[test]
fn products() {
    for (rows, inputs, outputs) in [(1, 1, 1), (1, 33, 7), (5, 64, 31), (18, 7, 40), (0, 4, 3)] {
        fn work<D: Device>(
            device: &D,
            rows: usize,
            inputs: usize,
            outputs: usize,
        ) -> Vec<Vec<f32>> {
            let shape = MatShape { rows, inputs, outputs };
            let x = factor(device, &halves_of(rows * inputs + 3, 1));
            let w = halves_of(inputs * outputs, 2);
            // In the device's own form, and in f32, from which factors are rounded.
            let [w, plain] =
                [Held::Trained, Held::Plain].map(|it| weight(device, [inputs, outputs], it, &w));
            let dy = factor(device, &halves_of(rows * outputs, 3));
            let bias = buf(device, &halves_of(outputs, 4));
            let other = halves_of(inputs * outputs, 9);
            let other = weight(device, [inputs, outputs], Held::Trained, &other);
            // A span that does not begin at the buffer's beginning.
            let x = x.at(3, rows * inputs);
            let mut results = Vec::new();
            for kind in 0..4 {
                let onto = || match kind {
                    0 => Accumulate::Nothing,
                    1 => Accumulate::Existing,
                    2 => Accumulate::Multiplied(-0.3),
                    _ => Accumulate::Bias(all(&bias)),
                };
                // A product with a bias is stored in f32.
                let before = halves_of(rows * outputs, 5);
                let to = || if kind < 3 { factor(device, &before) } else { buf(device, &before) };
                for w in [&w, &plain] {
                    let mut y = to();
                    let output =
                        Output { shape, pair: None, weight: w, onto: onto(), y: all_mut(&mut y) };
                    device.product(x, None, vec![output]);
                    results.push(read(device, &y));
                }
                for second in [&other, &plain] {
                    let mut pair = [to(), to()];
                    let [y, z] = pair.each_mut().map(all_mut);
                    let outputs = vec![
                        Output { shape, pair: None, weight: &w, onto: onto(), y },
                        Output { shape, pair: None, weight: second, onto: onto(), y: z },
                    ];
                    device.product(x, None, outputs);
                    results.extend(pair.iter().map(|it| read(device, it)));
                }
                if kind < 3 {
                    let mut dx = factor(device, &halves_of(rows * inputs, 6));
                    device.product_input_grad(shape, all(&dy), &w, onto(), all_mut(&mut dx));
                    results.push(read(device, &dx));
                }
                if kind < 2 {
                    let before = held(device, [inputs, outputs], &halves_of(inputs * outputs, 7));
                    let mut dw = buf(device, &before);
                    device.product_weight_grad(shape, x, all(&dy), onto(), all_mut(&mut dw));
                    results.push(by_inputs(device, [inputs, outputs], &read(device, &dw)));
                }
            }
            let mut sums = buf(device, &halves_of(outputs, 8));
            device.add_column_sums(outputs, all(&dy), all_mut(&mut sums));
            results.push(read(device, &sums));
            results
        }
        for (products, tolerance) in [(Compute::F32, 1e-5), (Compute::Bf16, STORED_IN_BF16)] {
            let what = format!("{rows} × {inputs} × {outputs}, {products:?}");
            both!(what, tolerance, products, |d: &_| work(d, rows, inputs, outputs));
        }
    }
}

/// Matrices beside each other, with pairs beside some of them.
fn paired<D: Device, const N: usize>(
    device: &D,
    shape: [usize; 2],
    have_pairs: [bool; N],
    rank: usize,
    seed: u32,
) -> (Vec<D::Weight>, Vec<[D::Weight; 2]>) {
    let small = |n: usize, seed| -> Vec<f32> {
        halves_of(n, seed).into_iter().map(|it| it / 8.0).collect()
    };
    let put = |w: &mut D::Weight, shape: [usize; 2], values: &[f32]| {
        w.write(device, 0, &held(device, shape, values));
    };
    let mut all = D::Weight::zeros_beside(device, &[shape; N], Held::Trained).unwrap();
    let len = shape[0] * shape[1];
    for (w, seed) in all.iter_mut().zip(seed..) {
        put(w, shape, &small(len, seed));
    }
    let beside = all.iter_mut().zip(have_pairs);
    let beside = beside.map(|(weight, has_pair)| Beside { weight, shape, has_pair });
    let mut pairs = D::Weight::pairs(device, rank, beside.collect()).unwrap();
    let [inputs, outputs] = shape;
    for ([a, b], seed) in pairs.iter_mut().zip((seed + 2..).step_by(2)) {
        put(a, [inputs, rank], &small(inputs * rank, seed));
        // In two pieces.
        let values = held(device, [rank, outputs], &halves_of(rank * outputs, seed + 1));
        let middle = values.len() / 3;
        b.write(device, middle, &values[middle..]);
        b.write(device, 0, &values[..middle]);
    }
    (all, pairs)
}

/// Rows of a norm with pairs: two matrices at once, one of them with a bias, then the gated product with one that is
/// added, and the gradients that read or write rows with room behind them.
fn pairs<D: Device>(device: &D, shape: MatShape, rank: usize) -> Vec<Vec<f32>> {
    let MatShape { rows, inputs, outputs } = shape;
    let factors = device.caps().factors();
    // Results of about 1.
    let small = |n: usize, seed| -> Vec<f32> {
        halves_of(n, seed).into_iter().map(|it| it / 8.0).collect()
    };
    let back = MatShape { rows, inputs: outputs, outputs: inputs };
    let (both, of_both) = paired(device, [inputs, outputs], [true; 2], rank, 1);
    let (down, of_down) = paired(device, [outputs, inputs], [true], rank, 7);
    let down = &down[0];
    let scale = 0.5;
    let mut low = device.alloc(rows * rank, factors).unwrap();

    // A norm's rows in the format of factors, and in f32, from which factors are rounded.
    let mut results = Vec::new();
    let bias = buf(device, &halves_of(outputs, 10));
    for (format, with_bias) in [(NumberFormat::F32, true), (factors, false)] {
        let size = BufferSize { rows, width: inputs, room: 2 * rank };
        let x = normed(device, size, format, &numbers(rows * inputs, 11));
        let to = if with_bias { NumberFormat::F32 } else { factors };
        let mut ys = device.alloc_beside(rows, &[outputs; 2], to).unwrap();
        let outputs_of =
            ys.iter_mut().zip(both.iter().zip(&of_both)).map(|(y, (weight, [a, b]))| {
                let bias = with_bias.then(|| Accumulate::Bias(all(&bias)));
                let onto = bias.unwrap_or(Accumulate::Nothing);
                let pair = Some(Pair { a, b, rank, scale });
                Output { shape, weight, pair, onto, y: all_mut(y) }
            });
        device.product(all(&x), Some(&mut low), outputs_of.collect());
        results.extend(ys.iter().map(|it| read(device, it)));
        let mut dw = buf(device, &vec![0.0; inputs * outputs]);
        let dy = factor(device, &small(rows * outputs, 14));
        device.product_weight_grad(shape, all(&x), all(&dy), Accumulate::Nothing, all_mut(&mut dw));
        results.push(by_inputs(device, [inputs, outputs], &read(device, &dw)));
        if with_bias {
            continue;
        }
        let [gate, up] = &mut ys[..] else { panic!("two results") };
        let mut h = device.alloc(BufferSize { rows, width: outputs, room: rank }, factors).unwrap();
        device.gated(Activation::Silu, all(gate), all(up), all_mut(&mut h));
        let mut y = buf(device, &numbers(rows * inputs, 12));
        let ([a, b], onto) = (&of_down[0], Accumulate::Existing);
        let pair = Some(Pair { a, b, rank, scale });
        let output = Output { shape: back, weight: down, pair, onto, y: all_mut(&mut y) };
        device.product(all(&h), Some(&mut low), vec![output]);
        results.push(read(device, &y));
        let dy = factor(device, &small(rows * inputs, 13));
        device.product_input_grad(back, all(&dy), down, Accumulate::Nothing, all_mut(&mut h));
        device.gated_grad(Activation::Silu, all_mut(gate), all_mut(up), all_mut(&mut h));
        device.product_weight_grad(back, all(&h), all(&dy), Accumulate::Nothing, all_mut(&mut dw));
        let dw = by_inputs(device, [outputs, inputs], &read(device, &dw));
        results.extend([read(device, gate), read(device, up), dw]);
        // Gradients beside each other are factors in turn.
        let mut dx = factor(device, &vec![0.0; rows * inputs]);
        device.product_input_grad(shape, all(up), &both[1], Accumulate::Nothing, all_mut(&mut dx));
        let mut dw = buf(device, &vec![0.0; inputs * outputs]);
        device.product_weight_grad(shape, all(&x), all(up), Accumulate::Nothing, all_mut(&mut dw));
        let dw = by_inputs(device, [inputs, outputs], &read(device, &dw));
        results.extend([read(device, &dx), dw]);
    }
    results
}

#[test]
fn products_with_pairs() {
    for (rows, inputs, outputs, rank) in [(1, 8, 4, 1), (5, 64, 31, 3), (18, 33, 40, 8)] {
        let shape = MatShape { rows, inputs, outputs };
        for (products, tolerance) in [(Compute::F32, 1e-5), (Compute::Bf16, 0.02)] {
            let what = format!("{shape:?}, rank {rank}, {products:?}");
            both!(what, tolerance, products, |d: &_| pairs(d, shape, rank));
        }
    }
}

/// The B of a pair has its copy behind its matrix, also when it is exchanged with another.
#[test]
fn a_pair_is_exchanged_with_its_copy() {
    let shape = MatShape { rows: 3, inputs: 16, outputs: 24 };
    let (rank, len) = (4, 4 * 24);
    for products in [Compute::F32, Compute::Bf16] {
        let Some(gpu) = support::gpu(products) else {
            return;
        };
        let factors = gpu.caps().factors();
        let (w, mut pairs) = paired(&gpu, [16, 24], [true], rank, 1);
        let [a, b] = &mut pairs[0];
        let size = BufferSize { rows: 3, width: 16, room: rank };
        let x = normed(&gpu, size, factors, &numbers(48, 3));
        let product = |b: &_| {
            let mut y = buf(&gpu, &[0.0; 72]);
            let (onto, pair) = (Accumulate::Nothing, Some(Pair { a, b, rank, scale: 2.0 }));
            let output = Output { shape, weight: &w[0], pair, onto, y: all_mut(&mut y) };
            gpu.product(all(&x), None, vec![output]);
            read(&gpu, &y)
        };
        let [old, new] = [4, 5].map(|seed| halves_of(len, seed));
        b.write(&gpu, 0, &old);
        let (mut copy, with_old) = (b.copy_of(&gpu).unwrap(), product(b));
        b.write(&gpu, 0, &new);
        let with_new = product(b);
        assert_ne!(with_old, with_new);
        b.swap(&gpu, &mut copy);
        assert_eq!(product(b), with_old);
        b.swap(&gpu, &mut copy);
        let mut read = vec![0.0; len];
        b.read(&gpu, 0, &mut read);
        assert_eq!((product(b), read), (with_new, new));
    }
}

/// Every error of the table is found by the test that it names, in a process whose kernels have it.
#[test]
fn mutants_of_the_kernels_are_caught() {
    if hapo_testing::slow() {
        return;
    }
    let page = include_str!("../../../docs/cuda.md");
    if !support::is_emulator() || support::mutants::wanted().is_some() {
        return;
    }
    for mutant in &MUTANTS {
        let row = format!("| {} | `{}` |", mutant.name, mutant.test);
        assert!(page.contains(&row), "docs/cuda.md has no row {row}");
        if support::build_with(Some(mutant)).is_none() {
            return;
        }
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", mutant.test, "--nocapture"])
            .env(MUTANT, mutant.name)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let failed = text.contains(&format!("test {} ... FAILED", mutant.test));
        let text = String::from_utf8_lossy(&output.stderr);
        let is_seen = text.contains("the same bits")
            || text.contains(", on the CPU ")
            || text.contains(", position ")
            || text.contains("a copy that nobody waits for");
        assert!(failed && is_seen, "{mutant:?}: {text}");
    }
}

#[test]
fn norms() {
    // Rows to a warp and rows to a block, rows beyond one part of the sums over rows.
    for (rows, width) in [(1, 1), (9, 16), (70, 48), (150, 128), (3, 513), (66, 896), (0, 32)] {
        fn work<D: Device>(device: &D, rows: usize, width: usize) -> Vec<Vec<f32>> {
            let n = rows * width;
            let x = buf(device, &halves_of(n, 1));
            let w = buf(device, &halves_of(width, 2));
            let dy = factor(device, &halves_of(n, 3));
            let (mut y, mut inverse) =
                (factor(device, &vec![0.0; n]), device.alloc(rows, NumberFormat::F32).unwrap());
            let mut residual = device.alloc(n, NumberFormat::F32).unwrap();
            device.rms_norm(RmsNorm {
                eps: 1e-6,
                offset: 0.0,
                x: all(&x),
                w: all(&w),
                y: all_mut(&mut y),
                inverse_rms: all_mut(&mut inverse),
                residual: Some(all_mut(&mut residual)),
            });
            let mut results =
                vec![read(device, &y), read(device, &inverse), read(device, &residual)];
            for add in [false, true] {
                let mut dx = factor(device, &halves_of(n, 4));
                let mut dw = buf(device, &halves_of(width, 5));
                device.rms_norm_grad(RmsNormGrad {
                    offset: 0.0,
                    x: all(&x),
                    w: all(&w),
                    inverse_rms: all(&inverse),
                    dy: all(&dy),
                    onto: if add { Accumulate::Existing } else { Accumulate::Nothing },
                    dx: all_mut(&mut dx),
                    dw: all_mut(&mut dw),
                });
                results.extend([read(device, &dx), read(device, &dw)]);
            }
            results
        }
        for (products, tolerance) in [(Compute::F32, 2e-5), (Compute::Bf16, STORED_IN_BF16)] {
            let what = format!("{rows} × {width}, {products:?}");
            both!(what, tolerance, products, |d: &_| work(d, rows, width));
        }
    }
}

/// A row has the same bits wherever it lies, though its numbers are read by fours only where that is allowed.
#[test]
fn norms_do_not_depend_on_where_a_row_lies() {
    for products in [Compute::F32, Compute::Bf16] {
        let Some(gpu) = support::gpu(products) else { return };
        let gpu = &gpu;
        for width in [3, 48, 512, 514] {
            let (rows, n) = (3, 3 * width);
            let values = [halves_of(n, 1), halves_of(width, 2), halves_of(n, 3)];
            let mut seen: Vec<[Vec<f32>; 4]> = Vec::new();
            // Offsets of x, weights and gradients, and of the outputs, from the start of their buffers.
            for (shift, to) in [(0, 0), (1, 1), (0, 2), (3, 0), (2, 3)] {
                let shifted = |it: &[f32]| [&vec![0.0; shift], it].concat();
                let [x, w] = [&values[0], &values[1]].map(|it| buf(gpu, &shifted(it)));
                let dy = factor(gpu, &shifted(&values[2]));
                let (x, w, dy) = (x.at(shift, n), w.at(shift, width), dy.at(shift, n));
                let [mut y, mut dx] = [(); 2].map(|()| factor(gpu, &vec![0.0; n + to]));
                let mut residual = gpu.alloc(n + to, NumberFormat::F32).unwrap();
                let (mut inverse, mut dw) = (
                    gpu.alloc(rows, NumberFormat::F32).unwrap(),
                    gpu.alloc(width, NumberFormat::F32).unwrap(),
                );
                let copy = Some(residual.at_mut(to, n));
                gpu.rms_norm(RmsNorm {
                    eps: 1e-6,
                    offset: 0.0,
                    x,
                    w,
                    y: y.at_mut(to, n),
                    inverse_rms: all_mut(&mut inverse),
                    residual: copy,
                });
                let (at, onto) = (dx.at_mut(to, n), Accumulate::Existing);
                gpu.rms_norm_grad(RmsNormGrad {
                    offset: 0.0,
                    x,
                    w,
                    inverse_rms: all(&inverse),
                    dy,
                    onto,
                    dx: at,
                    dw: all_mut(&mut dw),
                });
                let [y, dx, residual] = [y, dx, residual].map(|it| read(gpu, &it).split_off(to));
                seen.push([y, dx, residual, read(gpu, &inverse)]);
            }
            assert!(seen.iter().all(|it| *it == seen[0]), "{width}, {products:?}");
        }
    }
}

/// Queries and keys turned as by [`Device::rope`] and values as they are, rounded once.
#[test]
fn heads_are_stored_as_attention_reads_them() {
    let Some(gpu) = support::gpu(Compute::Bf16) else { return };
    for (rows, heads, kv_heads, head_dim) in [(1, 1, 1, 8), (7, 6, 2, 16), (5, 3, 3, 128)] {
        let shape = AttentionShape::new(heads, kv_heads, head_dim);
        let positions: Vec<u32> = (0..rows as u32).map(|i| (i * 5 + 2) % 11).collect();
        let angles = numbers(11 * head_dim, 1);
        let widths = [shape.q_dim(), shape.kv_dim(), shape.kv_dim()];
        let from = [2, 3, 4].map(|i| numbers(rows * widths[i as usize - 2], i));
        let on_gpu = from.each_ref().map(|it| buf(&gpu, it));
        let [mut q, mut k, mut v] =
            from.each_ref().map(|it| gpu.alloc(it.len(), gpu.caps().attention(shape)).unwrap());
        let heads = Heads::Stored {
            from: on_gpu.each_ref().map(all),
            to: [all_mut(&mut q), all_mut(&mut k), all_mut(&mut v)],
        };
        gpu.rope(Rotation {
            shape,
            angles: all(&buf(&gpu, &angles)),
            positions: &gpu.table(&positions),
            heads,
        });
        let cpu = cpu();
        let (angles, positions) = (buf(&cpu, &angles), cpu.table(&positions));
        let mut theirs = from.each_ref().map(|it| buf(&cpu, it));
        let [q_cpu, k_cpu, _] = &mut theirs;
        let heads = Heads::Forward([all_mut(q_cpu), all_mut(k_cpu)]);
        cpu.rope(Rotation { shape, angles: all(&angles), positions: &positions, heads });
        for (i, (ours, theirs)) in [q, k, v].iter().zip(theirs).enumerate() {
            // Once: a fused multiplication may tip a number over to its neighbour.
            let (ours, theirs) = (read(&gpu, ours), rounded(&read(&cpu, &theirs)));
            near(&format!("{shape:?}, {i}"), &ours, &theirs, 1.0 / 256.0);
            let other = ours.iter().zip(&theirs).filter(|it| it.0 != it.1).count();
            assert!(other * 100 <= ours.len(), "{other} of {}", ours.len());
        }
    }
}

#[test]
fn rope_and_swiglu() {
    for (rows, heads, head_dim) in [(1, 1, 2), (7, 3, 16), (19, 2, 128), (5, 4, 48), (3, 3, 6)] {
        fn work<D: Device>(
            device: &D,
            rows: usize,
            heads: usize,
            head_dim: usize,
        ) -> Vec<Vec<f32>> {
            let positions: Vec<u32> = (0..rows as u32).map(|i| (i * 5 + 2) % 11).collect();
            let table = device.table(&positions);
            let angles = buf(device, &halves_of(11 * head_dim, 1));
            let n = rows * heads * head_dim;
            let mut x = factor(device, &halves_of(n, 2));
            let shape = AttentionShape::new(heads, 1, head_dim);
            let mut k = factor(device, &halves_of(rows * head_dim, 6));
            let both = [all_mut(&mut x), all_mut(&mut k)];
            device.rope(Rotation {
                shape,
                angles: all(&angles),
                positions: &table,
                heads: Heads::Forward(both),
            });
            let turned = [read(device, &x), read(device, &k)].concat();
            let both = [all_mut(&mut x), all_mut(&mut k)];
            device.rope(Rotation {
                shape,
                angles: all(&angles),
                positions: &table,
                heads: Heads::Backward(both),
            });
            let back = [read(device, &x), read(device, &k)].concat();
            let (mut gate, mut up) =
                (factor(device, &halves_of(n, 3)), factor(device, &halves_of(n, 4)));
            let mut h = factor(device, &vec![0.0; n]);
            device.gated(Activation::Silu, all(&gate), all(&up), all_mut(&mut h));
            let forward = read(device, &h);
            let mut dh = factor(device, &halves_of(n, 5));
            device.gated_grad(
                Activation::Silu,
                all_mut(&mut gate),
                all_mut(&mut up),
                all_mut(&mut dh),
            );
            vec![turned, back, forward, read(device, &gate), read(device, &up), read(device, &dh)]
        }
        for (products, tolerance) in [(Compute::F32, 2e-6), (Compute::Bf16, STORED_IN_BF16)] {
            let what = format!("{rows}, {heads}, {head_dim}, {products:?}");
            both!(what, tolerance, products, |d: &_| work(d, rows, heads, head_dim));
        }
    }
}

#[test]
fn embeddings_and_rows() {
    for (tokens, width, vocabulary) in [(1, 1, 1), (13, 24, 10), (300, 40, 7), (4, 300, 50)] {
        fn work<D: Device>(device: &D, n: usize, width: usize, vocabulary: usize) -> Vec<Vec<f32>> {
            let ids: Vec<u32> =
                (0..n).map(|i| (i * i * 7 + 3) as u32 % vocabulary as u32).collect();
            let table = device.table(&ids);
            let dx = buf(device, &numbers(n * width, 1));
            let mut results = Vec::new();
            let layout = EmbeddingLayout::Rows { width };
            let mut embedding = D::Weight::zeros(device, [vocabulary, width], Held::Plain).unwrap();
            embedding.write(device, 0, &numbers(vocabulary * width, 2));
            let mut x = device.alloc(n * width, NumberFormat::F32).unwrap();
            device.gather_rows(layout, &table, Numbers::Weight(&embedding), all_mut(&mut x));
            let mut gradient = buf(device, &numbers(vocabulary * width, 3));
            device.embed_grad(layout, &table, all(&dx), all_mut(&mut gradient));
            // Again, from the same table.
            device.embed_grad(layout, &table, all(&dx), all_mut(&mut gradient));
            results.extend([read(device, &x), read(device, &gradient)]);
            let chosen: Vec<u32> = (0..n as u32).filter(|i| i % 3 != 1).collect();
            let table = device.table(&chosen);
            let mut y = device.alloc(chosen.len() * width, NumberFormat::F32).unwrap();
            let rows = EmbeddingLayout::Rows { width };
            device.gather_rows(rows, &table, Numbers::Span(all(&dx)), all_mut(&mut y));
            let mut x = buf(device, &numbers(n * width, 4));
            device.scatter_rows(width, &table, all(&y), all_mut(&mut x));
            let mut copy = buf(device, &numbers(n * width + 2, 5));
            device.copy(all(&x), copy.at_mut(1, n * width));
            device.fill(copy.at_mut(0, 1), 2.5);
            device.scale(copy.at_mut(1, n * width), 0.75);
            results.extend([read(device, &y), read(device, &x), read(device, &copy)]);
            results
        }
        both!(format!("{tokens}, {width}, {vocabulary}"), 0.0, |d: &_| {
            work(d, tokens, width, vocabulary)
        });
    }
}

#[test]
fn heads() {
    for (vocabulary, chunk) in [(7, 2), (300, 3), (1025, 8)] {
        fn work<D: Device>(device: &D, vocabulary: usize, chunk: usize) -> Vec<Vec<f32>> {
            let target = |row: u32, token: usize, inverse_temperature: f32| HeadTarget {
                row,
                token: (token % vocabulary) as u32,
                inverse_temperature,
            };
            // One target, several at one temperature, at two, and none in row 4.
            let targets = [
                target(0, 3, 1.0),
                target(1, 5, 1.5),
                target(1, 6, 1.5),
                target(1, 5, 1.0),
                target(1, 2, 1.5),
                target(2, 0, 0.7),
                target(3, 1, 1.0),
                target(3, 1, 1.0),
                target(5, 4, 2.0),
            ];
            let rows = 6;
            let table = device.table(&targets);
            let logits: Vec<f32> =
                numbers(rows * vocabulary, 1).into_iter().map(|it| it * 8.0).collect();
            let mut gradients = numbers(targets.len() * 2, 2);
            // Rows with and without a gradient of the entropy.
            for t in [0, 6, 7] {
                gradients[2 * t + 1] = 0.0;
            }
            let gradients = buf(device, &gradients);
            let mut stats = device.alloc(targets.len() * 6, NumberFormat::F32).unwrap();
            let mut results = Vec::new();
            for first_row in (0..rows).step_by(chunk) {
                let n = chunk.min(rows - first_row);
                let inside =
                    |t: &HeadTarget| (first_row..first_row + n).contains(&(t.row as usize));
                let part = HeadPart {
                    first_row,
                    rows: n,
                    first_target: targets.iter().position(inside).unwrap_or(0),
                    targets: targets.iter().filter(|it| inside(it)).count(),
                };
                let rows = first_row * vocabulary..(first_row + n) * vocabulary;
                let mut z = buf(device, &logits[rows]);
                device.head(HeadStats {
                    vocabulary,
                    targets: &table,
                    part,
                    logits: all(&z),
                    stats: all_mut(&mut stats),
                });
                device.head_grad(HeadGrad {
                    vocabulary,
                    targets: &table,
                    part,
                    stats: all(&stats),
                    gradients: all(&gradients),
                    logits: all_mut(&mut z),
                });
                results.push(read(device, &z));
            }
            results.push(read(device, &stats));
            results
        }
        both!(format!("{vocabulary} by {chunk}"), 5e-6, |d: &_| work(d, vocabulary, chunk));
    }
}

/// Length of a segment, and the one it continues.
type Cut = (u32, Option<usize>);

/// Segments that share prefixes, alone, of one row, beyond a tile, and a prefix that is no segment.
fn segments(lens: &[Cut]) -> (Vec<SegmentRow>, usize) {
    let mut rows: Vec<SegmentRow> = Vec::new();
    let mut start = 0;
    for (index, &(len, prefix)) in lens.iter().enumerate() {
        let (prefix_start, prefix_len) = prefix.map_or((0, 0), |p| (rows[p].start, rows[p].len));
        rows.push(SegmentRow {
            start,
            len,
            prefix_start,
            prefix_len,
            prefix_group: prefix.unwrap_or(index) as u32,
        });
        start += len;
    }
    (rows, start as usize)
}

fn attend<D: Device>(
    device: &D,
    shape: AttentionShape,
    segments: &[SegmentRow],
    rows: usize,
    backward: bool,
) -> Vec<Vec<f32>> {
    attend_to(device, shape, segments, rows, backward, &|x| x)
}

/// The same for queries, keys and values that `prepare` makes of random numbers.
fn attend_to<D: Device>(
    device: &D,
    shape: AttentionShape,
    segments: &[SegmentRow],
    rows: usize,
    backward: bool,
    prepare: &dyn Fn(Vec<f32>) -> Vec<f32>,
) -> Vec<Vec<f32>> {
    let (wide, narrow) = (rows * shape.q_dim(), rows * shape.kv_dim());
    let table = device.table(segments);
    let held = |values: &[f32]| buf_as(device, values, device.caps().attention(shape));
    let (q, k, v) = (
        held(&prepare(numbers(wide, 1))),
        held(&prepare(numbers(narrow, 2))),
        held(&prepare(numbers(narrow, 3))),
    );
    let mut out = held(&vec![0.0; wide]);
    let mut log_sums = device.alloc(rows * shape.heads, NumberFormat::F32).unwrap();
    device.attention(Attention {
        shape,
        segments: &table,
        qkv: [all(&q), all(&k), all(&v)],
        out: all_mut(&mut out),
        log_sums: all_mut(&mut log_sums),
    });
    let mut results = vec![read(device, &out), read(device, &log_sums)];
    if backward {
        let dout = held(&numbers(wide, 4));
        let (mut dq, mut dk, mut dv) =
            (held(&numbers(wide, 5)), held(&numbers(narrow, 6)), held(&numbers(narrow, 7)));
        device.attention_grad(AttentionGrad {
            shape,
            segments: &table,
            qkv: [all(&q), all(&k), all(&v)],
            out: all(&out),
            log_sums: all(&log_sums),
            dout: all(&dout),
            dqkv: [all_mut(&mut dq), all_mut(&mut dk), all_mut(&mut dv)],
        });
        results.extend([read(device, &dq), read(device, &dk), read(device, &dv)]);
    }
    results
}

#[test]
fn attention_of_packed_segments() {
    let cases: [(usize, usize, usize, &[Cut]); 7] = [
        (1, 1, 16, &[(1, None)]),
        (4, 2, 16, &[(5, None), (1, None), (70, None)]),
        (6, 2, 32, &[(33, None), (65, Some(0)), (1, Some(0)), (20, Some(0)), (9, None)]),
        (2, 1, 48, &[(31, None), (2, Some(0))]),
        (7, 1, 64, &[(40, None), (30, Some(0))]),
        (2, 2, 128, &[(66, None), (33, Some(0))]),
        (2, 1, 192, &[(18, None), (35, Some(0))]),
    ];
    for (heads, kv_heads, head_dim, lens) in cases {
        let shape = AttentionShape::new(heads, kv_heads, head_dim);
        let (table, rows) = segments(lens);
        both!(format!("{shape:?}, {lens:?}"), 1e-5, |d: &_| attend(d, shape, &table, rows, true));
    }
}

/// Five responses of 830 tokens see a prompt's tile: more queries than a chunk has.
#[test]
fn attention_of_a_prompt_that_many_queries_see() {
    let shape = AttentionShape::new(2, 1, 4);
    let lens: Vec<Cut> =
        std::iter::once((9, None)).chain(std::iter::repeat_n((830, Some(0)), 5)).collect();
    let (table, rows) = segments(&lens);
    let Some(gpu) = fibers() else { return };
    let (ours, theirs) =
        (attend(&gpu, shape, &table, rows, true), attend(&cpu(), shape, &table, rows, true));
    let largest = |it: &[f32]| it.iter().fold(1.0_f32, |most, it| most.max(it.abs()));
    for (i, (a, b)) in ours.iter().zip(&theirs).enumerate() {
        // The prompt's gradients are sums of thousands of terms.
        near(&format!("result {i}"), a, b, 1e-5 * largest(b));
    }
}

/// With bf16 products attention runs on the tensor cores: on queries, keys, values and outputs in bf16, on rounded
/// probabilities, and backward on their rounded gradients.
#[test]
fn attention_on_the_tensor_cores() {
    if hapo_testing::slow() {
        return;
    }
    let cases: [(usize, usize, usize, &[Cut]); 7] = [
        (1, 1, 16, &[(1, None)]),
        (4, 2, 16, &[(5, None), (1, None), (270, None)]),
        (6, 2, 32, &[(33, None), (165, Some(0)), (1, Some(0)), (20, Some(0)), (9, None)]),
        (7, 1, 64, &[(140, None), (30, Some(0))]),
        // A prompt's tile that ends within a tile of queries, and rows of two segments on both sides of tiles.
        (
            2,
            1,
            64,
            &[(95, None), (33, Some(0)), (0, Some(0)), (31, Some(0)), (97, None), (63, None)],
        ),
        (2, 1, 80, &[(64, None), (128, Some(0))]),
        (2, 2, 128, &[(66, None), (133, Some(0))]),
    ];
    let Some(gpu) = support::gpu(Compute::Bf16) else {
        return;
    };
    for (heads, kv_heads, head_dim, lens) in cases {
        let shape = AttentionShape::new(heads, kv_heads, head_dim);
        let (table, rows) = segments(lens);
        let ours = attend(&gpu, shape, &table, rows, true);
        for _ in 1..4 {
            assert_eq!(ours, attend(&gpu, shape, &table, rows, true), "{shape:?}: the same bits");
        }
        let expected = attend_to(&cpu(), shape, &table, rows, true, &|x| rounded(&x));
        let what = format!("{shape:?}, {lens:?}");
        near(&format!("{what}: log-sums"), &ours[1], &expected[1], 1e-5);
        // A probability is off by at most 2⁻⁹ of itself; so are a mean of values below 1 and its stored form.
        near(&format!("{what}: outputs"), &ours[0], &expected[0], 1.0 / 256.0);
        for (i, (a, b)) in ours[2..].iter().zip(&expected[2..]).enumerate() {
            // Sums over all queries that see a key.
            let largest = b.iter().fold(1.0_f32, |most, it| most.max(it.abs()));
            near(&format!("{what}: gradient {i}"), a, b, 5e-3 * largest);
        }
    }
    // Wider heads, and rows that are not made of 16 bytes, are not rounded.
    for head_dim in [20, 192] {
        let shape = AttentionShape::new(2, 1, head_dim);
        let (table, rows) = segments(&[(18, None), (35, Some(0))]);
        let ours = attend(&gpu, shape, &table, rows, true);
        for (a, b) in ours.iter().zip(attend(&cpu(), shape, &table, rows, true)) {
            near("plain f32", a, &b, 1e-5);
        }
    }
}

#[test]
fn attention_after_a_prefix_that_is_no_segment() {
    let shape = AttentionShape::new(4, 2, 16);
    let segment =
        SegmentRow { start: 70, len: 9, prefix_start: 0, prefix_len: 70, prefix_group: 0 };
    both!("a piece of a prompt", 1e-5, |d: &_| attend(d, shape, &[segment], 79, false));
}

#[test]
fn no_segments_and_no_rows_do_nothing() {
    let shape = AttentionShape::new(2, 1, 16);
    both!("nothing", 0.0, |d: &_| attend(d, shape, &[], 0, true));
}

#[test]
fn heads_too_wide_are_refused_by_name() {
    let Some(gpu) = fibers() else { return };
    let shape = AttentionShape::new(1, 1, 320);
    let (table, rows) = segments(&[(1, None)]);
    let table = gpu.table(&table);
    let x = gpu.alloc(rows * 320, NumberFormat::F32).unwrap();
    let (mut out, mut sums) =
        (gpu.alloc(320, NumberFormat::F32).unwrap(), gpu.alloc(1, NumberFormat::F32).unwrap());
    gpu.attention(Attention {
        shape,
        segments: &table,
        qkv: [all(&x), all(&x), all(&x)],
        out: all_mut(&mut out),
        log_sums: all_mut(&mut sums),
    });
    // Operations after a failure are skipped, and the failure is reported once.
    gpu.fill(all_mut(&mut out), 1.0);
    let error = gpu.check().unwrap_err().to_string();
    assert!(error.contains("heads of 320 columns"), "{error}");
    assert!(gpu.check().is_ok());
    assert_eq!(read(&gpu, &out), [0.0; 320]);
}

#[test]
fn the_cache_and_decoding() {
    if hapo_testing::slow() {
        return;
    }
    // Query heads that fill no block of eight, exactly one, and more; contexts beyond one part.
    for (heads, kv_heads, head_dim, layers) in
        [(2, 2, 16, 2), (16, 2, 32, 1), (11, 1, 64, 1), (14, 2, 128, 2), (8, 1, 128, 1)]
    {
        fn work<D: Device>(
            device: &D,
            shape: AttentionShape,
            layers: usize,
            format: NumberFormat,
            shows_cache: bool,
        ) -> Vec<Vec<f32>> {
            let width = shape.kv_dim();
            let layer = |index| CacheLayer { index, count: layers, format };
            let mut cache = device
                .alloc(format.words(10 * PAGE * layers * width * 2), NumberFormat::F32)
                .unwrap();
            // Attention rounds this step's own key as it rounds the cached ones.
            let held = device.caps().attention(shape);
            let buf = |device: &D, values: &[f32]| {
                let mut it = buf_as(device, values, held);
                if format == NumberFormat::Bf16 {
                    device.round_to_bf16(all_mut(&mut it));
                }
                it
            };
            // Two prompts whose pages are not in order; the first is one token, the second 300.
            let prompts: [(&[u32], usize); 2] = [(&[4], 1), (&[7, 2, 9, 0, 5], 300)];
            let cell =
                |pages: &[u32], at: usize| pages[at / PAGE] * PAGE as u32 + (at % PAGE) as u32;
            for (i, (pages, len)) in prompts.into_iter().enumerate() {
                for index in 0..layers {
                    // In two pieces.
                    for piece in [0..len / 3, len / 3..len] {
                        let n = piece.len() * width;
                        let seed = (i * 32 + index + piece.start) as u32;
                        let (k, v) =
                            (buf(device, &numbers(n, seed)), buf(device, &numbers(n, seed + 50)));
                        let to: Vec<u32> = piece.map(|at| cell(pages, at)).collect();
                        let to = device.table(&to);
                        device.cache_append(CacheAppend {
                            shape,
                            first: layer(index),
                            cells: &to,
                            kv: [all(&k), all(&v)],
                            cache: &mut cache,
                        });
                    }
                }
            }
            // Three sequences: two on the long prompt, with 0 and 63 own tokens; the third on the short one.
            let own: [&[u32]; 3] = [&[1], &[3, 6], &[8]];
            let of_prompt = [prompts[1], prompts[1], prompts[0]];
            let mut results = Vec::new();
            let mut len = [0, 63, 1];
            for (i, &n) in len.iter().enumerate() {
                for index in 0..layers {
                    let k = buf(device, &numbers(n * width, 90 + i as u32));
                    let to: Vec<u32> = (0..n).map(|at| cell(own[i], at)).collect();
                    let to = device.table(&to);
                    device.cache_append(CacheAppend {
                        shape,
                        first: layer(index),
                        cells: &to,
                        kv: [all(&k), all(&k)],
                        cache: &mut cache,
                    });
                }
            }
            for step in 0..2 {
                let (mut rows, mut pages, mut cells) = (Vec::new(), Vec::new(), Vec::new());
                for i in 0..3 {
                    let first_page = pages.len() as u32;
                    let (prompt_len, own_len) = (of_prompt[i].1 as u32, len[i] as u32);
                    rows.push(CacheRow { first_page, prompt_len, own_len });
                    pages.extend(of_prompt[i].0.iter().chain(own[i]));
                    cells.push(cell(own[i], len[i]));
                }
                let (table, pages) = (device.table(&rows), device.table(&pages));
                let n = rows.len();
                let q = buf(device, &numbers(n * shape.q_dim(), 200 + step));
                let news = layers * n * width;
                let (k, v) = (
                    buf(device, &numbers(news, 300 + step)),
                    buf(device, &numbers(news, 400 + step)),
                );
                for index in 0..layers {
                    let mut out = device.alloc(n * shape.q_dim(), held).unwrap();
                    device.attention_decode(AttentionDecode {
                        shape,
                        layer: layer(index),
                        rows: &table,
                        pages: &pages,
                        cache: &cache,
                        qkv: [
                            all(&q),
                            k.at(index * n * width, n * width),
                            v.at(index * n * width, n * width),
                        ],
                        out: all_mut(&mut out),
                    });
                    results.push(read(device, &out));
                }
                let cells = device.table(&cells);
                device.cache_append(CacheAppend {
                    shape,
                    first: layer(0),
                    cells: &cells,
                    kv: [all(&k), all(&v)],
                    cache: &mut cache,
                });
                for it in &mut len {
                    *it += 1;
                }
            }
            if shows_cache {
                let cache = read(device, &cache).into_iter();
                results.push(match format {
                    NumberFormat::F32 => cache.collect(),
                    NumberFormat::Bf16 => cache.flat_map(halves).collect(),
                });
            }
            results
        }
        let shape = AttentionShape::new(heads, kv_heads, head_dim);
        for (format, products, tolerance) in [
            (NumberFormat::F32, Compute::F32, 1e-5),
            (NumberFormat::Bf16, Compute::F32, 1e-5),
            (NumberFormat::Bf16, Compute::Bf16, STORED_IN_BF16),
        ] {
            let what = format!("{shape:?} {format:?} {products:?}");
            // The tensor cores' keys are not transposed.
            let shows_cache = products == Compute::F32;
            both!(what, tolerance, products, |d: &_| work(d, shape, layers, format, shows_cache));
        }
    }
}

/// A step of decoding has copies of its first row, whose keys and values go nowhere.
#[test]
fn rows_without_a_cell_are_left_out() {
    let shape = AttentionShape::new(2, 2, 16);
    for format in [NumberFormat::F32, NumberFormat::Bf16] {
        let Some(gpu) = support::gpu(Compute::Bf16) else {
            return;
        };
        let (layers, width, held) = (2, shape.kv_dim(), format);
        let appended = |rows: &[usize], cells: &[u32]| {
            let mut cache = buf_as(&gpu, &vec![0.5; 2 * layers * PAGE * width * 2], format);
            let of = |seed| {
                let all: Vec<f32> = (0..layers)
                    .flat_map(|layer| {
                        let numbers = halves_of(3 * width, seed + layer as u32);
                        let rows = rows.iter().map(|row| numbers[row * width..][..width].to_vec());
                        rows.collect::<Vec<_>>().concat()
                    })
                    .collect();
                buf_as(&gpu, &all, held)
            };
            let (k, v, cells) = (of(1), of(5), gpu.table(cells));
            let first = CacheLayer { index: 0, count: layers, format };
            gpu.cache_append(CacheAppend {
                shape,
                first,
                cells: &cells,
                kv: [all(&k), all(&v)],
                cache: &mut cache,
            });
            gpu.check().unwrap();
            read(&gpu, &cache)
        };
        let with = appended(&[0, 1, 2], &[5, hapo_kernels::NO_CELL, 70]);
        assert!(with == appended(&[0, 2], &[5, 70]), "the same bits");
        assert!(with.iter().any(|number| *number != 0.5), "something is written");
    }
}

/// Decoding on the tensor cores computes of a query what the forward pass computes of it: groups of 1 to 20 heads, widths
/// between the kernels', contexts of one tile to more than 1,024 positions.
#[test]
fn a_decoded_row_has_the_bits_of_the_forward_pass() {
    if hapo_testing::slow() {
        return;
    }
    let Some(gpu) = support::gpu(Compute::Bf16) else {
        return;
    };
    for (heads, kv_heads, head_dim, prompt, own) in [
        (2, 2, 16, 1, 1),
        (16, 2, 128, 300, 200),
        (14, 2, 64, 100, 129),
        (7, 1, 32, 64, 65),
        (12, 1, 128, 130, 70),
        (20, 1, 80, 63, 66),
        (28, 4, 128, 200, 900),
    ] {
        let shape = AttentionShape::new(heads, kv_heads, head_dim);
        let (width, rows) = (shape.kv_dim(), prompt + own);
        let part = |from: usize, width: usize, seed| {
            let all = halves_of(rows * width, seed);
            buf_as(&gpu, &all[from * width..], NumberFormat::Bf16)
        };
        let (table, _) = segments(&[(prompt as u32, None), (own as u32, Some(0))]);
        let mut expected = part(0, shape.q_dim(), 0);
        let mut log_sums = gpu.alloc(rows * heads, NumberFormat::F32).unwrap();
        gpu.attention(Attention {
            shape,
            segments: &gpu.table(&table),
            qkv: [
                all(&part(0, shape.q_dim(), 1)),
                all(&part(0, width, 2)),
                all(&part(0, width, 3)),
            ],
            out: all_mut(&mut expected),
            log_sums: all_mut(&mut log_sums),
        });
        let expected = read(&gpu, &expected);
        // Pages lie in descending order.
        let pages = prompt.div_ceil(PAGE) + own.div_ceil(PAGE);
        let order: Vec<u32> = (0..pages as u32).rev().collect();
        let cell = |at: usize| {
            let (page, at) =
                if at < prompt { (0, at) } else { (prompt.div_ceil(PAGE), at - prompt) };
            order[page + at / PAGE] * PAGE as u32 + (at % PAGE) as u32
        };
        let place = CacheLayer { index: 0, count: 1, format: NumberFormat::Bf16 };
        let mut cache = gpu.alloc(pages * PAGE * width * 2, NumberFormat::Bf16).unwrap();
        let cells = gpu.table(&(0..rows).map(cell).collect::<Vec<_>>());
        let (k, v) = (part(0, width, 2), part(0, width, 3));
        gpu.cache_append(CacheAppend {
            shape,
            first: place,
            cells: &cells,
            kv: [all(&k), all(&v)],
            cache: &mut cache,
        });
        // Some of the response's positions: what lies behind each in the cache is not to be seen.
        let chosen: Vec<usize> = (0..own).filter(|at| at % 61 < 2 || at + 1 == own).collect();
        let at = |&own: &usize| CacheRow {
            first_page: 0,
            prompt_len: prompt as u32,
            own_len: own as u32,
        };
        let table = gpu.table(&chosen.iter().map(at).collect::<Vec<_>>());
        let rows_of = |width: usize, seed| {
            let all = halves_of(rows * width, seed);
            let rows = chosen.iter().flat_map(|at| &all[(prompt + at) * width..][..width]);
            buf_as(&gpu, &rows.copied().collect::<Vec<_>>(), NumberFormat::Bf16)
        };
        let (q, k, v) = (rows_of(shape.q_dim(), 1), rows_of(width, 2), rows_of(width, 3));
        let pages = gpu.table(&order);
        let mut out = rows_of(shape.q_dim(), 0);
        for turn in 0..4 {
            gpu.attention_decode(AttentionDecode {
                shape,
                layer: place,
                rows: &table,
                pages: &pages,
                cache: &cache,
                qkv: [all(&q), all(&k), all(&v)],
                out: all_mut(&mut out),
            });
            let ours = read(&gpu, &out);
            for (at, ours) in chosen.iter().zip(ours.chunks_exact(shape.q_dim())) {
                let theirs = &expected[(prompt + at) * shape.q_dim()..][..shape.q_dim()];
                assert_eq!(ours, theirs, "{shape:?}, position {at} of {own}, turn {turn}");
            }
        }
    }
}

fn adamw(step: u64) -> AdamW {
    AdamW {
        learning_rate: 1e-2,
        beta1: 0.9,
        beta2: 0.99,
        epsilon: 1e-8,
        weight_decay: 0.1,
        step,
        gradient_scale: 0.5,
    }
}

/// The draws are the same numbers on both, but a sum may differ in its last bit, and with it the number that is rounded.
#[test]
fn moments_in_bf16() {
    fn work<D: Device>(device: &D, (first, n): (usize, usize)) -> [Vec<f32>; 3] {
        let gradient = [vec![0.0; first], numbers(n, 1)].concat();
        let gradient = buf(device, &gradient);
        let mut parameter = buf(device, &numbers(n, 2));
        let words = NumberFormat::Bf16.words(first + n);
        let mut moments = [0; 2].map(|_| device.alloc(words, NumberFormat::F32).unwrap());
        for step in 1..=2 {
            let all = MomentsMut::Bf16 { buffers: moments.each_mut(), seed: 77 };
            let numbers = NumbersMut::Span(all_mut(&mut parameter));
            device.adamw(adamw(step), &gradient, all, vec![Placed { at: first, len: n, numbers }]);
        }
        let moments = moments.map(|it| read(device, &it).into_iter().flat_map(halves).collect());
        let [first, second] = moments;
        [read(device, &parameter), first, second]
    }
    let Some(gpu) = fibers() else { return };
    for part in [(0, 0), (0, 1), (5, 2), (3, 5), (7, 70_001)] {
        let (expected, got) = (work(&cpu(), part), work(&gpu, part));
        assert_eq!(work(&gpu, part), got, "{part:?}: bits depend on the schedule");
        near(&format!("{part:?}, parameters"), &got[0], &expected[0], 1e-3);
        for moment in [1, 2] {
            let (got, expected) = (&got[moment], &expected[moment]);
            assert_eq!(got.len(), expected.len());
            let others = got.iter().zip(expected).filter(|(got, expected)| {
                let unit = expected.abs() / 64.0;
                assert!((*got - *expected).abs() <= unit, "{part:?}: {got} and {expected}");
                got.to_bits() != expected.to_bits()
            });
            assert!(others.count() * 100 <= got.len(), "{part:?}: another draw");
        }
    }
}

#[test]
fn the_optimiser() {
    for n in [0, 1, 255, 70_000] {
        fn work<D: Device>(device: &D, n: usize) -> Vec<Vec<f32>> {
            let gradient = buf(device, &numbers(n, 1));
            let mut parameter = buf(device, &numbers(n, 2));
            let [mut first, mut second] =
                [0; 2].map(|_| device.alloc(n, NumberFormat::F32).unwrap());
            for step in 1..=2 {
                // In two parts.
                let cut = n / 3;
                let moments = MomentsMut::F32([&mut first, &mut second]);
                let mut tail = buf(device, &read(device, &parameter)[cut..]);
                let parts = vec![
                    Placed { at: 0, len: cut, numbers: NumbersMut::Span(parameter.at_mut(0, cut)) },
                    Placed { at: cut, len: n - cut, numbers: NumbersMut::Span(all_mut(&mut tail)) },
                ];
                device.adamw(adamw(step), &gradient, moments, parts);
                device.copy(all(&tail), parameter.at_mut(cut, n - cut));
            }
            // Spans that begin in the middle.
            let span = Numbers::Span(gradient.at(n / 3, n - n / 3));
            let norm = device.squared_norms(&[span])[0];
            vec![
                read(device, &parameter),
                read(device, &first),
                read(device, &second),
                vec![(norm / (n.max(1) as f64)) as f32],
            ]
        }
        both!(format!("{n} elements"), 1e-6, |d: &_| work(d, n));
    }
}

fn rounded(x: &[f32]) -> Vec<f32> {
    let half =
        |v: f32| f32::from_bits((v.to_bits() + 0x7fff + ((v.to_bits() >> 16) & 1)) & 0xffff_0000);
    x.iter().copied().map(half).collect()
}

/// Weights that are split are the f32 to the bit, through updates too, and products read their nearest bf16 numbers.
#[test]
fn split_weights_are_the_f32_and_products_read_their_upper_halves() {
    let Some(gpu) = support::gpu(Compute::Bf16) else {
        return;
    };
    let cpu = cpu();
    let (rows, inputs, outputs) = (3, 21, 7);
    let (shape, len) = (MatShape { rows, inputs, outputs }, inputs * outputs);
    let matrix = [inputs, outputs];
    let values = numbers(len, 2);
    let mut whole = weight(&gpu, matrix, Held::Plain, &values);
    // In two pieces.
    let mut split = CudaWeight::zeros(&gpu, matrix, Held::Trained).unwrap();
    let values = held(&gpu, matrix, &values);
    for piece in [50..len, 0..50] {
        split.write(&gpu, piece.start, &values[piece]);
    }
    let gradient = buf(&gpu, &numbers(len + 3, 4));
    let (x, dy) = (halves_of(rows * inputs, 1), halves_of(rows * outputs, 3));
    let (xs, dys) = (factor(&gpu, &x), factor(&gpu, &dy));
    let (rx, rdy) = (buf(&cpu, &x), buf(&cpu, &dy));
    let room = |n: usize| gpu.alloc(n, NumberFormat::F32).unwrap();
    let mut moments: [_; 4] = std::array::from_fn(|_| room(len + 3));
    let mut halves: [_; 4] = std::array::from_fn(|_| room(NumberFormat::Bf16.words(len + 3)));
    for step in 0..5 {
        if step > 0 {
            // Both formats of moments in turn, from an odd element on.
            let [m, v, split_m, split_v] = &mut moments;
            let [hm, hv, split_hm, split_hv] = &mut halves;
            let (of_whole, of_split) = if step % 2 == 0 {
                (
                    MomentsMut::Bf16 { buffers: [hm, hv], seed: 5 },
                    MomentsMut::Bf16 { buffers: [split_hm, split_hv], seed: 5 },
                )
            } else {
                (MomentsMut::F32([m, v]), MomentsMut::F32([split_m, split_v]))
            };
            let settings = AdamW { learning_rate: 0.3, ..adamw(step) };
            let placed = |w| vec![Placed { at: 3, len, numbers: NumbersMut::Weight(w) }];
            gpu.adamw(settings, &gradient, of_whole, placed(&mut whole));
            gpu.adamw(settings, &gradient, of_split, placed(&mut split));
        }
        let w = read_weight(&gpu, matrix, &whole);
        assert_eq!(read_weight(&gpu, matrix, &split), w, "step {step}");
        let norms = gpu.squared_norms(&[Numbers::Weight(&split), Numbers::Weight(&whole)]);
        assert!((norms[0] - norms[1]).abs() < 1e-6 * norms[1], "{norms:?}");
        let upper = |it: f32| f32::from_bits(it.to_bits().wrapping_add(0x8000) & 0xffff_0000);
        let upper: Vec<f32> = w.into_iter().map(upper).collect();
        let copy = split.copy_of(&gpu).unwrap();
        assert_eq!(read_weight(&gpu, matrix, &copy), upper, "step {step}");
        let w = weight(&cpu, matrix, Held::Trained, &upper);
        let (mut y, mut dx) = (room(dy.len()), room(x.len()));
        let output = Output {
            shape,
            pair: None,
            weight: &split,
            onto: Accumulate::Nothing,
            y: all_mut(&mut y),
        };
        gpu.product(all(&xs), None, vec![output]);
        let to = all_mut(&mut dx);
        gpu.product_input_grad(shape, all(&dys), &split, Accumulate::Nothing, to);
        let (mut ty, mut tx) = (buf(&cpu, &dy), buf(&cpu, &x));
        let output = Output {
            shape,
            pair: None,
            weight: &w,
            onto: Accumulate::Nothing,
            y: all_mut(&mut ty),
        };
        cpu.product(all(&rx), None, vec![output]);
        let to = all_mut(&mut tx);
        cpu.product_input_grad(shape, all(&rdy), &w, Accumulate::Nothing, to);
        near(&format!("step {step}, forward"), &read(&gpu, &y), &read(&cpu, &ty), 1e-5);
        near(&format!("step {step}, backward"), &read(&gpu, &dx), &read(&cpu, &tx), 1e-5);
    }
}

/// A frozen matrix that is written in pieces is whole and rounded, and embeddings are its rows.
#[test]
fn pieces_of_a_frozen_matrix_lie_one_after_the_other() {
    let Some(gpu) = support::gpu(Compute::Bf16) else {
        return;
    };
    let (width, vocabulary) = (6, 150);
    let whole = numbers(width * vocabulary, 1);
    let as_held = Held::Frozen(NumberFormat::Bf16);
    let mut frozen = CudaWeight::zeros(&gpu, [width, vocabulary], as_held).unwrap();
    for piece in [0..333, 333..900] {
        frozen.write(&gpu, piece.start, &whole[piece]);
    }
    let mut read_back = vec![0.0; whole.len()];
    frozen.read(&gpu, 0, &mut read_back);
    assert_eq!(read_back, rounded(&whole));
    let tokens = [149, 0, 70];
    let mut x = gpu.alloc(3 * width, NumberFormat::F32).unwrap();
    let layout = EmbeddingLayout::Rows { width };
    gpu.gather_rows(layout, &gpu.table(&tokens), Numbers::Weight(&frozen), all_mut(&mut x));
    let row = |it: &u32| rounded(&whole)[*it as usize * width..][..width].to_vec();
    assert_eq!(read(&gpu, &x), tokens.iter().flat_map(row).collect::<Vec<_>>());
}

fn product<D: Device>(device: &D, shape: MatShape, x: &[f32], w: &[f32]) -> Vec<f32> {
    let x = buf(device, x);
    let w = weight(device, [shape.inputs, shape.outputs], Held::Trained, w);
    let mut y = device.alloc(shape.rows * shape.outputs, NumberFormat::F32).unwrap();
    let output =
        Output { shape, pair: None, weight: &w, onto: Accumulate::Nothing, y: all_mut(&mut y) };
    device.product(all(&x), None, vec![output]);
    read(device, &y)
}

#[test]
fn tf32_rounds_factors_to_ten_bits() {
    let Some(gpu) = support::gpu(Compute::Tf32) else {
        return;
    };
    let shape = MatShape { rows: 5, inputs: 64, outputs: 9 };
    let (x, w) = (numbers(5 * 64, 1), numbers(64 * 9, 2));
    let ours = product(&gpu, shape, &x, &w);
    let exact = product(&cpu(), shape, &x, &w);
    let off = ours.iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    // 64 products of numbers below 1, each off by at most 2⁻¹⁰.
    assert!(off > 1e-5 && off < 64.0 / 1024.0, "{off}");
    let ten_bits = |x: &[f32]| -> Vec<f32> {
        x.iter().map(|it| f32::from_bits((it.to_bits() + 0x1000) & !0x1fff)).collect()
    };
    let expected = product(&cpu(), shape, &ten_bits(&x), &ten_bits(&w));
    near("rounded before", &ours, &expected, 1e-5);
}

#[test]
fn norms_of_many_tensors_are_those_of_each() {
    let ranges = [(0, 1), (16, 0), (16, 70_000), (70_016, 65_536), (140_000, 3)];
    both!("norms", 1e-6, |d: &_| {
        fn work<D: Device>(device: &D, ranges: &[(usize, usize)]) -> Vec<Vec<f32>> {
            let x = buf(device, &numbers(140_003, 1));
            let spans = || ranges.iter().map(|&(at, len)| Numbers::Span(x.at(at, len)));
            let together = device.squared_norms(&spans().collect::<Vec<_>>());
            let each = spans().map(|it| device.squared_norms(&[it])[0]);
            assert_eq!(together, each.collect::<Vec<f64>>());
            vec![together.iter().map(|it| *it as f32).collect()]
        }
        work(d, &ranges)
    });
}

/// One NaN among the logits, which a largest element skips, is in every statistic.
#[test]
fn a_logit_that_is_nan_shows_in_the_statistics() {
    fn work<D: Device>(device: &D) -> Vec<f32> {
        let target = |row| HeadTarget {
            row,
            token: 1,
            inverse_temperature: if row == 0 { 1.0 } else { 0.5 },
        };
        let table = device.table(&[target(0), target(1)]);
        let mut logits = numbers(600, 1);
        (logits[299], logits[300 + 17], logits[300 + 18]) = (f32::NAN, f32::NEG_INFINITY, 3.0);
        let logits = buf(device, &logits);
        let mut stats = device.alloc(12, NumberFormat::F32).unwrap();
        let part = HeadPart { first_row: 0, rows: 2, first_target: 0, targets: 2 };
        device.head(HeadStats {
            vocabulary: 300,
            targets: &table,
            part,
            logits: all(&logits),
            stats: all_mut(&mut stats),
        });
        read(device, &stats)
    }
    let of_cpu = work(&cpu());
    assert!(of_cpu[..2].iter().all(|it| it.is_nan()), "{of_cpu:?}");
    assert!(of_cpu[6..].iter().all(|it| it.is_finite()), "{of_cpu:?}");
    let Some(gpu) = fibers() else { return };
    let ours = work(&gpu);
    assert!(ours[..2].iter().all(|it| it.is_nan()), "{ours:?}");
    near("the row without", &ours[6..], &of_cpu[6..], 5e-6);
}

#[test]
fn draws_are_those_of_the_cpu() {
    if hapo_testing::slow() {
        return;
    }
    let Some(gpu) = fibers() else { return };
    for (vocabulary, usable) in [(7, 7), (300, 290), (5000, 4800)] {
        let rows = 3;
        let mut logits: Vec<f32> =
            numbers(rows * vocabulary, 5).into_iter().map(|it| it * 6.0).collect();
        // A row of few different logits: ties at every threshold.
        for it in &mut logits[vocabulary..2 * vocabulary] {
            *it = it.round();
        }
        logits[2 * vocabulary + 1] = f32::NEG_INFINITY;
        let on_gpu = buf(&gpu, &logits);
        let mut draws = Vec::new();
        let mut expected = Vec::new();
        for row in 0..rows {
            let of_row = &logits[row * vocabulary..(row + 1) * vocabulary];
            for (top_k, top_p, min_p) in [
                (0, 1.0, 0.0),
                (1, 1.0, 0.0),
                (5, 1.0, 0.0),
                (40, 0.9, 0.0),
                (0, 0.3, 0.0),
                (0, 0.95, 0.02),
                (3, 0.5, 0.2),
                (1 << 20, 0.999, 0.0),
            ] {
                let truncation = Truncation { top_k, top_p, min_p };
                for (uniform, temperature) in [(0.0, 1.0), (0.37, 1.0), (0.61, 0.7), (0.999, 1.6)] {
                    let decoding = Decoding::Sample { temperature, truncation };
                    let inverse_temperature = 1.0 / temperature;
                    draws.push(DrawRow {
                        uniform,
                        row: row as u32,
                        inverse_temperature,
                        top_k: top_k as u32,
                        top_p,
                        min_p,
                        unused: 0,
                    });
                    expected.push(draw(of_row, decoding.row(uniform), usable));
                }
            }
            let last = *draws.last().unwrap();
            draws.push(DrawRow { inverse_temperature: 0.0, ..last });
            expected.push(draw(of_row, Decoding::Greedy.row(0.0), usable));
        }
        let got = gpu.draw(vocabulary, usable, &draws, all(&on_gpu));
        gpu.check().unwrap();
        for ((got, expected), of) in got.iter().zip(&expected).zip(&draws) {
            assert_eq!(got.token, expected.token, "{vocabulary}: {of:?}");
            for (ours, theirs) in [
                (got.log_prob, expected.log_prob),
                (got.log_prob_t1, expected.log_prob_t1),
                (got.entropy, expected.entropy),
            ] {
                near(&format!("{of:?}"), &[ours], &[theirs], 5e-6);
            }
        }
        // Bits do not depend on the rows that are drawn together.
        let again = gpu.draw(vocabulary, usable, &draws[5..6], all(&on_gpu));
        assert_eq!(again, got[5..6]);
        assert!(gpu.draw(vocabulary, usable, &[], all(&on_gpu)).is_empty());
    }
}

/// A value that was not computed is NaN, and every operation refuses a table without memory, also after its failure was
/// reported.
#[test]
fn a_failure_leaves_no_numbers_behind() {
    let Some(gpu) = fibers() else { return };
    let Some(machine) = gpu.launcher().fibers().cloned() else {
        return;
    };
    let x = buf(&gpu, &[1.0; 100]);
    let mut y = gpu.alloc(100, NumberFormat::F32).unwrap();
    machine.set_full(true);
    let table = gpu.table(&[3_u32, 1]);
    machine.set_full(false);
    let mut values = [0.0; 100];
    gpu.download(all(&x), &mut values);
    assert!(values.iter().all(|it| it.is_nan()), "not what was there before");
    assert!(gpu.squared_norms(&[Numbers::Span(all(&x))])[0].is_nan());
    assert!(gpu.check().unwrap_err().is_out_of_memory());
    let rows = EmbeddingLayout::Rows { width: 10 };
    gpu.gather_rows(rows, &table, Numbers::Span(all(&x)), y.first_mut(20));
    assert!(gpu.check().unwrap_err().is_out_of_memory(), "there is no table to read");
    // With it nothing else is wrong.
    assert_eq!(read(&gpu, &x), [1.0; 100]);
    assert_eq!(read(&gpu, &y), [0.0; 100]);
}
