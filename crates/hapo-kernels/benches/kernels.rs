//! One benchmark per kernel, on one thread and shapes that stay in the caches.
//!
//!     cargo bench -p hapo-kernels

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use hapo_kernels::{
    Accumulate, Activation, AdamW, Attention, AttentionGrad, AttentionShape, Buffer, Cpu, CpuBuf,
    CpuWeight, Device, EmbeddingLayout, HeadPart, HeadStats, HeadTarget, Heads, Held, MatShape,
    Matrix, MomentsMut, NumberFormat, Numbers, NumbersMut, Output, Placed, RmsNorm, Rotation,
    SegmentRow, SpanMut, row_stats,
};

const ROWS: usize = 96;
const HIDDEN: usize = 192;
const FFN: usize = 512;
const VOCABULARY: usize = 512;
const HEADS: AttentionShape = AttentionShape::new(6, 2, 32);

fn numbers(cpu: &Cpu, len: usize) -> CpuBuf {
    let values: Vec<f32> = (0..len).map(|i| (i * 7919 % 1013) as f32 / 1013.0 - 0.5).collect();
    let mut it = cpu.alloc(len, NumberFormat::F32).expect("memory");
    cpu.upload(&values, it.first_mut(len));
    it
}

fn weight(cpu: &Cpu, shape: [usize; 2], held: Held) -> CpuWeight {
    let mut weight = CpuWeight::zeros(cpu, shape, held).expect("memory");
    weight.write(cpu, 0, numbers(cpu, shape[0] * shape[1]).as_slice());
    weight
}

fn all(buf: &mut CpuBuf) -> SpanMut<'_, CpuBuf> {
    let len = buf.len();
    buf.first_mut(len)
}

fn products(c: &mut Criterion) {
    let cpu = Cpu::new(1).expect("a thread");
    let mut group = c.benchmark_group("product");
    for rows in [1, 8, 64, 1536] {
        let shape = MatShape { rows, inputs: HIDDEN, outputs: FFN };
        let x = numbers(&cpu, rows * HIDDEN);
        let w = weight(&cpu, [HIDDEN, FFN], Held::Trained);
        let frozen = weight(&cpu, [HIDDEN, FFN], Held::Frozen(NumberFormat::Bf16));
        let mut y = numbers(&cpu, rows * FFN);
        let x = x.first(x.len());
        group.throughput(Throughput::Elements((rows * HIDDEN * FFN) as u64));
        for (name, weight) in [("f32", &w), ("bf16", &frozen)] {
            group.bench_function(format!("{name}, {rows} rows"), |b| {
                b.iter(|| {
                    let output = Output {
                        shape,
                        pair: None,
                        weight,
                        onto: Accumulate::Nothing,
                        y: all(&mut y),
                    };
                    cpu.product(x, None, vec![output]);
                });
            });
        }
        let (mut dx, mut dw) = (numbers(&cpu, rows * HIDDEN), numbers(&cpu, HIDDEN * FFN));
        group.bench_function(format!("gradient of the input, {rows} rows"), |b| {
            let dy = y.first(rows * FFN);
            b.iter(|| cpu.product_input_grad(shape, dy, &w, Accumulate::Nothing, all(&mut dx)));
        });
        group.bench_function(format!("gradient of the weights, {rows} rows"), |b| {
            let dy = y.first(rows * FFN);
            b.iter(|| cpu.product_weight_grad(shape, x, dy, Accumulate::Nothing, all(&mut dw)));
        });
    }
    group.finish();
}

