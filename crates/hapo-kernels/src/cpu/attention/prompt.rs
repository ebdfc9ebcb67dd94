//! Causal attention over packed segments, forward and backward.
//!
//! Purpose: a task gathers the keys and values of one segment (its prefix in front) and one key/value head, and walks
//! over blocks of queries; the query heads of that head go through one product together. The full row of scores of a
//! block is held, never that of a whole sequence, and the backward computes it again. Bits: scores are one chain over
//! `head_dim`; the sum of the exponentials runs in sixteen lanes by absolute position; the weighted values are one
//! chain over absolute positions, broken every 512. Masked positions add exact zeros. A prefix therefore changes no
//! bits, nor does decoding ([`super::cache`]), which uses the same order. Price: keys and values are copied once per
//! task; a block of 32 queries holds 32 · group · keys scores.

use std::ops::Range;

use super::{parts, softmax_row, with_scratch};
use crate::cpu::buffer::LINE;
use crate::cpu::pool::{Cpu, Shared};
use crate::cpu::product::kernel::{CHAIN, Left, Product, Right, product};
use crate::device::{Attention, AttentionGrad};
use crate::lanes::{fma, kernel};
use crate::row::{exp_of, ln};
use crate::shapes::{AttentionShape, SegmentRow};
use crate::span::{Span, SpanMut};

/// Query positions of a block.
const QUERIES: usize = 32;
/// Query positions of a forward task.
const TASK: usize = 512;

pub(in crate::cpu) fn forward(cpu: &Cpu, it: Attention<Cpu>) {
    let Attention { shape, segments, qkv, out, log_sums } = it;
    let ([q, k, v], out, log_sums) = (qkv.map(Span::read), out.write(), log_sums.write());
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
        let head = Head { shape, segment: *segment, index: task % shape.kv_heads };
        head.forward(queries, [q, k, v], out, log_sums);
    });
}

/// State that the forward saved for the backward, and the gradient of the output.
struct Saved<'a> {
    qkv: [&'a [f32]; 3],
    out: &'a [f32],
    log_sums: &'a [f32],
    dout: &'a [f32],
}

pub(in crate::cpu) fn backward(cpu: &Cpu, it: AttentionGrad<Cpu>) {
    let AttentionGrad { shape, segments, qkv, out, log_sums, dout, dqkv } = it;
    let (out, log_sums, dout) = (out.read(), log_sums.read(), dout.read());
    let saved = &Saved { qkv: qkv.map(Span::read), out, log_sums, dout };
    let [dq, dk, dv] = dqkv.map(SpanMut::write);
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
        let heads = prefix_group.iter().map(|&segment| Head {
            shape,
            segment,
            index: task % shape.kv_heads,
        });
        for head in heads.clone() {
            for i in 0..head.segment.len as usize {
                let at = head.key(head.segment.prefix_len as usize + i);
                // SAFETY: the rows of a prefix group and a head belong to one task.
                unsafe {
                    dk.part(at, shape.head_dim).fill(0.0);
                    dv.part(at, shape.head_dim).fill(0.0);
                }
            }
        }
        heads.for_each(|head| head.backward(saved, dq, dk, dv));
    });
}

/// A key/value head of a segment.
#[derive(Clone, Copy)]
struct Head {
    shape: AttentionShape,
    segment: SegmentRow,
    index: usize,
}

impl Head {
    fn forward(
        self,
        queries: &Range<usize>,
        [q, k, v]: [&[f32]; 3],
        out: Shared,
        log_sums: Shared,
    ) {
        let (shape, prefix) = (self.shape, self.segment.prefix_len as usize);
        let (group, width) = (shape.group(), shape.head_dim);
        let keys = prefix + queries.end;
        let stride = keys.next_multiple_of(LINE);
        let (all, block) = (stride * width, QUERIES * group);
        let lens = [all, all, block * width, block * stride, block * width, block];
        with_scratch(|scratch| {
            let [kt, values, q_block, scores, o_block, inverse_sums] = parts(scratch, lens);
            self.gather_transposed(keys, k, kt, stride);
            self.gather(keys, v, values);
            for first in queries.clone().step_by(QUERIES) {
                let n = QUERIES.min(queries.end - first);
                let limit = prefix + first + n;
                let from = skipped(shape, prefix + first);
                let rows = n * group;
                self.gather_queries(first..first + n, q, shape.scale(), q_block);
                attend_scores(rows, from..limit, width, q_block, kt, stride, scores);
                for i in 0..n {
                    let valid = prefix + first + i + 1;
                    let read = shape.first_read(valid - 1);
                    // SAFETY: a token and a head belong to one task.
                    let log_sums = unsafe { log_sums.part(self.log_sum(first + i), group) };
                    for (g, log_sum) in log_sums.iter_mut().enumerate() {
                        let row = &mut scores[(i * group + g) * stride..][..limit];
                        row[from..read].fill(0.0);
                        let (max, sum) = softmax_row(&mut row[read..valid]);
                        row[valid..].fill(0.0);
                        inverse_sums[i * group + g] = 1.0 / sum;
                        *log_sum = max + ln(sum);
                    }
                }
                let (left, right) =
                    (by_rows(&scores[from..], stride), (&values[from * width..], width));
                multiply([rows, width, limit - from], left, right, false, (o_block, width));
                for i in 0..n {
                    // SAFETY: a token and a head belong to one task.
                    let out = unsafe { out.part(self.query(first + i), group * width) };
                    for (at, out) in (i * group..).zip(out.chunks_exact_mut(width)) {
                        for (out, &o) in out.iter_mut().zip(&o_block[at * width..]) {
                            *out = o * inverse_sums[at];
                        }
                    }
                }
            }
        });
    }

