//! Operations that come again and again, as graphs.
//!
//! Purpose: a step of decoding is some 450 launches with the arguments of the step before, and each costs the host about
//! ten microseconds. What a caller says may repeat is first collected. If it is, operation for operation and argument for
//! argument, what was collected before, the driver begins all of it by one call. A graph is made at the twelfth time, for it costs what ten steps gain; a
//! sequence that is new runs as it always did. Nothing has to be known of what changes from step to step: it is compared.
//!
//! Price: a list of operations is built and compared at every step, about 50 microseconds. What needs an answer, or takes or
//! gives back memory, ends the collecting, and the sequence runs as it is.

use cudarc::driver::result::{self as cuda, DriverError};
use cudarc::driver::sys;

use crate::launch::{Launch, Product};

/// Sequences that are kept: those of a number of rows, whose buffers change places in two ways.
const KEPT: usize = 8;

/// The time at which a sequence becomes a graph.
const WORTH_A_GRAPH: u32 = 12;

/// An operation with all that it depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operation {
    Launch {
        kernel: &'static str,
        grid: [u32; 3],
        shared: u32,
        /// How many arguments it has.
        args: usize,
    },
    Product(Product),
    Copy {
        from: u64,
        to: u64,
        bytes: usize,
    },
    Zero {
        at: u64,
        bytes: usize,
    },
}

/// Operations in the order of their calls.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Sequence {
    operations: Vec<Operation>,
    /// Arguments of all kernels.
    args: Vec<u64>,
}

impl Sequence {
    pub(crate) fn push(&mut self, operation: Operation) {
        self.operations.push(operation);
    }

    pub(crate) fn push_launch(&mut self, launch: &Launch) {
        let Launch { kernel, grid, shared, args } = *launch;
        self.args.extend_from_slice(args);
        self.push(Operation::Launch { kernel, grid, shared, args: args.len() });
    }

    /// Hands over every operation with its arguments, until one fails.
    pub(crate) fn each<E>(
        &self,
        mut run: impl FnMut(Operation, &[u64]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = &self.args[..];
        for &operation in &self.operations {
            let n = if let Operation::Launch { args, .. } = operation { args } else { 0 };
            let (args, after) = rest.split_at(n);
            rest = after;
            run(operation, args)?;
        }
        Ok(())
    }
}

/// A sequence that came before.
#[derive(Debug)]
struct Known {
    sequence: Sequence,
    times: u32,
    graph: Option<sys::CUgraphExec>,
}

/// What is to be done with a sequence.
pub(crate) enum Next {
    /// A graph of it is begun.
    Begin(sys::CUgraphExec),
    /// A graph is made of it, which came so often, and it is kept.
    Capture(Sequence, u32),
    /// It runs as it is, and is kept.
    Run(Sequence, u32),
}

/// The sequences of late, and the one at hand.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    /// Is `None` where nothing is collected.
    pub(crate) collecting: Option<Sequence>,
    /// The last that came is the last.
    known: Vec<Known>,
    /// Graphs begun.
    pub(crate) begun: u64,
}

// SAFETY: graphs are used behind a lock, with their context current.
unsafe impl Send for Repeats {}

impl Repeats {
    /// What is to be done with a sequence that was collected whole.
    pub(crate) fn next(&mut self, sequence: Sequence) -> Next {
        let found = self.known.iter().position(|known| known.sequence == sequence);
        let known = found.map(|at| self.known.remove(at));
        let times = known.as_ref().map_or(0, |known| known.times).saturating_add(1);
        match known.and_then(|known| known.graph) {
            Some(graph) => {
                self.begun += 1;
                self.keep(sequence, times, Some(graph));
                Next::Begin(graph)
            }
            // A sequence of which no graph could be made is not tried again.
            None if times == WORTH_A_GRAPH => Next::Capture(sequence, times),
            None => Next::Run(sequence, times),
        }
    }

    /// Keeps a sequence, with its graph where one could be made; the one that has not come for the longest goes.
    pub(crate) fn keep(&mut self, sequence: Sequence, times: u32, graph: Option<sys::CUgraphExec>) {
        if self.known.len() >= KEPT {
            destroy(self.known.remove(0).graph);
        }
        self.known.push(Known { sequence, times, graph });
    }

    /// Gives all graphs back.
    ///
    /// # Safety
    /// The context is current, and no graph runs.
    pub(crate) unsafe fn close(&mut self) {
        for known in self.known.drain(..) {
            destroy(known.graph);
        }
    }
}

fn destroy(graph: Option<sys::CUgraphExec>) {
    if let Some(graph) = graph {
        // SAFETY: made by `captured`, and given back once; one that still runs is kept by the driver until it is done.
        let _ = unsafe { cuda::graph::exec_destroy(graph) };
    }
}

/// A graph of the operations that `run` begins on a stream.
///
/// # Safety
/// The stream's context is current; `run` neither waits nor takes or gives back memory.
pub(crate) unsafe fn captured<E>(
    stream: sys::CUstream,
    run: impl FnOnce() -> Result<(), E>,
) -> Result<Result<sys::CUgraphExec, E>, DriverError> {
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: as the caller promises; the graph is given back once, the executable one has no need of it.
    unsafe {
        cuda::stream::begin_capture(stream, mode)?;
        let ran = run();
        let graph = cuda::stream::end_capture(stream);
        if let Err(error) = ran {
            if let Ok(graph) = graph {
                let _ = cuda::graph::destroy(graph);
            }
            return Ok(Err(error));
        }
        let graph = graph?;
        let made = cuda::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0));
        let _ = cuda::graph::destroy(graph);
        made.map(Ok)
    }
}
