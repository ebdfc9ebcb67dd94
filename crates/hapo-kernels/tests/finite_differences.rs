//! Every operation against a naive f64 one, every written gradient against central differences of it.

use hapo_kernels::{
    Accumulate, Activation, AdamW, Attention, AttentionGrad, AttentionShape, Buffer, Cpu, CpuBuf,
    CpuWeight, Device, EmbeddingLayout, HeadGrad, HeadPart, HeadStats, HeadTarget, Heads, Held,
    MatShape, Matrix, MomentsMut, NumberFormat, Numbers, NumbersMut, Output, Placed, RmsNorm,
    RmsNormGrad, Rotation, SegmentRow,
};

/// A deterministic stream of numbers in (−1, 1).
struct Stream(u64);

impl Stream {
    fn next(&mut self) -> f32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 40) as f32) / (1_u64 << 23) as f32 - 1.0
    }

    fn take(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.next()).collect()
    }
}

fn cpu() -> Cpu {
    Cpu::new(2).unwrap()
}

fn buf(cpu: &Cpu, values: &[f32]) -> CpuBuf {
    let mut buf = cpu.alloc(values.len(), NumberFormat::F32).unwrap();
    cpu.upload(values, buf.first_mut(values.len()));
    buf
}

fn weight(cpu: &Cpu, shape: [usize; 2], values: &[f32]) -> CpuWeight {
    let mut weight = CpuWeight::zeros(cpu, shape, Held::Trained).unwrap();
    weight.write(cpu, 0, values);
    weight
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&v| f64::from(v)).collect()
}

/// d(Σ weight·f(x))/dx by central differences.
fn numeric(x: &[f32], weight: &[f32], f: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    let h = 1e-6;
    let mut x = wide(x);
    let value = |x: &[f64]| -> f64 {
        let y = f(x);
        assert_eq!(y.len(), weight.len());
        y.iter().zip(weight).map(|(y, &w)| y * f64::from(w)).sum()
    };
    (0..x.len())
        .map(|i| {
            let at = x[i];
            x[i] = at + h;
            let above = value(&x);
            x[i] = at - h;
            let below = value(&x);
            x[i] = at;
            (above - below) / (2.0 * h)
        })
        .collect()
}

/// Agreement to f32 rounding of values of order one.
fn agree(what: &str, got: &[f32], want: &[f64]) {
    assert_eq!(got.len(), want.len(), "{what}");
    let scale = want.iter().fold(1.0_f64, |m, v| m.max(v.abs()));
    for (i, (&g, &w)) in got.iter().zip(want).enumerate() {
        assert!((f64::from(g) - w).abs() <= 3e-6 * scale, "{what}[{i}]: {g} instead of {w}");
    }
}

fn naive_matmul(x: &[f64], w: &[f64], m: usize, k: usize, n: usize) -> Vec<f64> {
    (0..m * n)
        .map(|i| {
            let (r, c) = (i / n, i % n);
            (0..k).map(|j| x[r * k + j] * w[j * n + c]).sum()
        })
        .collect()
}

