//! Causal attention over packed segments, forward and backward.
//!
//! Purpose: a task gathers the keys and values of one segment (its prefix in front) and one key/value
//! head, and walks over blocks of queries; the query heads of that head go through one product
//! together. The full row of scores of a block is held, never that of a whole sequence, and the
//! backward computes it again.
//!
//! Bits: scores are one chain over `head_dim`; the sum of the exponentials runs in sixteen lanes by
//! absolute position; the weighted values are one chain over absolute positions, broken every 512.
//! Masked positions add exact zeros. A prefix therefore changes no bits, nor does decoding
//! ([`super::cache`]), which uses the same order.
//!
//! Price: keys and values are copied once per task; a block of 32 queries holds
//! 32 · group · keys scores.

use std::ops::Range;

use super::scratch::{parts, softmax_row, with_scratch};
use crate::cpu::buffer::LINE;
use crate::cpu::pool::Cpu;
use crate::cpu::product::kernel::{CHAIN, Left, Product, Right, product};
use crate::cpu::share::Shared;
use crate::isa::{fma, kernel};
use crate::row::{exp_of, ln};
use crate::shapes::{AttentionShape, SegmentRow};

/// Query positions of a block.
const QUERIES: usize = 32;
/// Query positions of a forward task.
const TASK: usize = 512;

pub(in crate::cpu) fn forward(
    cpu: &Cpu,
    shape: AttentionShape,
    segments: &[SegmentRow],
    [q, k, v]: [&[f32]; 3],
    out: &mut [f32],
    log_sums: &mut [f32],
) {
    let rows = log_sums.len() / shape.heads;
    shape.expect_rows(rows, &[q.len(), out.len()], &[k.len(), v.len()]);
    let tasks: Vec<(SegmentRow, Range<usize>)> = segments
        .iter()
        .flat_map(|&s| {
            let len = s.len as usize;
            (0..len).step_by(TASK).map(move |first| (s, first..(first + TASK).min(len)))
        })
        .collect();
    let (out, log_sums) = (Shared::new(out), Shared::new(log_sums));
    cpu.for_tasks(tasks.len() * shape.kv_heads, |task| {
        let (segment, queries) = &tasks[task / shape.kv_heads];
        let head = task % shape.kv_heads;
        forward_task(shape, *segment, queries, head, [q, k, v], out, log_sums);
    });
}

fn forward_task(
    shape: AttentionShape,
    segment: SegmentRow,
    queries: &Range<usize>,
    head: usize,
    [q, k, v]: [&[f32]; 3],
    out: Shared,
    log_sums: Shared,
) {
    let (group, width) = (shape.group(), shape.head_dim);
    let prefix = segment.prefix_len as usize;
    let keys = prefix + queries.end;
    let stride = keys.next_multiple_of(LINE);
    let block_rows = QUERIES * group;
    with_scratch(|scratch| {
        let [kt, values, q_block, scores, o_block, inverse_sums] = parts(
            scratch,
            [
                width * stride,
                stride * width,
                block_rows * width,
                block_rows * stride,
                block_rows * width,
                block_rows,
            ],
        );
        gather_transposed(shape, segment, keys, head, k, kt, stride);
        gather(shape, segment, keys, head, v, values);
        for first in queries.clone().step_by(QUERIES) {
            let n = QUERIES.min(queries.end - first);
            let limit = prefix + first + n;
            let from = skipped(shape, prefix + first);
            let rows = n * group;
            gather_queries(shape, segment, first..first + n, head, q, shape.scale(), q_block);
            attend_scores(rows, from..limit, width, q_block, kt, stride, scores);
            for i in 0..n {
                let valid = prefix + first + i + 1;
                for g in 0..group {
                    let row = &mut scores[(i * group + g) * stride..][..limit];
                    let read = shape.first_read(valid - 1);
                    row[from..read].fill(0.0);
                    let (max, sum) = softmax_row(&mut row[read..valid]);
                    row[valid..].fill(0.0);
                    inverse_sums[i * group + g] = 1.0 / sum;
                    let token = segment.start as usize + first + i;
                    // SAFETY: a token and a head belong to one task.
                    let log_sum =
                        unsafe { log_sums.part(token * shape.heads + head * group + g, 1) };
                    log_sum[0] = max + ln(sum);
                }
            }
            product(
                Product {
                    m: rows,
                    n: width,
                    k: limit - from,
                    left: Left { data: &scores[from..], row_stride: stride, step_stride: 1 },
                    right: numbers(&values[from * width..], width),
                    column: 0,
                    add: false,
                },
                o_block.as_mut_ptr(),
                width,
            );
            for i in 0..n {
                let token = segment.start as usize + first + i;
                // SAFETY: a token and a head belong to one task.
                let out = unsafe {
                    out.part(token * shape.q_dim() + head * group * width, group * width)
                };
                for g in 0..group {
                    let o = &o_block[(i * group + g) * width..][..width];
                    for (out, &o) in out[g * width..][..width].iter_mut().zip(o) {
                        *out = o * inverse_sums[i * group + g];
                    }
                }
            }
        }
    });
}

