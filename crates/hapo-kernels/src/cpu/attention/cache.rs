//! The key/value cache: append, and attention of one new row per sequence.
//!
//! Purpose: read the pages of the shared prompt and of the own tokens without copying them, the query heads of a
//! key/value head together, in the order of [`super::attention`], so that a decoded row has its bits. Price: keys are
//! stored transposed, so appending a token writes `head_dim` separate elements. A bf16 cache is widened a page at a
//! time, into memory that stays close to the CPU.

use super::{parts, softmax_row, with_scratch};
use crate::cpu::convert::{nearest, widen};
use crate::cpu::pool::{Cpu, Shared};
use crate::device::{AttentionDecode, CacheAppend};
use crate::lanes::{Lanes, WIDTH, fma, kernel};
use crate::shapes::{AttentionShape, CacheLayer, CacheRow, PAGE};
use crate::{
    cpu::buffer::LINE, cpu::product::kernel::CHAIN, number_format::NumberFormat, span::Span,
};

/// Query heads a kernel walks through together.
const HEADS: usize = 8;

pub(in crate::cpu) fn append(cpu: &Cpu, it: CacheAppend<Cpu>) {
    let CacheAppend { shape, first, cells, kv, cache } = it;
    let ([k, v], cache) = (kv.map(Span::read), cache.as_mut_slice());
    let one = cells.len() * shape.kv_dim();
    assert!(
        k.len() == v.len() && k.len().is_multiple_of(one.max(1)),
        "k and v are [layers, cells, kv_heads · head_dim]"
    );
    match first.format {
        NumberFormat::F32 => append_as(cpu, shape, first, cells, [k, v], cache, |it| it),
        NumberFormat::Bf16 => {
            let cache: &mut [u16] = bytemuck::cast_slice_mut(cache);
            append_as(cpu, shape, first, cells, [k, v], cache, |it| nearest(it) as u16);
        }
    }
}

fn append_as<T: Copy + Send>(
    cpu: &Cpu,
    shape: AttentionShape,
    first: CacheLayer,
    cells: &[u32],
    [k, v]: [&[f32]; 2],
    cache: &mut [T],
    stored: impl Fn(f32) -> T + Sync + Send,
) {
    /// Tokens of a task.
    const TOKENS: usize = 64;
    let (width, kv_dim) = (shape.head_dim, shape.kv_dim());
    let one = (cells.len() * kv_dim).max(1);
    let (heads, blocks) = (shape.kv_heads, cells.len().div_ceil(TOKENS));
    let cache = Shared::new(cache);
    cpu.for_tasks(k.len() / one * heads * blocks, |task| {
        let (i, head, block) = (task / blocks / heads, task / blocks % heads, task % blocks);
        let layer = CacheLayer { index: first.index + i, ..first };
        let [k, v] = [k, v].map(|it| &it[i * one..][..one]);
        for (token, &cell) in cells.iter().enumerate().skip(block * TOKENS).take(TOKENS) {
            let slot = cell as usize % PAGE;
            let at = offset(shape, layer, head, cell / PAGE as u32);
            let from = token * kv_dim + head * width;
            let keys = cache.tile(at + slot, width, PAGE, 1);
            for (d, &value) in k[from..from + width].iter().enumerate() {
                // SAFETY: inside the tile; cells are distinct, and a cell's head and layer belong to one task.
                unsafe { *keys.add(d * PAGE) = stored(value) };
            }
            // SAFETY: as above.
            let values = unsafe { cache.part(at + (PAGE + slot) * width, width) };
            for (to, &value) in values.iter_mut().zip(&v[from..]) {
                *to = stored(value);
            }
        }
    });
}

