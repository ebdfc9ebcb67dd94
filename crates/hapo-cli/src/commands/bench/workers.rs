//! How the work would lie on more workers than a machine has: its tasks on one thread, and then on paper.

use std::collections::BTreeMap;

use anyhow::Result;
use hapo_kernels::{Compute, Cpu, TracedCall};
use hapo_model::Model;
use serde::Serialize;

use super::cases::{Case, decoding, randomise, sampling, training};
use super::{Part, Shape};

/// A case on so many workers.
#[derive(Serialize)]
pub(super) struct Shared {
    part: &'static str,
    compute: Compute,
    case: String,
    /// How often faster than on one.
    speedup: f64,
    /// Share of the workers' time in which they have nothing to do.
    idle: f64,
    stages: Vec<Stage>,
}

#[derive(Serialize)]
struct Stage {
    /// The file of kernels, or what no task is.
    name: &'static str,
    /// Of the case's time on so many workers.
    share: f64,
    idle: f64,
}

/// Traces the cases. Memory's rate is no limit here, and no thread waits to be woken.
pub(super) fn trace(
    shape: Shape,
    wanted: &dyn Fn(Part) -> bool,
    (workers, compute): (usize, Compute),
) -> Result<Vec<Shared>> {
    let cpu = Cpu::tracing(workers, compute)?;
    let mut model = Model::new(cpu, shape.config(), 1024)?;
    randomise(&mut model)?;
    let tiny = shape == Shape::BenchTiny;
    let mut all = Vec::new();
    let mut add = |part, case: Case| {
        let seconds = case.times.iter().sum();
        all.push(shared((part, compute, case.name), &case.trace, seconds, workers));
    };
    if wanted(Part::Sampling) && tiny {
        for sequences in [64, 256] {
            add("sampling", sampling(&model, sequences)?);
        }
    }
    if wanted(Part::Decoding) {
        for sequences in [8, 64] {
            add("decoding", decoding(&model, sequences, 1.0, super::format_of(compute))?);
        }
    }
    if wanted(Part::Training) {
        let lengths = if tiny { (64, 96) } else { (4, 256) };
        add("training", training(&mut model, lengths, 1.0)?);
    }
    Ok(all)
}

fn shared(
    (part, compute, case): (&'static str, Compute, String),
    calls: &[TracedCall],
    seconds: f64,
    workers: usize,
) -> Shared {
    // Of each stage what it computes and how long it takes.
    let mut stages: BTreeMap<&'static str, (f64, f64)> = BTreeMap::new();
    for it in calls {
        let stage = stages.entry(it.stage).or_default();
        stage.0 += it.tasks.iter().sum::<f64>();
        stage.1 += span(&it.tasks, workers);
    }
    let traced: f64 = stages.values().map(|it| it.0).sum();
    let rest = (seconds - traced).max(0.0);
    stages.insert("no task", (rest, rest));
    let all: f64 = stages.values().map(|it| it.1).sum();
    let idle = |work: f64, span: f64| 1.0 - work / (span.max(f64::MIN_POSITIVE) * workers as f64);
    let mut stages: Vec<Stage> = stages
        .into_iter()
        .map(|(name, (work, span))| Stage { name, share: span / all, idle: idle(work, span) })
        .collect();
    stages.sort_by(|a, b| b.share.total_cmp(&a.share));
    Shared { part, compute, case, speedup: seconds / all, idle: idle(seconds, all), stages }
}

/// When the last of the tasks is done, each given in order to the worker that is free first.
fn span(tasks: &[f64], workers: usize) -> f64 {
    let mut free = vec![0.0_f64; workers.max(1)];
    for task in tasks {
        if let Some(first) = free.iter_mut().min_by(|a, b| a.total_cmp(b)) {
            *first += task;
        }
    }
    free.into_iter().fold(0.0, f64::max)
}

impl Shared {
    pub(super) fn lines(&self) -> String {
        let mut text = format!(
            "{:<9} {:<5} {:<34} {:>5.1} x, idle {:.1} %",
            self.part,
            self.compute.name(),
            self.case,
            self.speedup,
            100.0 * self.idle
        );
        for it in self.stages.iter().filter(|it| it.share >= 0.005) {
            let (share, idle) = (100.0 * it.share, 100.0 * it.idle);
            text += &format!("\n    {:<14} {share:>5.1} % of the time, idle {idle:.1} %", it.name);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_go_to_the_worker_that_is_free_first() {
        assert_eq!(span(&[3.0, 1.0, 1.0, 1.0], 2), 3.0);
        assert_eq!(span(&[1.0, 1.0, 3.0], 2), 4.0);
        assert_eq!(span(&[2.0], 16), 2.0);
        assert_eq!(span(&[], 16), 0.0);
    }

    /// By hand: 4 s in two tasks, 1 s in one, 1 s in none, on two workers: 2 + 1 + 1 s.
    #[test]
    fn stages_add_up() {
        let calls = [
            TracedCall { stage: "matmul", tasks: vec![2.0, 2.0] },
            TracedCall { stage: "head", tasks: vec![1.0] },
        ];
        let it = shared(("training", Compute::F32, String::new()), &calls, 6.0, 2);
        assert_eq!((it.speedup, it.idle), (1.5, 0.25));
        let stages: Vec<_> = it.stages.iter().map(|it| (it.name, it.share, it.idle)).collect();
        assert_eq!(stages[0], ("matmul", 0.5, 0.0));
        assert!(stages.contains(&("head", 0.25, 0.5)) && stages.contains(&("no task", 0.25, 0.5)));
    }
}