/// State that the forward saved for the backward, and the gradient of the output.
pub(in crate::cpu) struct Saved<'a> {
    pub(in crate::cpu) qkv: [&'a [f32]; 3],
    pub(in crate::cpu) out: &'a [f32],
    pub(in crate::cpu) log_sums: &'a [f32],
    pub(in crate::cpu) dout: &'a [f32],
}

pub(in crate::cpu) fn backward(
    cpu: &Cpu,
    shape: AttentionShape,
    segments: &[SegmentRow],
    saved: &Saved,
    [dq, dk, dv]: [&mut [f32]; 3],
) {
    let rows = saved.log_sums.len() / shape.heads;
    let [q, k, v] = saved.qkv.map(<[f32]>::len);
    shape.expect_rows(rows, &[q, dq.len()], &[k, v, dk.len(), dv.len()]);
    let mut prefix_groups: Vec<&[SegmentRow]> =
        segments.chunk_by(|a, b| a.prefix_group == b.prefix_group).collect();
    // The longest first; the order in which prefix groups run changes no bits.
    prefix_groups.sort_by_key(|f| std::cmp::Reverse(f.iter().map(|s| s.len).sum::<u32>()));
    let (dq, dk, dv) = (Shared::new(dq), Shared::new(dk), Shared::new(dv));
    cpu.for_tasks(prefix_groups.len() * shape.kv_heads, |task| {
        let prefix_group = prefix_groups[task / shape.kv_heads];
        let head = task % shape.kv_heads;
        for segment in prefix_group {
            for i in 0..segment.len as usize {
                let at = (segment.start as usize + i) * shape.kv_dim() + head * shape.head_dim;
                // SAFETY: the rows of a prefix group and a head belong to one task.
                unsafe {
                    dk.part(at, shape.head_dim).fill(0.0);
                    dv.part(at, shape.head_dim).fill(0.0);
                }
            }
        }
        for &segment in prefix_group {
            backward_task(shape, segment, head, saved, dq, dk, dv);
        }
    });
}

