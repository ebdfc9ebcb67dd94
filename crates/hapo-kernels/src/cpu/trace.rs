//! How the work of an operation is cut: every task on one thread, one after the other, and how long it took.
//!
//! Purpose: tasks depend on shapes and on the number of workers alone, so their times on one thread say how they would lie
//! on more workers than a machine has.

use std::panic::Location;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The tasks of one call that were shared out.
#[derive(Clone, Debug, PartialEq)]
pub struct TracedCall {
    /// The file of kernels it is in, below `cpu/` and without its ending, or `blocks of rows`, each with all its kernels.
    pub stage: &'static str,
    /// Seconds of each task, in order.
    pub tasks: Vec<f64>,
}

/// The stage of a caller's file.
pub(super) fn stage_of(caller: &'static Location<'static>) -> &'static str {
    let file = caller.file().rsplit_once("/cpu/").map_or(caller.file(), |it| it.1);
    file.strip_suffix(".rs").unwrap_or(file)
}

/// The calls since the last look.
#[derive(Debug, Default)]
pub(super) struct Trace(Mutex<Vec<TracedCall>>);

impl Trace {
    /// Runs the tasks here.
    pub(super) fn run<R>(
        &self,
        stage: &'static str,
        tasks: usize,
        mut task: impl FnMut(usize) -> R,
    ) -> Vec<R> {
        let mut times = Vec::with_capacity(tasks);
        let timed = |index| {
            let start = Instant::now();
            let result = task(index);
            times.push(start.elapsed().as_secs_f64());
            result
        };
        let results = (0..tasks).map(timed).collect();
        self.calls().push(TracedCall { stage, tasks: times });
        results
    }

    pub(super) fn take(&self) -> Vec<TracedCall> {
        std::mem::take(&mut self.calls())
    }

    fn calls(&self) -> std::sync::MutexGuard<'_, Vec<TracedCall>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