    fn backward(self, saved: &Saved, dq: Shared, dk: Shared, dv: Shared) {
        let (shape, prefix) = (self.shape, self.segment.prefix_len as usize);
        let (group, width, len) = (shape.group(), shape.head_dim, self.segment.len as usize);
        let keys = prefix + len;
        let stride = keys.next_multiple_of(LINE);
        let (all, read, scores) =
            (stride * width, QUERIES * group * width, QUERIES * group * stride);
        let lens = [all, all, all, all, all, read, read, scores, scores, read];
        with_scratch(|scratch| {
            let [kt, vt, k, dk_local, dv_local, q, dout, p, dp, dq_block] = parts(scratch, lens);
            self.gather_transposed(keys, saved.qkv[1], kt, stride);
            self.gather_transposed(keys, saved.qkv[2], vt, stride);
            self.gather(keys, saved.qkv[1], k);
            dk_local.fill(0.0);
            dv_local.fill(0.0);
            for first in (0..len).step_by(QUERIES) {
                let n = QUERIES.min(len - first);
                let limit = prefix + first + n;
                let rows = n * group;
                let from = skipped(shape, prefix + first);
                self.gather_queries(first..first + n, saved.qkv[0], shape.scale(), q);
                self.gather_queries(first..first + n, saved.dout, 1.0, dout);
                attend_scores(rows, from..limit, width, q, kt, stride, p);
                attend_scores(rows, from..limit, width, dout, vt, stride, dp);
                for i in 0..n {
                    let valid = prefix + first + i + 1;
                    let read = shape.first_read(valid - 1);
                    for g in 0..group {
                        let at = i * group + g;
                        p[at * stride..][from..read].fill(0.0);
                        dp[at * stride..][from..read].fill(0.0);
                        score_grad(
                            saved.log_sums[self.log_sum(first + i) + g],
                            &dout[at * width..][..width],
                            &saved.out[self.query(first + i) + g * width..][..width],
                            valid - read,
                            &mut p[at * stride..][read..limit],
                            &mut dp[at * stride..][read..limit],
                        );
                    }
                }
                let (left, right) = (by_rows(&dp[from..], stride), (&k[from * width..], width));
                multiply([rows, width, limit - from], left, right, false, (dq_block, width));
                for (weights, factor, sum) in
                    [(&*p, &*dout, &mut *dv_local), (&*dp, &*q, &mut *dk_local)]
                {
                    let left = Left { data: &weights[from..], row_stride: 1, step_stride: stride };
                    let to = (&mut sum[from * width..], width);
                    multiply([limit - from, width, rows], left, (factor, width), true, to);
                }
                self.store_queries(first, &dq_block[..rows * width], dq);
            }
            self.add_keys(dk_local, dk);
            self.add_keys(dv_local, dv);
        });
    }

    /// Where the queries of a position begin in packed rows.
    fn query(self, position: usize) -> usize {
        let token = self.segment.start as usize + position;
        token * self.shape.q_dim() + self.index * self.shape.group() * self.shape.head_dim
    }

    /// The same of the logarithms of their sums.
    fn log_sum(self, position: usize) -> usize {
        let token = self.segment.start as usize + position;
        token * self.shape.heads + self.index * self.shape.group()
    }

    /// Where key `j` begins, those of the prefix in front.
    fn key(self, j: usize) -> usize {
        let SegmentRow { start, prefix_start, prefix_len, .. } = self.segment;
        let prefix = prefix_len as usize;
        let row = if j < prefix { prefix_start as usize + j } else { start as usize + j - prefix };
        row * self.shape.kv_dim() + self.index * self.shape.head_dim
    }

