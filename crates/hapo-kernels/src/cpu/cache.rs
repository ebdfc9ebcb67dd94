//! The key/value cache: append, and attention of one new row per sequence.
//!
//! Purpose: read the shared prompt and the own tokens where they lie, the query heads of a key/value
//! head together, in the order of [`super::attention`], so that a decoded row has its bits.
//!
//! Price: keys are stored transposed, so appending a token writes `head_dim` separate elements.

use super::attention::{parts, softmax_row, with_scratch};
use super::matmul::CHAIN;
use super::{Cpu, LINE, share::Shared};
use crate::device::{AttentionShape, CacheRow, CacheSpan};
use crate::isa::{fma, kernel};

/// Query heads a kernel walks through together.
const HEADS: usize = 8;

pub(super) fn append(
    shape: AttentionShape,
    layer: usize,
    span: CacheSpan,
    k: &[f32],
    v: &[f32],
    cache: &mut [f32],
) {
    let width = shape.head_dim;
    let (capacity, len) = (span.capacity as usize, span.len as usize);
    let tokens = k.len() / shape.kv_width();
    assert!(
        k.len() == tokens * shape.kv_width() && v.len() == k.len(),
        "k and v are [tokens, kv_heads · head_dim]"
    );
    assert!(len + tokens <= capacity, "a region has room for its tokens");
    for head in 0..shape.kv_heads {
        let region = Region::of(shape, layer, head, span);
        let (keys, values) =
            cache[region.base..region.base + 2 * width * capacity].split_at_mut(width * capacity);
        for t in 0..tokens {
            let at = t * shape.kv_width() + head * width;
            for (d, &value) in k[at..at + width].iter().enumerate() {
                keys[d * capacity + len + t] = value;
            }
            values[(len + t) * width..][..width].copy_from_slice(&v[at..at + width]);
        }
    }
}

pub(super) fn attention_decode(
    cpu: &Cpu,
    shape: AttentionShape,
    layer: usize,
    rows: &[CacheRow],
    cache: &[f32],
    [q, k, v]: [&[f32]; 3],
    out: &mut [f32],
) {
    assert!(
        q.len() == rows.len() * shape.q_width() && out.len() == q.len(),
        "q and out are [rows, heads · head_dim]"
    );
    assert!(
        k.len() == rows.len() * shape.kv_width() && v.len() == k.len(),
        "k and v are [rows, kv_heads · head_dim]"
    );
    let (group, width) = (shape.group(), shape.head_dim);
    let out = Shared::new(out);
    cpu.for_tasks(rows.len() * shape.kv_heads, |task| {
        let (i, head) = (task / shape.kv_heads, task % shape.kv_heads);
        let row = rows[i];
        let spans = [row.prompt, row.own].map(|span| Region::of(shape, layer, head, span));
        let keys = spans[0].len + spans[1].len + 1;
        let stride = keys.next_multiple_of(LINE);
        let at = i * shape.q_width() + head * group * width;
        let kv_at = i * shape.kv_width() + head * width;
        let (k, v) = (&k[kv_at..kv_at + width], &v[kv_at..kv_at + width]);
        // SAFETY: a row and a head belong to one task.
        let out = unsafe { out.part(at, group * width) };
        with_scratch(|scratch| {
            let [scaled, scores] = parts(scratch, [group * width, group * stride]);
            for (s, &q) in scaled.iter_mut().zip(&q[at..]) {
                *s = q * shape.scale();
            }
            for first in (0..group).step_by(HEADS) {
                let heads = HEADS.min(group - first);
                let scaled = &scaled[first * width..(first + heads) * width];
                let scores = &mut scores[first * stride..(first + heads) * stride];
                let out = &mut out[first * width..(first + heads) * width];
                let task = HeadTask {
                    spans,
                    cache,
                    k,
                    v,
                    width,
                    stride,
                    keys,
                };
                match heads {
                    1 => attend::<1>(&task, scaled, scores, out),
                    2 => attend::<2>(&task, scaled, scores, out),
                    3 => attend::<3>(&task, scaled, scores, out),
                    4 => attend::<4>(&task, scaled, scores, out),
                    5 => attend::<5>(&task, scaled, scores, out),
                    6 => attend::<6>(&task, scaled, scores, out),
                    7 => attend::<7>(&task, scaled, scores, out),
                    _ => attend::<8>(&task, scaled, scores, out),
                }
            }
        });
    });
}

/// One layer and one head of a cache region.
#[derive(Clone, Copy)]
struct Region {
    base: usize,
    capacity: usize,
    len: usize,
}

impl Region {
    fn of(shape: AttentionShape, layer: usize, head: usize, span: CacheSpan) -> Self {
        let capacity = span.capacity as usize;
        let one = 2 * shape.head_dim * capacity;
        Self {
            base: span.base as usize + (layer * shape.kv_heads + head) * one,
            capacity,
            len: span.len as usize,
        }
    }
}

/// What the query heads of one key/value head share.
struct HeadTask<'a> {
    spans: [Region; 2],
    cache: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    width: usize,
    stride: usize,
    keys: usize,
}