fn rows(c: &mut Criterion) {
    let cpu = Cpu::new(1).expect("a thread");
    let mut group = c.benchmark_group("row");
    let (x, w) = (numbers(&cpu, ROWS * HIDDEN), numbers(&cpu, HIDDEN));
    let mut y = numbers(&cpu, ROWS * HIDDEN);
    let mut inverse = numbers(&cpu, ROWS);
    group.bench_function("rms_norm", |b| {
        b.iter(|| {
            let (x, w) = (x.first(x.len()), w.first(w.len()));
            cpu.rms_norm(RmsNorm {
                eps: 1e-6,
                offset: 0.0,
                x,
                w,
                y: all(&mut y),
                inverse_rms: all(&mut inverse),
                residual: None,
            });
        });
    });
    let (gate, up) = (numbers(&cpu, ROWS * FFN), numbers(&cpu, ROWS * FFN));
    let mut h = numbers(&cpu, ROWS * FFN);
    group.bench_function("swiglu", |b| {
        b.iter(|| {
            cpu.gated(Activation::Silu, gate.first(gate.len()), up.first(up.len()), all(&mut h));
        });
    });
    let angles = numbers(&cpu, ROWS * HEADS.head_dim);
    let positions = cpu.table(&(0..ROWS as u32).collect::<Vec<_>>());
    let mut k = numbers(&cpu, ROWS * HEADS.kv_dim());
    group.bench_function("rope", |b| {
        b.iter(|| {
            let angles = angles.first(angles.len());
            let heads = Heads::Forward([all(&mut y), all(&mut k)]);
            cpu.rope(Rotation { shape: HEADS, angles, positions: &positions, heads });
        });
    });
    let embedding = weight(&cpu, [HIDDEN, VOCABULARY], Held::Trained);
    group.bench_function("embed, columns", |b| {
        b.iter(|| {
            let layout = EmbeddingLayout::Columns { vocabulary: VOCABULARY };
            cpu.gather_rows(layout, &positions, Numbers::Weight(&embedding), all(&mut y));
        });
    });
    let logits = numbers(&cpu, ROWS * VOCABULARY);
    let targets: Vec<HeadTarget> = (0..ROWS as u32)
        .map(|row| HeadTarget { row, token: row, inverse_temperature: 1.0 })
        .collect();
    let targets = cpu.table(&targets);
    let part = HeadPart { first_row: 0, rows: ROWS, first_target: 0, targets: ROWS };
    let mut stats = numbers(&cpu, ROWS * 6);
    group.bench_function("head", |b| {
        b.iter(|| {
            let logits = logits.first(logits.len());
            cpu.head(HeadStats {
                vocabulary: VOCABULARY,
                targets: &targets,
                part,
                logits,
                stats: all(&mut stats),
            });
        });
    });
    let long = numbers(&cpu, 151_936);
    group.bench_function("statistics of 151936 logits", |b| {
        b.iter(|| row_stats(long.as_slice(), 1.0));
    });
    group.finish();
}

fn attention(c: &mut Criterion) {
    let cpu = Cpu::new(1).expect("a thread");
    let mut group = c.benchmark_group("attention");
    for len in [ROWS, 512] {
        let segment = SegmentRow {
            start: 0,
            len: len as u32,
            prefix_start: 0,
            prefix_len: 0,
            prefix_group: 0,
        };
        let segments = cpu.table(&[segment]);
        let (wide, narrow) = (len * HEADS.q_dim(), len * HEADS.kv_dim());
        let (q, k, v) = (numbers(&cpu, wide), numbers(&cpu, narrow), numbers(&cpu, narrow));
        let (mut out, mut sums) = (numbers(&cpu, wide), numbers(&cpu, len * HEADS.heads));
        let (q, k, v) = (q.first(wide), k.first(narrow), v.first(narrow));
        group.bench_function(format!("forward, {len} tokens"), |b| {
            b.iter(|| {
                cpu.attention(Attention {
                    shape: HEADS,
                    segments: &segments,
                    qkv: [q, k, v],
                    out: all(&mut out),
                    log_sums: all(&mut sums),
                });
            });
        });
        let (mut dq, mut dk) = (numbers(&cpu, wide), numbers(&cpu, narrow));
        let mut dv = numbers(&cpu, narrow);
        group.bench_function(format!("gradient, {len} tokens"), |b| {
            b.iter(|| {
                cpu.attention_grad(AttentionGrad {
                    shape: HEADS,
                    segments: &segments,
                    qkv: [q, k, v],
                    out: out.first(wide),
                    log_sums: sums.first(len * HEADS.heads),
                    dout: q,
                    dqkv: [all(&mut dq), all(&mut dk), all(&mut dv)],
                });
            });
        });
    }
    group.finish();
}

fn optimiser(c: &mut Criterion) {
    let cpu = Cpu::new(1).expect("a thread");
    let len = 1 << 20;
    let gradient = numbers(&cpu, len);
    let step = AdamW {
        learning_rate: 1e-6,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        weight_decay: 0.01,
        step: 1,
        gradient_scale: 1.0,
    };
    let mut group = c.benchmark_group("optimiser");
    group.throughput(Throughput::Elements(len as u64));
    group.bench_function("adamw", |b| {
        b.iter_batched_ref(
            || [0; 3].map(|_| numbers(&cpu, len)),
            |[p, m, v]| {
                let parameter = Placed { at: 0, len, numbers: NumbersMut::Span(all(p)) };
                cpu.adamw(step, &gradient, MomentsMut::F32([m, v]), vec![parameter]);
            },
            BatchSize::LargeInput,
        );
    });
    group.bench_function("squared norm", |b| {
        b.iter(|| cpu.squared_norms(&[Numbers::Span(gradient.first(len))]));
    });
    group.finish();
}

criterion_group! {
    name = kernels;
    config = Criterion::default().sample_size(20);
    targets = products, rows, attention, optimiser
}
criterion_main!(kernels);