    /// Stores the gradients of queries, of those of `first` and on, with the scale that their scores had.
    fn store_queries(self, first: usize, block: &[f32], dq: Shared) {
        let len = self.shape.group() * self.shape.head_dim;
        for (position, block) in (first..).zip(block.chunks_exact(len)) {
            // SAFETY: a token and a head belong to one task.
            let dq = unsafe { dq.part(self.query(position), len) };
            for (d, &b) in dq.iter_mut().zip(block) {
                *d = b * self.shape.scale();
            }
        }
    }

    /// Adds the gradients of a segment's keys, or of its values, to those of all rows.
    fn add_keys(self, from: &[f32], to: Shared) {
        let keys = (self.segment.prefix_len + self.segment.len) as usize;
        for (j, from) in from.chunks_exact(self.shape.head_dim).take(keys).enumerate() {
            // SAFETY: the rows of a prefix group and a head belong to one task.
            let to = unsafe { to.part(self.key(j), from.len()) };
            for (t, &f) in to.iter_mut().zip(from) {
                *t += f;
            }
        }
    }

    /// `[keys, head_dim]`, zero beyond `keys`.
    fn gather(self, keys: usize, x: &[f32], to: &mut [f32]) {
        for (j, to) in to.chunks_exact_mut(self.shape.head_dim).enumerate() {
            if j < keys {
                to.copy_from_slice(&x[self.key(j)..][..to.len()]);
            } else {
                to.fill(0.0);
            }
        }
    }

    /// `[head_dim, stride]`, zero beyond `keys`.
    fn gather_transposed(self, keys: usize, x: &[f32], to: &mut [f32], stride: usize) {
        for j in 0..keys {
            let x = &x[self.key(j)..][..self.shape.head_dim];
            for (to, &value) in to[j..].iter_mut().step_by(stride).zip(x) {
                *to = value;
            }
        }
        for row in to.chunks_exact_mut(stride) {
            row[keys..].fill(0.0);
        }
    }

    /// `[positions · group, head_dim]`, times `scale`.
    fn gather_queries(self, positions: Range<usize>, x: &[f32], scale: f32, to: &mut [f32]) {
        let wide = self.shape.group() * self.shape.head_dim;
        for (i, to) in positions.zip(to.chunks_exact_mut(wide)) {
            for (t, &value) in to.iter_mut().zip(&x[self.query(i)..]) {
                *t = value * scale;
            }
        }
    }
}

/// Positions before all that a block of queries from `position` on reads: whole chains of the sums over positions, so
/// that leaving them out changes no bits.
fn skipped(shape: AttentionShape, position: usize) -> usize {
    shape.first_read(position) / CHAIN * CHAIN
}

/// A left factor whose rows are `stride` apart.
fn by_rows(data: &[f32], stride: usize) -> Left<'_> {
    Left { data, row_stride: stride, step_stride: 1 }
}

/// `to [m, n]` = `left [m, k]` · `right [k, n]`, or that more; rows of both last are a stride apart.
fn multiply(
    [m, n, k]: [usize; 3],
    left: Left,
    (data, step_stride): (&[f32], usize),
    add: bool,
    (to, stride): (&mut [f32], usize),
) {
    let right = Right::Numbers { data, step_stride, column_stride: 1 };
    product(Product { m, n, k, left, right, column: 0, add }, to.as_mut_ptr(), stride);
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
    let (right, to) = ((&kt[keys.start..], stride), (&mut scores[keys.start..], stride));
    multiply([rows, keys.len(), width], by_rows(q, width), right, false, to);
}

kernel! {
    /// Scores become probabilities, gradients of probabilities become gradients of scores; both are 0 beyond `valid`.
    fn score_grad<V>(
        log_sum: f32,
        dout: &[f32],
        out: &[f32],
        valid: usize,
        p: &mut [f32],
        dp: &mut [f32],
    ) {
        let mut mean = 0.0_f32;
        for (&d, &o) in dout.iter().zip(out) {
            mean = fma::<V>(d, o, mean);
        }
        let (p_in, p_out) = p.split_at_mut(valid);
        let (dp_in, dp_out) = dp.split_at_mut(valid);
        for (p, dp) in p_in.iter_mut().zip(dp_in) {
            *p = exp_of::<V>(*p - log_sum);
            *dp = *p * (*dp - mean);
        }
        p_out.fill(0.0);
        dp_out.fill(0.0);
    }
}