fn backward_task(
    shape: AttentionShape,
    segment: SegmentRow,
    head: usize,
    saved: &Saved,
    dq: Shared,
    dk: Shared,
    dv: Shared,
) {
    let (group, width) = (shape.group(), shape.head_dim);
    let prefix = segment.prefix_len as usize;
    let len = segment.len as usize;
    let keys = prefix + len;
    let stride = keys.next_multiple_of(LINE);
    let block_rows = QUERIES * group;
    with_scratch(|scratch| {
        let [kt, vt, k, dk_local, dv_local, q, dout, p, dp, dq_block] = parts(
            scratch,
            [
                width * stride,
                width * stride,
                stride * width,
                stride * width,
                stride * width,
                block_rows * width,
                block_rows * width,
                block_rows * stride,
                block_rows * stride,
                block_rows * width,
            ],
        );
        gather_transposed(shape, segment, keys, head, saved.qkv[1], kt, stride);
        gather_transposed(shape, segment, keys, head, saved.qkv[2], vt, stride);
        gather(shape, segment, keys, head, saved.qkv[1], k);
        dk_local.fill(0.0);
        dv_local.fill(0.0);
        for first in (0..len).step_by(QUERIES) {
            let n = QUERIES.min(len - first);
            let limit = prefix + first + n;
            let rows = n * group;
            let block = first..first + n;
            let from = skipped(shape, prefix + first);
            gather_queries(shape, segment, block.clone(), head, saved.qkv[0], shape.scale(), q);
            gather_queries(shape, segment, block, head, saved.dout, 1.0, dout);
            attend_scores(rows, from..limit, width, q, kt, stride, p);
            attend_scores(rows, from..limit, width, dout, vt, stride, dp);
            for i in 0..n {
                let token = segment.start as usize + first + i;
                let valid = prefix + first + i + 1;
                for g in 0..group {
                    let at = i * group + g;
                    let out_at = token * shape.q_dim() + (head * group + g) * width;
                    let read = shape.first_read(valid - 1);
                    p[at * stride..][from..read].fill(0.0);
                    dp[at * stride..][from..read].fill(0.0);
                    score_grad(
                        saved.log_sums[token * shape.heads + head * group + g],
                        &dout[at * width..][..width],
                        &saved.out[out_at..][..width],
                        valid - read,
                        &mut p[at * stride..][read..limit],
                        &mut dp[at * stride..][read..limit],
                    );
                }
            }
            product(
                Product {
                    m: rows,
                    n: width,
                    k: limit - from,
                    left: Left { data: &dp[from..], row_stride: stride, step_stride: 1 },
                    right: numbers(&k[from * width..], width),
                    column: 0,
                    add: false,
                },
                dq_block.as_mut_ptr(),
                width,
            );
            for (weights, factor, sum) in
                [(&*p, &*dout, &mut *dv_local), (&*dp, &*q, &mut *dk_local)]
            {
                product(
                    Product {
                        m: limit - from,
                        n: width,
                        k: rows,
                        left: Left { data: &weights[from..], row_stride: 1, step_stride: stride },
                        right: numbers(factor, width),
                        column: 0,
                        add: true,
                    },
                    sum[from * width..].as_mut_ptr(),
                    width,
                );
            }
            let token = segment.start as usize + first;
            store_queries(shape, token, head, &dq_block[..rows * width], dq);
        }
        for (to, from) in [(dk, &*dk_local), (dv, &*dv_local)] {
            add_keys(shape, segment, head, from, to);
        }
    });
}

/// Stores the gradients of a head's queries, of the rows from `token` on, with the scale that their scores had.
fn store_queries(shape: AttentionShape, token: usize, head: usize, block: &[f32], dq: Shared) {
    let len = shape.group() * shape.head_dim;
    for (token, block) in (token..).zip(block.chunks_exact(len)) {
        // SAFETY: a token and a head belong to one task.
        let dq = unsafe { dq.part(token * shape.q_dim() + head * len, len) };
        for (d, &b) in dq.iter_mut().zip(block) {
            *d = b * shape.scale();
        }
    }
}

/// Adds the gradients of a segment's keys, or of its values, to those of all rows.
fn add_keys(shape: AttentionShape, segment: SegmentRow, head: usize, from: &[f32], to: Shared) {
    let width = shape.head_dim;
    for j in 0..(segment.prefix_len + segment.len) as usize {
        let at = key_row(segment, j) * shape.kv_dim() + head * width;
        // SAFETY: the rows of a prefix group and a head belong to one task.
        let to = unsafe { to.part(at, width) };
        for (t, &f) in to.iter_mut().zip(&from[j * width..][..width]) {
            *t += f;
        }
    }
}

/// Packed row of key `j` of a segment.
fn key_row(segment: SegmentRow, j: usize) -> usize {
    let prefix = segment.prefix_len as usize;
    if j < prefix { segment.prefix_start as usize + j } else { segment.start as usize + j - prefix }
}