#[test]
fn products() {
    let cpu = cpu();
    for (m, k, n) in [(1, 7, 70), (3, 530, 5), (5, 33, 64), (70, 40, 130)] {
        let mut s = Stream(m as u64);
        let (x, w, b) = (s.take(m * k), s.take(k * n), s.take(n));
        let (dy, old) = (s.take(m * n), s.take(m * n));
        let shape = MatShape { rows: m, inputs: k, outputs: n };
        let (xb, bb, dyb) = (buf(&cpu, &x), buf(&cpu, &b), buf(&cpu, &dy));
        let weight = weight(&cpu, [k, n], &w);
        let mut y = buf(&cpu, &old);
        let (xs, dys) = (xb.first(m * k), dyb.first(m * n));
        let plain = naive_matmul(&wide(&x), &wide(&w), m, k, n);
        for (case, onto) in
            [Accumulate::Existing, Accumulate::Bias(bb.first(n)), Accumulate::<CpuBuf>::Nothing]
                .into_iter()
                .enumerate()
        {
            let output = Output { shape, pair: None, weight: &weight, onto, y: y.first_mut(m * n) };
            cpu.product(xs, None, vec![output]);
            let want: Vec<f64> =
                (0..m * n).map(|i| plain[i] + f64::from([old[i], b[i % n], 0.0][case])).collect();
            agree("product", y.as_slice(), &want);
        }
        let mut dx = buf(&cpu, &x);
        cpu.product_input_grad(shape, dys, &weight, Accumulate::Existing, dx.first_mut(m * k));
        let want: Vec<f64> = numeric(&x, &dy, |x| naive_matmul(x, &wide(&w), m, k, n))
            .iter()
            .zip(&x)
            .map(|(d, &x)| d + f64::from(x))
            .collect();
        agree("input grad", dx.as_slice(), &want);
        if k * n < 2500 {
            let mut dw = buf(&cpu, &w);
            cpu.product_weight_grad(shape, xs, dys, Accumulate::Nothing, dw.first_mut(k * n));
            let want = numeric(&w, &dy, |w| naive_matmul(&wide(&x), w, m, k, n));
            agree("weight grad", dw.as_slice(), &want);
        }
        let mut sums = buf(&cpu, &b);
        cpu.add_column_sums(n, dys, sums.first_mut(n));
        let want: Vec<f64> = (0..n)
            .map(|c| f64::from(b[c]) + (0..m).map(|r| f64::from(dy[r * n + c])).sum::<f64>())
            .collect();
        agree("column sums", sums.as_slice(), &want);
    }
}

fn naive_norm(x: &[f64], w: &[f64]) -> Vec<f64> {
    x.chunks(w.len())
        .flat_map(|row| {
            let r = (row.iter().map(|v| v * v).sum::<f64>() / w.len() as f64 + 1e-6).sqrt();
            row.iter().zip(w).map(move |(x, w)| x / r * w)
        })
        .collect()
}