pub(in crate::cpu) fn attention_decode(cpu: &Cpu, it: AttentionDecode<Cpu>) {
    let AttentionDecode { shape, layer, rows, pages, cache, qkv, out } = it;
    let (cache, [q, k, v], out) = (cache.as_slice(), qkv.map(Span::read), out.write());
    shape.expect_rows(rows.len(), &[q.len(), out.len()], &[k.len(), v.len()]);
    let (group, width) = (shape.group(), shape.head_dim);
    let out = Shared::new(out);
    cpu.for_tasks(rows.len() * shape.kv_heads, |task| {
        let (i, head) = (task / shape.kv_heads, task % shape.kv_heads);
        let row = rows[i];
        let stride = row.positions().next_multiple_of(LINE);
        let at = i * shape.q_dim() + head * group * width;
        let kv_at = i * shape.kv_dim() + head * width;
        let task = HeadTask {
            row,
            pages: &pages[row.first_page as usize..],
            shape,
            layer,
            head,
            cache,
            k: &k[kv_at..kv_at + width],
            v: &v[kv_at..kv_at + width],
            first: shape.first_read(row.positions() - 1),
            stride,
        };
        // SAFETY: a row and a head belong to one task.
        let out = unsafe { out.part(at, group * width) };
        with_scratch(|scratch| {
            let lengths = [group * width, group * stride, width * PAGE];
            let [scaled, scores, wide] = parts(scratch, lengths);
            for (s, &q) in scaled.iter_mut().zip(&q[at..]) {
                *s = q * shape.scale();
            }
            for first in (0..group).step_by(HEADS) {
                let heads = HEADS.min(group - first);
                let scaled = &scaled[first * width..(first + heads) * width];
                let scores = &mut scores[first * stride..(first + heads) * stride];
                let out = &mut out[first * width..(first + heads) * width];
                match heads {
                    1 => attend::<1>(&task, scaled, scores, wide, out),
                    2 => attend::<2>(&task, scaled, scores, wide, out),
                    3 => attend::<3>(&task, scaled, scores, wide, out),
                    4 => attend::<4>(&task, scaled, scores, wide, out),
                    5 => attend::<5>(&task, scaled, scores, wide, out),
                    6 => attend::<6>(&task, scaled, scores, wide, out),
                    7 => attend::<7>(&task, scaled, scores, wide, out),
                    _ => attend::<8>(&task, scaled, scores, wide, out),
                }
            }
        });
    });
}

/// Where a head of a layer begins in a page of the cache.
fn offset(shape: AttentionShape, layer: CacheLayer, head: usize, page: u32) -> usize {
    let heads = (page as usize * layer.count + layer.index) * shape.kv_heads + head;
    heads * 2 * shape.head_dim * PAGE
}

/// State that the query heads of one key/value head share.
struct HeadTask<'a> {
    row: CacheRow,
    pages: &'a [u32],
    shape: AttentionShape,
    layer: CacheLayer,
    head: usize,
    cache: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    /// The first position that is read.
    first: usize,
    stride: usize,
}

/// The keys and values of a page in the cache's format, and how many of them are the row's.
#[derive(Clone, Copy)]
struct Run<'a> {
    keys: &'a [f32],
    values: &'a [f32],
    len: usize,
}

impl<'a> HeadTask<'a> {
    fn runs(&self) -> usize {
        self.row.prompt_pages() + self.row.own_pages()
    }

    #[inline(always)]
    fn run(&self, i: usize) -> Run<'a> {
        let (width, of_prompt) = (self.k.len(), self.row.prompt_pages());
        let left = if i < of_prompt {
            self.row.prompt_len as usize - i * PAGE
        } else {
            self.row.own_len as usize - (i - of_prompt) * PAGE
        };
        let format = self.layer.format;
        let at = format.words(offset(self.shape, self.layer, self.head, self.pages[i]));
        let half = format.words(width * PAGE);
        let (keys, values) = self.cache[at..at + 2 * half].split_at(half);
        Run { keys, values, len: left.min(PAGE) }
    }

    /// The keys of a page in f32: where they are, or in `wide`.
    #[inline(always)]
    fn keys<'b>(&self, run: Run<'b>, wide: &'b mut [f32]) -> &'b [f32] {
        match self.layer.format {
            NumberFormat::F32 => run.keys,
            NumberFormat::Bf16 => {
                widen_rows(run.keys, PAGE, (0, PAGE), wide);
                wide
            }
        }
    }

    /// Columns of the values of a page in f32, and the distance between their rows.
    #[inline(always)]
    fn values<'b>(
        &self,
        run: Run<'b>,
        (column, columns): (usize, usize),
        wide: &'b mut [f32],
    ) -> (&'b [f32], usize) {
        let width = self.v.len();
        match self.layer.format {
            NumberFormat::F32 => (&run.values[column..], width),
            NumberFormat::Bf16 => {
                let values = &run.values[..(run.len * width).div_ceil(2)];
                widen_rows(values, width, (column, columns), wide);
                (wide, columns)
            }
        }
    }
}

kernel! {
    /// Columns of rows of bf16 numbers that are `width` long.
    fn widen_rows<V>(from: &[f32], width: usize, columns: (usize, usize), to: &mut [f32]) {
        let from: &[u16] = bytemuck::cast_slice(from);
        let (column, columns) = columns;
        for (to, from) in to.chunks_exact_mut(columns).zip(from.chunks_exact(width)) {
            widen(&from[column..column + columns], to);
        }
    }
}