/// `[keys, head_dim]`, zero beyond `keys`.
fn gather(
    shape: AttentionShape,
    segment: SegmentRow,
    keys: usize,
    head: usize,
    x: &[f32],
    to: &mut [f32],
) {
    let width = shape.head_dim;
    for (j, to) in to.chunks_exact_mut(width).enumerate() {
        if j < keys {
            let at = key_row(segment, j) * shape.kv_dim() + head * width;
            to.copy_from_slice(&x[at..at + width]);
        } else {
            to.fill(0.0);
        }
    }
}

/// `[head_dim, stride]`, zero beyond `keys`.
fn gather_transposed(
    shape: AttentionShape,
    segment: SegmentRow,
    keys: usize,
    head: usize,
    x: &[f32],
    to: &mut [f32],
    stride: usize,
) {
    let width = shape.head_dim;
    for block in (0..keys).step_by(LINE) {
        let n = LINE.min(keys - block);
        for j in block..block + n {
            let at = key_row(segment, j) * shape.kv_dim() + head * width;
            for (d, &value) in x[at..at + width].iter().enumerate() {
                to[d * stride + j] = value;
            }
        }
    }
    for row in to.chunks_exact_mut(stride) {
        row[keys..].fill(0.0);
    }
}

/// `[positions · group, head_dim]`, times `scale`.
fn gather_queries(
    shape: AttentionShape,
    segment: SegmentRow,
    positions: Range<usize>,
    head: usize,
    x: &[f32],
    scale: f32,
    to: &mut [f32],
) {
    let wide = shape.group() * shape.head_dim;
    for (i, to) in positions.zip(to.chunks_exact_mut(wide)) {
        let at = (segment.start as usize + i) * shape.q_dim() + head * wide;
        for (t, &value) in to.iter_mut().zip(&x[at..at + wide]) {
            *t = value * scale;
        }
    }
}

/// Positions before all that a block of queries from `position` on reads: whole chains of the sums over positions, so
/// that leaving them out changes no bits.
fn skipped(shape: AttentionShape, position: usize) -> usize {
    shape.first_read(position) / CHAIN * CHAIN
}

/// A right factor whose steps are `stride` apart.
fn numbers(data: &[f32], stride: usize) -> Right<'_> {
    Right::Numbers { data, step_stride: stride, column_stride: 1 }
}

/// `[rows, keys]` scores, rows `stride` apart.
fn attend_scores(
    rows: usize,
    keys: Range<usize>,
    width: usize,
    q: &[f32],
    kt: &[f32],
    stride: usize,
    scores: &mut [f32],
) {
    assert!(rows * stride <= scores.len(), "scores hold the block");
    let (first, n) = (keys.start, keys.len());
    product(
        Product {
            m: rows,
            n,
            k: width,
            left: Left { data: q, row_stride: width, step_stride: 1 },
            right: numbers(&kt[first..], stride),
            column: 0,
            add: false,
        },
        scores[first..].as_mut_ptr(),
        stride,
    );
}

kernel! {
    /// Scores become probabilities, gradients of probabilities become gradients of scores; both are 0
    /// beyond `valid`.
    fn score_grad<FMA>(
        log_sum: f32,
        dout: &[f32],
        out: &[f32],
        valid: usize,
        p: &mut [f32],
        dp: &mut [f32],
    ) {
        let mut mean = 0.0_f32;
        for (&d, &o) in dout.iter().zip(out) {
            mean = fma::<FMA>(d, o, mean);
        }
        let (p_in, p_out) = p.split_at_mut(valid);
        let (dp_in, dp_out) = dp.split_at_mut(valid);
        for (p, dp) in p_in.iter_mut().zip(dp_in) {
            *p = exp_of::<FMA>(*p - log_sum);
            *dp = *p * (*dp - mean);
        }
        p_out.fill(0.0);
        dp_out.fill(0.0);
    }
}