#[test]
fn rms_norm() {
    let cpu = cpu();
    for (rows, width, offset) in [(1, 3, 0.0), (5, 21, 0.0), (130, 8, 0.0), (5, 21, 1.0)] {
        let shifted = |w: &[f64]| w.iter().map(|w| w + f64::from(offset)).collect::<Vec<_>>();
        let mut s = Stream(7);
        let (x, w, dy) = (s.take(rows * width), s.take(width), s.take(rows * width));
        let (xb, wb, dyb) = (buf(&cpu, &x), buf(&cpu, &w), buf(&cpu, &dy));
        let n = rows * width;
        let (mut y, mut copy) =
            (cpu.alloc(n, NumberFormat::F32).unwrap(), cpu.alloc(n, NumberFormat::F32).unwrap());
        let mut inverse = cpu.alloc(rows, NumberFormat::F32).unwrap();
        cpu.rms_norm(RmsNorm {
            eps: 1e-6,
            offset,
            x: xb.first(n),
            w: wb.first(width),
            y: y.first_mut(n),
            inverse_rms: inverse.first_mut(rows),
            residual: Some(copy.first_mut(n)),
        });
        agree("norm", y.as_slice(), &naive_norm(&wide(&x), &shifted(&wide(&w))));
        assert_eq!(copy.as_slice(), x);
        let (mut dx, mut dw) = (buf(&cpu, &dy), buf(&cpu, &w));
        cpu.rms_norm_grad(RmsNormGrad {
            offset,
            x: xb.first(n),
            w: wb.first(width),
            inverse_rms: inverse.first(rows),
            dy: dyb.first(n),
            onto: Accumulate::Existing,
            dx: dx.first_mut(n),
            dw: dw.first_mut(width),
        });
        let plus = |d: Vec<f64>, old: &[f32]| -> Vec<f64> {
            d.iter().zip(old).map(|(d, &o)| d + f64::from(o)).collect()
        };
        let want = plus(numeric(&x, &dy, |x| naive_norm(x, &shifted(&wide(&w)))), &dy);
        agree("norm dx", dx.as_slice(), &want);
        let want = plus(numeric(&w, &dy, |w| naive_norm(&wide(&x), &shifted(w))), &w);
        agree("norm dw", dw.as_slice(), &want);
    }
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// As `PyTorch` defines `gelu(approximate="tanh")`.
fn gelu_tanh(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
    0.5 * x * (1.0 + inner.tanh())
}

#[test]
fn gated() {
    let cpu = cpu();
    let n = 37;
    let activations =
        [(Activation::Silu, silu as fn(f64) -> f64), (Activation::GeluTanh, gelu_tanh)];
    for (activation, f) in activations {
        let mut s = Stream(3);
        let gate: Vec<f32> = s.take(n).iter().map(|v| v * 9.0).collect();
        let (up, dh) = (s.take(n), s.take(n));
        let naive = |g: &[f64], u: &[f64]| -> Vec<f64> {
            g.iter().zip(u).map(|(&g, u)| f(g) * u).collect()
        };
        let (mut g, mut u, mut d) = (buf(&cpu, &gate), buf(&cpu, &up), buf(&cpu, &dh));
        let mut h = cpu.alloc(n, NumberFormat::F32).unwrap();
        cpu.gated(activation, g.first(n), u.first(n), h.first_mut(n));
        let forward = naive(&wide(&gate), &wide(&up));
        agree("gated", h.as_slice(), &forward);
        cpu.gated_grad(activation, g.first_mut(n), u.first_mut(n), d.first_mut(n));
        agree("h again", d.as_slice(), &forward);
        agree("dgate", g.as_slice(), &numeric(&gate, &dh, |g| naive(g, &wide(&up))));
        agree("dup", u.as_slice(), &numeric(&up, &dh, |u| naive(&wide(&gate), u)));
    }
}

#[test]
fn add() {
    let cpu = cpu();
    let (x, mut y) = (buf(&cpu, &[1.0, -2.0]), buf(&cpu, &[10.0, 20.0]));
    cpu.add(0.5, x.first(2), y.first_mut(2));
    assert_eq!(y.as_slice(), [10.5, 19.0]);
}

#[test]
fn rope() {
    turns(6, 6);
    turns(6, 4);
}

/// Heads of some width of which the leading numbers are turned.
fn turns(width: usize, rotated: usize) {
    let cpu = cpu();
    let heads = 3;
    let positions = [0_u32, 4, 2];
    let angle = |p: u32, i: usize| f64::from(p) * 0.7_f64.powi(i as i32);
    let mut table = Vec::new();
    for p in 0..5 {
        table.extend((0..rotated / 2).map(|i| angle(p, i).cos() as f32));
        table.extend((0..rotated / 2).map(|i| angle(p, i).sin() as f32));
    }
    let mut s = Stream(11);
    let n = positions.len() * heads * width;
    let shape = AttentionShape { rotated, ..AttentionShape::new(heads, heads, width) };
    let (x, dy) = (s.take(n), s.take(n));
    let naive = |x: &[f64]| -> Vec<f64> {
        let mut y = x.to_vec();
        for (row, &p) in positions.iter().enumerate() {
            for head in 0..heads {
                let at = (row * heads + head) * width;
                for i in 0..rotated / 2 {
                    let (a, b) = (x[at + i], x[at + rotated / 2 + i]);
                    let (sin, cos) = angle(p, i).sin_cos();
                    y[at + i] = a * cos - b * sin;
                    y[at + rotated / 2 + i] = b * cos + a * sin;
                }
            }
        }
        y
    };
    let angles = buf(&cpu, &table);
    let positions = cpu.table(&positions);
    let (mut q, mut k) = (buf(&cpu, &x), buf(&cpu, &x));
    let (mut dq, mut dk) = (buf(&cpu, &dy), buf(&cpu, &dy));
    let all = angles.first(table.len());
    cpu.rope(Rotation {
        shape,
        angles: all,
        positions: &positions,
        heads: Heads::Forward([q.first_mut(n), k.first_mut(n)]),
    });
    cpu.rope(Rotation {
        shape,
        angles: all,
        positions: &positions,
        heads: Heads::Backward([dq.first_mut(n), dk.first_mut(n)]),
    });
    let from = buf(&cpu, &x);
    let [mut stored_q, mut stored_k, mut v] = [0; 3].map(|_| buf(&cpu, &dy));
    let to = [stored_q.first_mut(n), stored_k.first_mut(n), v.first_mut(n)];
    cpu.rope(Rotation {
        shape,
        angles: all,
        positions: &positions,
        heads: Heads::Stored { from: [from.first(n); 3], to },
    });
    for y in [q, k, stored_q, stored_k] {
        agree("rope", y.as_slice(), &naive(&wide(&x)));
    }
    assert_eq!(v.as_slice(), x);
    for dx in [dq, dk] {
        agree("rope grad", dx.as_slice(), &numeric(&x, &dy, naive));
    }
}

/// `[rows, heads · head_dim]` from queries, keys and values, by the definition.
fn naive_attention(
    shape: AttentionShape,
    segments: &[SegmentRow],
    [q, k, v]: [&[f64]; 3],
) -> Vec<f64> {
    let d = shape.head_dim;
    let mut out = vec![0.0; q.len()];
    for s in segments {
        for i in 0..s.len {
            let keys: Vec<usize> = (s.prefix_start..s.prefix_start + s.prefix_len)
                .chain(s.start..=s.start + i)
                .map(|r| r as usize)
                .skip(shape.first_read((s.prefix_len + i) as usize))
                .collect();
            for head in 0..shape.heads {
                let at = (s.start + i) as usize * shape.q_dim() + head * d;
                let kv = |r: usize| r * shape.kv_dim() + head / shape.group() * d;
                let weights: Vec<f64> = keys
                    .iter()
                    .map(|&r| {
                        let dot: f64 = (0..d).map(|e| q[at + e] * k[kv(r) + e]).sum();
                        (dot / (d as f64).sqrt()).exp()
                    })
                    .collect();
                let sum: f64 = weights.iter().sum();
                for e in 0..d {
                    out[at + e] =
                        keys.iter().zip(&weights).map(|(&r, w)| w / sum * v[kv(r) + e]).sum();
                }
            }
        }
    }
    out
}

#[test]
fn attention_with_and_without_prefix() {
    let cpu = cpu();
    let segment = |start, len, prefix_start, prefix_len, prefix_group| SegmentRow {
        start,
        len,
        prefix_start,
        prefix_len,
        prefix_group,
    };
    // A prompt with two answers, one alone, and one of two rows; blocks of 32 queries are crossed.
    let segments = [
        segment(0, 5, 0, 0, 0),
        segment(5, 36, 0, 5, 0),
        segment(45, 1, 0, 5, 0),
        segment(41, 2, 0, 0, 1),
        segment(43, 2, 0, 0, 2),
    ];
    let rows = 46;
    let shapes = [(4, 2, 6, None), (3, 1, 16, None), (2, 2, 4, Some(1)), (2, 1, 4, Some(7))];
    for (heads, kv_heads, head_dim, window) in shapes {
        let shape = AttentionShape { window, ..AttentionShape::new(heads, kv_heads, head_dim) };
        let (nq, nk) = (rows * shape.q_dim(), rows * shape.kv_dim());
        let mut s = Stream(heads as u64);
        let (q, k, v, dy) = (s.take(nq), s.take(nk), s.take(nk), s.take(nq));
        let (qb, kb, vb, dyb) = (buf(&cpu, &q), buf(&cpu, &k), buf(&cpu, &v), buf(&cpu, &dy));
        let table = cpu.table(&segments);
        let mut out = cpu.alloc(nq, NumberFormat::F32).unwrap();
        let mut log_sums = cpu.alloc(rows * heads, NumberFormat::F32).unwrap();
        let (qs, ks, vs) = (qb.first(nq), kb.first(nk), vb.first(nk));
        cpu.attention(Attention {
            shape,
            segments: &table,
            qkv: [qs, ks, vs],
            out: out.first_mut(nq),
            log_sums: log_sums.first_mut(rows * heads),
        });
        let (qw, kw, vw) = (wide(&q), wide(&k), wide(&v));
        agree("attention", out.as_slice(), &naive_attention(shape, &segments, [&qw, &kw, &vw]));
        // Left over numbers must not shine through.
        let (mut dq, mut dk, mut dv) = (buf(&cpu, &q), buf(&cpu, &k), buf(&cpu, &v));
        cpu.attention_grad(AttentionGrad {
            shape,
            segments: &table,
            qkv: [qs, ks, vs],
            out: out.first(nq),
            log_sums: log_sums.first(rows * heads),
            dout: dyb.first(nq),
            dqkv: [dq.first_mut(nq), dk.first_mut(nk), dv.first_mut(nk)],
        });
        let want = numeric(&q, &dy, |q| naive_attention(shape, &segments, [q, &kw, &vw]));
        agree("dq", dq.as_slice(), &want);
        let want = numeric(&k, &dy, |k| naive_attention(shape, &segments, [&qw, k, &vw]));
        agree("dk", dk.as_slice(), &want);
        let want = numeric(&v, &dy, |v| naive_attention(shape, &segments, [&qw, &kw, v]));
        agree("dv", dv.as_slice(), &want);
    }
}

/// Of a text without rotation, the rows that a window leaves depend on the rows within it alone: the last rows of a
/// text, of which whole blocks are skipped, are those of its end.
#[test]
fn a_window_skips_what_it_does_not_read() {
    let cpu = cpu();
    let (long, short, counted) = (1101, 120, 60);
    let shape = AttentionShape { window: Some(40), ..AttentionShape::new(2, 1, 4) };
    let (wide_q, wide_k) = (shape.q_dim(), shape.kv_dim());
    let mut s = Stream(5);
    let (q, k, v) = (s.take(long * wide_q), s.take(long * wide_k), s.take(long * wide_k));
    let mut dout = vec![0.0; (long - counted) * wide_q];
    dout.extend(s.take(counted * wide_q));
    let run = |rows: usize| -> [Vec<f32>; 4] {
        let end = |x: &[f32], width: usize| buf(&cpu, &x[x.len() - rows * width..]);
        let (nq, nk) = (rows * wide_q, rows * wide_k);
        let (q, k, v, dout) =
            (end(&q, wide_q), end(&k, wide_k), end(&v, wide_k), end(&dout, wide_q));
        let row = SegmentRow {
            start: 0,
            len: rows as u32,
            prefix_start: 0,
            prefix_len: 0,
            prefix_group: 0,
        };
        let table = cpu.table(&[row]);
        let (mut out, mut log_sums) = (buf(&cpu, &vec![0.0; nq]), buf(&cpu, &vec![0.0; rows * 2]));
        let (to, sums) = (out.first_mut(nq), log_sums.first_mut(rows * 2));
        cpu.attention(Attention {
            shape,
            segments: &table,
            qkv: [q.first(nq), k.first(nk), v.first(nk)],
            out: to,
            log_sums: sums,
        });
        let [mut dq, mut dk, mut dv] = [nq, nk, nk].map(|n| buf(&cpu, &vec![0.0; n]));
        cpu.attention_grad(AttentionGrad {
            shape,
            segments: &table,
            qkv: [q.first(nq), k.first(nk), v.first(nk)],
            out: out.first(nq),
            log_sums: log_sums.first(rows * 2),
            dout: dout.first(nq),
            dqkv: [dq.first_mut(nq), dk.first_mut(nk), dv.first_mut(nk)],
        });
        [&out, &dq, &dk, &dv].map(|it| it.as_slice().to_vec())
    };
    let [all, end] = [run(long), run(short)];
    for (i, (all, end)) in all.iter().zip(&end).enumerate() {
        let width = if i < 2 { wide_q } else { wide_k };
        let (before, last) = all.split_at((long - short) * width);
        // The first rows of the end alone have fewer rows before them.
        let from = if i == 0 { 40 * width } else { 0 };
        agree("the end", &last[from..], &wide(&end[from..]));
        assert!(i == 0 || before.iter().all(|it| *it == 0.0), "gradients before the window");
        assert!(end[from..].iter().any(|it| it.abs() > 0.1), "numbers to compare");
    }
}

#[test]
fn embedding_in_both_layouts() {
    let cpu = cpu();
    let (vocabulary, width) = (9, 20);
    let tokens = [3_u32, 0, 3, 8];
    let mut s = Stream(5);
    let (e, dx) = (s.take(vocabulary * width), s.take(tokens.len() * width));
    let n = tokens.len() * width;
    for (layout, columns) in
        [(EmbeddingLayout::Rows { width }, false), (EmbeddingLayout::Columns { vocabulary }, true)]
    {
        let at = |t: usize, d: usize| {
            if columns { d * vocabulary + t } else { t * width + d }
        };
        let naive = |e: &[f64]| -> Vec<f64> {
            (0..n).map(|i| e[at(tokens[i / width] as usize, i % width)]).collect()
        };
        let shape = if columns { [width, vocabulary] } else { [vocabulary, width] };
        let (table_of_rows, dxb) = (weight(&cpu, shape, &e), buf(&cpu, &dx));
        let mut x = cpu.alloc(n, NumberFormat::F32).unwrap();
        let table = cpu.table(&tokens);
        cpu.gather_rows(layout, &table, Numbers::Weight(&table_of_rows), x.first_mut(n));
        agree("embed", x.as_slice(), &naive(&wide(&e)));
        let mut de = cpu.alloc(e.len(), NumberFormat::F32).unwrap();
        cpu.embed_grad(layout, &table, dxb.first(n), de.first_mut(e.len()));
        agree("embed grad", de.as_slice(), &numeric(&e, &dx, naive));
    }
}

#[test]
fn gather_and_scatter() {
    let cpu = cpu();
    let x: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let (xb, rows) = (buf(&cpu, &x), cpu.table(&[3_u32, 1]));
    let mut y = cpu.alloc(6, NumberFormat::F32).unwrap();
    let layout = EmbeddingLayout::Rows { width: 3 };
    cpu.gather_rows(layout, &rows, Numbers::Span(xb.first(12)), y.first_mut(6));
    assert_eq!(y.as_slice(), [9.0, 10.0, 11.0, 3.0, 4.0, 5.0]);
    let mut back = buf(&cpu, &x);
    let rows = cpu.table(&[1_u32, 3]);
    cpu.scatter_rows(3, &rows, y.first(6), back.first_mut(12));
    let want = [0.0, 0.0, 0.0, 9.0, 10.0, 11.0, 0.0, 0.0, 0.0, 3.0, 4.0, 5.0];
    assert_eq!(back.as_slice(), want);
    cpu.scatter_rows(3, &cpu.table(&[]), y.first(0), back.first_mut(12));
    assert_eq!(back.as_slice(), [0.0; 12]);
}

#[test]
fn head_at_several_temperatures() {
    let cpu = cpu();
    let (vocabulary, rows) = (37, 3);
    let mut s = Stream(17);
    let logits: Vec<f32> = s.take(rows * vocabulary).iter().map(|v| v * 6.0).collect();
    let target = |row, token, inverse_temperature| HeadTarget { row, token, inverse_temperature };
    let targets = [
        target(0, 4, 1.0),
        target(1, 0, 1.5),
        target(1, 36, 1.5),
        target(1, 9, 1.0),
        target(2, 20, 0.5),
    ];
    let n = targets.len();
    let gradients = s.take(2 * n);
    let naive = |z: &[f64]| -> Vec<f64> {
        targets
            .iter()
            .flat_map(|t| {
                let row = &z[t.row as usize * vocabulary..][..vocabulary];
                let log_probs = |f: f64| -> Vec<f64> {
                    let sum: f64 = row.iter().map(|z| (z * f).exp()).sum();
                    row.iter().map(|z| z * f - sum.ln()).collect()
                };
                let plain = log_probs(1.0);
                let entropy = -plain.iter().map(|l| l.exp() * l).sum::<f64>();
                let tempered = log_probs(f64::from(t.inverse_temperature));
                [tempered[t.token as usize], entropy]
            })
            .collect()
    };
    let table = cpu.table(&targets);
    let part = HeadPart { first_row: 0, rows, first_target: 0, targets: n };
    let mut z = buf(&cpu, &logits);
    let mut stats = cpu.alloc(6 * n, NumberFormat::F32).unwrap();
    cpu.head(HeadStats {
        vocabulary,
        targets: &table,
        part,
        logits: z.first(logits.len()),
        stats: stats.first_mut(6 * n),
    });
    let got: Vec<f32> = stats.as_slice().chunks(6).flat_map(|s| [s[0], s[2]]).collect();
    agree("head", &got, &naive(&wide(&logits)));
    let g = buf(&cpu, &gradients);
    cpu.head_grad(HeadGrad {
        vocabulary,
        targets: &table,
        part,
        stats: stats.first(6 * n),
        gradients: g.first(2 * n),
        logits: z.first_mut(logits.len()),
    });
    agree("head grad", z.as_slice(), &numeric(&logits, &gradients, naive));
}

#[test]
fn adamw_and_norm() {
    let cpu = cpu();
    let n = 1000;
    let mut s = Stream(23);
    let (g, p, m) = (s.take(n), s.take(n), s.take(n));
    let v: Vec<f32> = s.take(n).iter().map(|v| v * v).collect();
    let gb = buf(&cpu, &g);
    let want: f64 = wide(&g).iter().map(|v| v * v).sum();
    let matrix = weight(&cpu, [10, 100], &g);
    let norms = cpu.squared_norms(&[Numbers::Span(gb.first(n)), Numbers::Weight(&matrix)]);
    let norm = norms[0];
    assert_eq!(norms[1], norm);
    assert!((norm - want).abs() < 1e-5 * want, "{norm} instead of {want}");
    let (mut pb, mut mb, mut vb) = (buf(&cpu, &p), buf(&cpu, &m), buf(&cpu, &v));
    let step = AdamW {
        learning_rate: 0.01,
        beta1: 0.9,
        beta2: 0.99,
        epsilon: 1e-8,
        weight_decay: 0.1,
        step: 3,
        gradient_scale: 0.5,
    };
    // A vector and, behind it, a matrix.
    let mut matrix = weight(&cpu, [20, 40], &p[200..]);
    let parameters = vec![
        Placed { at: 0, len: 200, numbers: NumbersMut::Span(pb.first_mut(200)) },
        Placed { at: 200, len: 800, numbers: NumbersMut::Weight(&mut matrix) },
    ];
    cpu.adamw(step, &gb, MomentsMut::F32([&mut mb, &mut vb]), parameters);
    matrix.read(&cpu, 0, &mut pb.as_mut_slice()[200..]);
    let (mut pw, mut mw, mut vw) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..n {
        let g = f64::from(g[i]) * 0.5;
        let m = 0.9 * f64::from(m[i]) + 0.1 * g;
        let v = 0.99 * f64::from(v[i]) + 0.01 * g * g;
        let (mh, vh) = (m / (1.0 - 0.9_f64.powi(3)), v / (1.0 - 0.99_f64.powi(3)));
        pw.push(f64::from(p[i]) * (1.0 - 0.01 * 0.1) - 0.01 * mh / (vh.sqrt() + 1e-8));
        mw.push(m);
        vw.push(v);
    }
    agree("parameters", pb.as_slice(), &pw);
    agree("first moments", mb.as_slice(), &mw);
    agree("second moments", vb.as_slice(), &vw);
}
