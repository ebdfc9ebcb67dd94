//! Log-probabilities and entropies of targets, and their gradient on the logits, row by row.

use super::pool::{Cpu, Shared};
use crate::device::{HeadGrad, HeadStats};
use crate::lanes::{fma, kernel};
use crate::row::{RowStats, exp_of, log_prob, row_stats};
use crate::shapes::{HeadPart, HeadTarget};

/// Width of a row of statistics.
const STATS: usize = 6;

/// The targets of one row of a chunk.
struct RowTargets {
    row: usize,
    targets: std::ops::Range<usize>,
}

fn rows_of(targets: &[HeadTarget], part: HeadPart) -> Vec<RowTargets> {
    let mut rows: Vec<RowTargets> = Vec::new();
    for t in part.first_target..part.first_target + part.targets {
        let row = targets[t].row as usize - part.first_row;
        match rows.last_mut() {
            Some(last) if last.row == row => last.targets.end = t + 1,
            _ => rows.push(RowTargets { row, targets: t..t + 1 }),
        }
    }
    rows
}

/// Narrow rows go several to a task.
fn for_rows(
    cpu: &Cpu,
    vocabulary: usize,
    rows: &[RowTargets],
    work: impl Fn(&RowTargets) + Sync + Send,
) {
    const TASK: usize = 64 * 1024;
    let block = (TASK / vocabulary).max(1);
    cpu.for_tasks(rows.len().div_ceil(block), |task| {
        rows[task * block..((task + 1) * block).min(rows.len())].iter().for_each(&work);
    });
}

pub(super) fn forward(cpu: &Cpu, it: HeadStats<Cpu>) {
    let HeadStats { vocabulary, targets, part, logits, stats } = it;
    let (logits, stats) = (logits.read(), stats.write());
    assert_eq!(logits.len(), part.rows * vocabulary, "logits are [rows, vocabulary]");
    assert_eq!(stats.len(), targets.len() * STATS, "stats are [targets, 6]");
    let rows = rows_of(targets, part);
    let stats = Shared::new(stats);
    for_rows(cpu, vocabulary, &rows, |RowTargets { row, targets: range }| {
        let logits = &logits[row * vocabulary..(row + 1) * vocabulary];
        let plain = row_stats(logits, 1.0);
        let (mut inverse, mut tempered) = (1.0_f32, plain);
        for t in range.clone() {
            let target = targets[t];
            if target.inverse_temperature != inverse {
                inverse = target.inverse_temperature;
                tempered = row_stats(logits, inverse);
            }
            let logit = logits[target.token as usize];
            // SAFETY: every target belongs to one row.
            unsafe { stats.part(t * STATS, STATS) }.copy_from_slice(&[
                log_prob(tempered, inverse, logit),
                log_prob(plain, 1.0, logit),
                plain.entropy,
                plain.max,
                tempered.log_sum,
                plain.log_sum,
            ]);
        }
    });
}

pub(super) fn backward(cpu: &Cpu, it: HeadGrad<Cpu>) {
    let HeadGrad { vocabulary, targets, part, stats, gradients, logits } = it;
    let (stats, gradients, logits) = (stats.read(), gradients.read(), logits.write());
    assert_eq!(logits.len(), part.rows * vocabulary, "logits are [rows, vocabulary]");
    let rows = rows_of(targets, part);
    let logits = Shared::new(logits);
    for_rows(cpu, vocabulary, &rows, |RowTargets { row, targets: range }| {
        // SAFETY: rows are disjoint.
        let logits = unsafe { logits.part(row * vocabulary, vocabulary) };
        // Targets at one temperature share a softmax: their gradients add up before it.
        let mut softmaxes: Vec<Softmax> = Vec::new();
        let mut entropy = 0.0;
        for t in range.clone() {
            let inverse = targets[t].inverse_temperature;
            let weight = -gradients[2 * t] * inverse;
            entropy += gradients[2 * t + 1];
            match softmaxes.iter_mut().find(|s| s.inverse == inverse) {
                Some(softmax) => softmax.weight += weight,
                None => softmaxes.push(Softmax { weight, inverse, log_sum: stats[t * STATS + 4] }),
            }
        }
        let first = &stats[range.start * STATS..][..STATS];
        let plain = RowStats { max: first[3], log_sum: first[5], entropy: first[2] };
        logits_grad(logits, plain, entropy, &softmaxes);
        for t in range.clone() {
            logits[targets[t].token as usize] += gradients[2 * t] * targets[t].inverse_temperature;
        }
    });
}

/// `weight · softmax((z − max) · inverse)`.
#[derive(Clone, Copy)]
struct Softmax {
    weight: f32,
    inverse: f32,
    log_sum: f32,
}

kernel! {
    fn logits_grad<V>(z: &mut [f32], plain: RowStats, entropy: f32, softmaxes: &[Softmax]) {
        if let ([only], true) = (softmaxes, entropy == 0.0) {
            for z in z {
                let d = fma::<V>(*z - plain.max, only.inverse, -only.log_sum);
                *z = only.weight * exp_of::<V>(d);
            }
            return;
        }
        for z in z {
            let d = *z - plain.max;
            let log_p = d - plain.log_sum;
            // dH/dz = −p·(ln p + H)
            let mut sum = -entropy * exp_of::<V>(log_p) * (log_p + plain.entropy);
            for s in softmaxes {
                let e = exp_of::<V>(fma::<V>(d, s.inverse, -s.log_sum));
                sum = fma::<V>(s.weight, e, sum);
            }
            *z = sum;
        }
    }
}
