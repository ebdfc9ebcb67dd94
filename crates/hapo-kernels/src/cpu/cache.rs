//! The key/value cache: append, and attention of one new row per sequence.
//!
//! Purpose: read the shared prompt and the own tokens without copying them, the query heads of a key/value
//! head together, in the order of [`super::attention`], so that a decoded row has its bits.
//!
//! Price: keys are stored transposed, so appending a token writes `head_dim` separate elements.

use super::attention::{parts, softmax_row, with_scratch};
use super::matmul::CHAIN;
use super::{Cpu, LINE, share::Shared};
use crate::device::{AttentionShape, CacheRow, CacheSpan};
use crate::isa::{fma, kernel};
use crate::lanes::{Lanes, WIDTH, wide_kernel};

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
    let tokens = k.len() / shape.kv_dim();
    assert!(
        k.len() == tokens * shape.kv_dim() && v.len() == k.len(),
        "k and v are [tokens, kv_heads · head_dim]"
    );
    assert!(len + tokens <= capacity, "a region holds its tokens");
    for head in 0..shape.kv_heads {
        let region = Region::of(shape, layer, head, span);
        let (keys, values) =
            cache[region.base..region.base + 2 * width * capacity].split_at_mut(width * capacity);
        for t in 0..tokens {
            let at = t * shape.kv_dim() + head * width;
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
        q.len() == rows.len() * shape.q_dim() && out.len() == q.len(),
        "q and out are [rows, heads · head_dim]"
    );
    assert!(
        k.len() == rows.len() * shape.kv_dim() && v.len() == k.len(),
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
        let at = i * shape.q_dim() + head * group * width;
        let kv_at = i * shape.kv_dim() + head * width;
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
                let task = HeadTask { spans, cache, k, v, width, stride, keys };
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
    weighted_values::<G>(scores, task.stride, [prompt, own, task.v], task.width, &inverse, out);
}

wide_kernel! {
    /// Scores of `G` heads against the keys of a span, one chain over the width of a head.
    fn span_scores<V, const G: usize>(
        q: &[f32],
        keys: &[f32],
        capacity: usize,
        len: usize,
        stride: usize,
        first: usize,
        scores: &mut [f32],
    ) = span_scores_body
}

#[inline(always)]
fn span_scores_body<V: Lanes, const G: usize>(
    q: &[f32],
    keys: &[f32],
    capacity: usize,
    len: usize,
    stride: usize,
    first: usize,
    scores: &mut [f32],
) {
    let mut j = 0;
    while j < len {
        let part = ScorePart { q, keys, capacity, first: j, len };
        let scores = &mut scores[first..];
        // Regions are a multiple of 16 long; what is beyond `len` is computed and dropped.
        j += if G <= 4 && capacity - j >= 4 * WIDTH {
            score_block::<V, G, 4>(part, stride, scores)
        } else if capacity - j >= 2 * WIDTH {
            score_block::<V, G, 2>(part, stride, scores)
        } else {
            score_block::<V, G, 1>(part, stride, scores)
        };
    }
}

/// Location of a block of keys.
#[derive(Clone, Copy)]
struct ScorePart<'a> {
    q: &'a [f32],
    keys: &'a [f32],
    capacity: usize,
    first: usize,
    len: usize,
}

/// `N · 16` keys; returns that number.
#[inline(always)]
fn score_block<V: Lanes, const G: usize, const N: usize>(
    part: ScorePart,
    stride: usize,
    scores: &mut [f32],
) -> usize {
    let mut sums = [[V::splat(0.0); N]; G];
    let width = part.q.len() / G;
    for d in 0..width {
        let k = &part.keys[d * part.capacity + part.first..][..N * WIDTH];
        let k: [V; N] = std::array::from_fn(|n| V::load_part(&k[n * WIDTH..]));
        for g in 0..G {
            let factor = V::splat(part.q[g * width + d]);
            for n in 0..N {
                sums[g][n] = sums[g][n].add_product(factor, k[n]);
            }
        }
    }
    for (g, sums) in sums.iter().enumerate() {
        for (n, sum) in sums.iter().enumerate() {
            let j = part.first + n * WIDTH;
            if j < part.len {
                let width = WIDTH.min(part.len - j);
                sum.store_part(&mut scores[g * stride + j..][..width]);
            }
        }
    }
    N * WIDTH
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

wide_kernel! {
    /// `out [G, width]` = Σ weight · value over all positions, one chain broken every [`CHAIN`].
    fn weighted_values<V, const G: usize>(
        weights: &[f32],
        stride: usize,
        spans: [&[f32]; 3],
        width: usize,
        inverse: &[f32; G],
        out: &mut [f32],
    ) = weighted_values_body
}

#[inline(always)]
fn weighted_values_body<V: Lanes, const G: usize>(
    weights: &[f32],
    stride: usize,
    spans: [&[f32]; 3],
    width: usize,
    inverse: &[f32; G],
    out: &mut [f32],
) {
    let mut column = 0;
    while column < width {
        let part = ValuePart { weights, stride, spans, width, column };
        column += match width - column {
            64.. if G <= 7 => value_block::<V, G, 4>(part, inverse, out),
            32.. => value_block::<V, G, 2>(part, inverse, out),
            _ => value_block::<V, G, 1>(part, inverse, out),
        };
    }
}

/// Which columns of the values are summed.
#[derive(Clone, Copy)]
struct ValuePart<'a> {
    weights: &'a [f32],
    stride: usize,
    spans: [&'a [f32]; 3],
    width: usize,
    column: usize,
}

/// Up to `N · 16` columns; returns that number.
#[inline(always)]
fn value_block<V: Lanes, const G: usize, const N: usize>(
    part: ValuePart,
    inverse: &[f32; G],
    out: &mut [f32],
) -> usize {
    let columns = (N * WIDTH).min(part.width - part.column);
    let mut sums = [[V::splat(0.0); N]; G];
    let mut chain = sums;
    let mut position = 0;
    for values in part.spans {
        let rows = values.len() / part.width;
        let mut row = 0;
        while row < rows {
            let steps = (rows - row).min(CHAIN - position % CHAIN);
            let heads: [&[f32]; G] =
                std::array::from_fn(|g| &part.weights[g * part.stride + position..][..steps]);
            let mut now = chain;
            for i in 0..steps {
                let v = &values[(row + i) * part.width + part.column..][..columns];
                let v: [V; N] = std::array::from_fn(|n| V::load_part(&v[n * WIDTH..]));
                for g in 0..G {
                    let weight = V::splat(heads[g][i]);
                    for n in 0..N {
                        now[g][n] = now[g][n].add_product(weight, v[n]);
                    }
                }
            }
            chain = now;
            position += steps;
            row += steps;
            if position % CHAIN == 0 {
                for g in 0..G {
                    for n in 0..N {
                        sums[g][n] = sums[g][n].add(chain[g][n]);
                        chain[g][n] = V::splat(0.0);
                    }
                }
            }
        }
    }
    for g in 0..G {
        let out = &mut out[g * part.width + part.column..][..columns];
        for n in 0..N {
            let sum = sums[g][n].add(chain[g][n]).times(V::splat(inverse[g]));
            let end = columns.min((n + 1) * WIDTH);
            sum.store_part(&mut out[n * WIDTH..end]);
        }
    }
    columns
}