fn attend<const G: usize>(
    task: &HeadTask,
    q: &[f32],
    scores: &mut [f32],
    wide: &mut [f32],
    out: &mut [f32],
) {
    let keys = task.row.positions();
    cached_scores::<G>(task, q, scores, wide);
    new_scores::<G>(q, task.k, task.stride, keys - 1, scores);
    let mut inverse = [0.0_f32; G];
    for (g, inverse) in inverse.iter_mut().enumerate() {
        let scores = &mut scores[g * task.stride..][..keys];
        scores[..task.first].fill(0.0);
        let (_, sum) = softmax_row(&mut scores[task.first..]);
        *inverse = 1.0 / sum;
    }
    weighted_values::<G>(task, scores, &inverse, wide, out);
}

kernel! {
    /// Scores of `G` heads against the keys of all pages, one chain over the width of a head.
    fn cached_scores<V, const G: usize>(
        task: &HeadTask,
        q: &[f32],
        scores: &mut [f32],
        wide: &mut [f32],
    ) {
        let mut first = 0;
        for i in 0..task.runs() {
            let run = task.run(i);
            if first + run.len <= task.first {
                first += run.len;
                continue;
            }
            let (keys, len) = (task.keys(run, wide), run.len);
            let scores = &mut scores[first..];
            let mut j = 0;
            while j < len {
                let part = ScorePart { q, keys, first: j, len };
                // Scores beyond `len` in a page are computed and dropped.
                j += match len - j {
                    left if G <= 4 && left > 2 * WIDTH => {
                        score_block::<V, G, 4>(part, task.stride, scores)
                    }
                    left if left > WIDTH => score_block::<V, G, 2>(part, task.stride, scores),
                    _ => score_block::<V, G, 1>(part, task.stride, scores),
                };
            }
            first += len;
        }
    }
}

/// Location of a block of keys in a page.
#[derive(Clone, Copy)]
struct ScorePart<'a> {
    q: &'a [f32],
    keys: &'a [f32],
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
        let k = &part.keys[d * PAGE + part.first..][..N * WIDTH];
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
    fn new_scores<V, const G: usize>(
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
                sum = fma::<V>(q, k, sum);
            }
            scores[g * stride + position] = sum;
        }
    }
}

kernel! {
    /// `out [G, width]` = Σ weight · value over all positions, one chain broken every [`CHAIN`].
    fn weighted_values<V, const G: usize>(
        task: &HeadTask,
        weights: &[f32],
        inverse: &[f32; G],
        wide: &mut [f32],
        out: &mut [f32],
    ) {
        let mut column = 0;
        let width = task.v.len();
        while column < width {
            let part = ValuePart { task, weights, column };
            column += match width - column {
                64.. if G <= 7 => value_block::<V, G, 4>(part, inverse, wide, out),
                32.. => value_block::<V, G, 2>(part, inverse, wide, out),
                _ => value_block::<V, G, 1>(part, inverse, wide, out),
            };
        }
    }
}

/// Which columns of the values are summed.
#[derive(Clone, Copy)]
struct ValuePart<'a> {
    task: &'a HeadTask<'a>,
    weights: &'a [f32],
    column: usize,
}

/// Up to `N · 16` columns; returns that number.
#[inline(always)]
fn value_block<V: Lanes, const G: usize, const N: usize>(
    part: ValuePart,
    inverse: &[f32; G],
    wide: &mut [f32],
    out: &mut [f32],
) -> usize {
    let ValuePart { task, weights, column } = part;
    let (width, runs) = (task.v.len(), task.runs());
    let columns = (N * WIDTH).min(width - column);
    let mut sums = [[V::splat(0.0); N]; G];
    let mut chain = sums;
    let mut position = 0;
    for run in 0..=runs {
        // Nothing before the window is added, and the sums are zero until then.
        if run < runs && position + task.run(run).len <= task.first {
            position += task.run(run).len;
            continue;
        }
        let (values, stride, rows) = if run < runs {
            let run = task.run(run);
            let (values, stride) = task.values(run, (column, columns), wide);
            (values, stride, run.len)
        } else {
            (&task.v[column..], width, 1)
        };
        let mut row = 0;
        while row < rows {
            let steps = (rows - row).min(CHAIN - position % CHAIN);
            let heads: [&[f32]; G] =
                std::array::from_fn(|g| &weights[g * task.stride + position..][..steps]);
            let mut now = chain;
            for i in 0..steps {
                let v = &values[(row + i) * stride..][..columns];
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
        let out = &mut out[g * width + column..][..columns];
        for n in 0..N {
            let sum = sums[g][n].add(chain[g][n]).times(V::splat(inverse[g]));
            let end = columns.min((n + 1) * WIDTH);
            sum.store_part(&mut out[n * WIDTH..end]);
        }
    }
    columns
}