fn attend<const G: usize>(task: &HeadTask, q: &[f32], scores: &mut [f32], out: &mut [f32]) {
    let mut first = 0;
    for span in task.spans {
        let keys = &task.cache[span.base..span.base + task.width * span.capacity];
        span_scores::<G>(q, keys, span.capacity, span.len, task.stride, first, scores);
        first += span.len;
    }
    new_scores::<G>(q, task.k, task.stride, first, scores);
    let mut inverse = [0.0_f32; G];
    for (g, inverse) in inverse.iter_mut().enumerate() {
        let (_, sum) = softmax_row(&mut scores[g * task.stride..][..task.keys]);
        *inverse = 1.0 / sum;
    }
    let [prompt, own] = task.spans.map(|span| {
        let base = span.base + task.width * span.capacity;
        &task.cache[base..base + task.width * span.len]
    });
    weighted_values::<G>(
        scores,
        task.stride,
        [prompt, own, task.v],
        task.width,
        &inverse,
        out,
    );
}

kernel! {
    /// Scores of `G` heads against the keys of a span, one chain over the width of a head.
    fn span_scores<FMA, const G: usize>(
        q: &[f32],
        keys: &[f32],
        capacity: usize,
        len: usize,
        stride: usize,
        first: usize,
        scores: &mut [f32],
    ) {
        const BLOCK: usize = 32;
        let width = q.len() / G;
        let mut j = 0;
        while j < len {
            // Regions are a multiple of 16 long; what lies beyond `len` is computed and dropped.
            let n = BLOCK.min(capacity - j);
            let mut sums = [[0.0_f32; BLOCK]; G];
            if n == BLOCK {
                for d in 0..width {
                    let at = d * capacity + j;
                    let k: &[f32; BLOCK] =
                        keys[at..at + BLOCK].try_into().expect("a block is BLOCK wide");
                    for g in 0..G {
                        let factor = q[g * width + d];
                        for c in 0..BLOCK {
                            sums[g][c] = fma::<FMA>(factor, k[c], sums[g][c]);
                        }
                    }
                }
            } else {
                for d in 0..width {
                    let k = &keys[d * capacity + j..][..n];
                    for g in 0..G {
                        let factor = q[g * width + d];
                        for (s, &k) in sums[g].iter_mut().zip(k) {
                            *s = fma::<FMA>(factor, k, *s);
                        }
                    }
                }
            }
            let n = n.min(len - j);
            for g in 0..G {
                scores[g * stride + first + j..][..n].copy_from_slice(&sums[g][..n]);
            }
            j += n;
        }
    }
}

kernel! {
    /// Scores against the row's own key.
    fn new_scores<FMA, const G: usize>(
        q: &[f32],
        k: &[f32],
        stride: usize,
        position: usize,
        scores: &mut [f32],
    ) {
        let width = k.len();
        for g in 0..G {
            let mut sum = 0.0;
            for (&q, &k) in q[g * width..][..width].iter().zip(k) {
                sum = fma::<FMA>(q, k, sum);
            }
            scores[g * stride + position] = sum;
        }
    }
}

kernel! {
    /// `out [G, width]` = Σ weight · value over all positions, one chain broken every [`CHAIN`].
    fn weighted_values<FMA, const G: usize>(
        weights: &[f32],
        stride: usize,
        spans: [&[f32]; 3],
        width: usize,
        inverse: &[f32; G],
        out: &mut [f32],
    ) {
        let mut column = 0;
        while column < width {
            let rest = width - column;
            column += match rest {
                64.. if G < 8 => panel::<FMA, G, 64>(weights, stride, spans, width, column, inverse, out),
                32.. => panel::<FMA, G, 32>(weights, stride, spans, width, column, inverse, out),
                16.. => panel::<FMA, G, 16>(weights, stride, spans, width, column, inverse, out),
                _ => panel::<FMA, G, 1>(weights, stride, spans, width, column, inverse, out),
            };
        }
    }
}

/// `P` columns of [`weighted_values`]; returns `P`.
#[inline(always)]
fn panel<const FMA: bool, const G: usize, const P: usize>(
    weights: &[f32],
    stride: usize,
    spans: [&[f32]; 3],
    width: usize,
    column: usize,
    inverse: &[f32; G],
    out: &mut [f32],
) -> usize {
    let mut sums = [[0.0_f32; P]; G];
    let mut chain = [[0.0_f32; P]; G];
    let mut position = 0;
    for values in spans {
        let rows = values.len() / width;
        let mut row = 0;
        while row < rows {
            let steps = (rows - row).min(CHAIN - position % CHAIN);
            let mut now = chain;
            let heads: [&[f32]; G] =
                std::array::from_fn(|g| &weights[g * stride + position..][..steps]);
            let values = &values[row * width + column..];
            for i in 0..steps {
                let v: &[f32; P] = values[i * width..][..P]
                    .try_into()
                    .expect("a panel is P wide");
                for g in 0..G {
                    let weight = heads[g][i];
                    for c in 0..P {
                        now[g][c] = fma::<FMA>(weight, v[c], now[g][c]);
                    }
                }
            }
            chain = now;
            position += steps;
            row += steps;
            if position % CHAIN == 0 {
                for g in 0..G {
                    for c in 0..P {
                        sums[g][c] += chain[g][c];
                        chain[g][c] = 0.0;
                    }
                }
            }
        }
    }
    for g in 0..G {
        for c in 0..P {
            out[g * width + column + c] = (sums[g][c] + chain[g][c]) * inverse[g];
        }
    }
    P
}
