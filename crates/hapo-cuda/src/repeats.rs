//! Operations that come again and again, as graphs.
//!
//! Purpose: a step of decoding is some 450 launches with the arguments of the step before, and each costs the host
//! several microseconds. What a caller says may repeat is compared with what came before, operation for operation and
//! argument for argument, while it comes. As long as it is the beginning of a sequence that came often it is held back;
//! if it is that sequence to the end, the driver begins all of it by one call, as a graph. At the first difference what
//! was held back begins, and the rest as it comes. So nothing has to be known of what changes from step to step. Price:
//! making a graph costs what about ten steps gain, so a sequence has to come twelve times. What needs an answer, or
//! takes or gives back memory, ends the comparison.

use cudarc::driver::result::{self as cuda, DriverError};
use cudarc::driver::sys;

use crate::launch::Operation;

/// Sequences that are kept: those of a few numbers of rows.
const KEPT: usize = 8;

/// How often a sequence has come before it is made a graph.
const WORTH_A_GRAPH: u32 = 11;

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Sequence {
    operations: Vec<Operation>,
    args: Vec<u64>,
}

impl Sequence {
    fn push(&mut self, operation: Operation, args: &[u64]) {
        self.operations.push(operation);
        self.args.extend_from_slice(args);
    }

    /// True if the operation and arguments that were the last of `other` are its own at the same place.
    fn has_last_of(&self, other: &Self, args: usize) -> bool {
        let (at, end) = (other.operations.len() - 1, other.args.len());
        self.operations.get(at) == other.operations.last()
            && self.args.get(end - args..end) == Some(&other.args[end - args..])
    }

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

#[derive(Debug)]
struct Known {
    sequence: Sequence,
    times: u32,
    graph: Option<sys::CUgraphExec>,
    /// No graph can be made of it.
    is_refused: bool,
}

impl Known {
    /// What begins as it does is held back.
    fn is_hoped_for(&self) -> bool {
        self.graph.is_some() || self.times >= WORTH_A_GRAPH && !self.is_refused
    }
}

#[derive(Debug, Default)]
struct Coming {
    sequence: Sequence,
    /// The known sequence that it may become; nothing of it has begun then.
    hope: Option<usize>,
    has_begun: bool,
}

pub(crate) enum Now {
    Hold,
    Begin,
    /// It begins behind all that was held back.
    BeginAll,
}

/// The sequences of late, and the one at hand.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    coming: Option<Coming>,
    /// The last that came is the last.
    known: Vec<Known>,
    pub(crate) begun: u64,
}

// SAFETY: graphs are used behind a lock, with their context current.
unsafe impl Send for Repeats {}

impl Repeats {
    pub(crate) fn start(&mut self) {
        self.coming = Some(Coming::default());
    }

    pub(crate) fn push(&mut self, operation: Operation, args: &[u64]) -> Now {
        let Some(coming) = &mut self.coming else { return Now::Begin };
        coming.sequence.push(operation, args);
        if coming.has_begun {
            return Now::Begin;
        }
        let of = &coming.sequence;
        if coming.hope.is_none_or(|at| !self.known[at].sequence.has_last_of(of, args.len())) {
            let may_be = |Known { sequence: it, .. }: &Known| {
                it.operations.starts_with(&of.operations) && it.args.starts_with(&of.args)
            };
            coming.hope = self.known.iter().rposition(|it| it.is_hoped_for() && may_be(it));
        }
        if coming.hope.is_some() {
            return Now::Hold;
        }
        coming.has_begun = true;
        Now::BeginAll
    }

    /// What has come and was held back, if the sequence ends here for another reason than its end.
    pub(crate) fn interrupt(&mut self) -> Option<Sequence> {
        self.coming.take().filter(|coming| !coming.has_begun).map(|coming| coming.sequence)
    }

    pub(crate) fn held_back(&self) -> &Sequence {
        &self.coming.as_ref().expect("a sequence comes").sequence
    }

    /// The sequence has come to its end: `begin` begins one that was held back, by its graph, or makes one.
    pub(crate) fn finish<E>(
        &mut self,
        begin: impl FnOnce(&Sequence, Hope) -> Result<Option<sys::CUgraphExec>, E>,
    ) -> Result<(), E> {
        let Some(Coming { sequence, has_begun, .. }) = self.coming.take() else { return Ok(()) };
        if sequence.operations.is_empty() {
            return Ok(());
        }
        let found = self.known.iter().position(|known| known.sequence == sequence);
        let mut known = match found {
            Some(at) => self.known.remove(at),
            None => Known { sequence, times: 0, graph: None, is_refused: false },
        };
        known.times = known.times.saturating_add(1);
        let begun = if has_begun {
            Ok(())
        } else {
            let hope = match known.graph {
                Some(graph) => Hope::Graph(graph),
                None if known.is_hoped_for() && found.is_some() => Hope::NewGraph,
                None => Hope::None,
            };
            let wants_graph = matches!(hope, Hope::NewGraph);
            self.begun += u64::from(known.graph.is_some());
            begin(&known.sequence, hope).map(|made| {
                known.is_refused |= wants_graph && made.is_none();
                known.graph = made;
            })
        };
        if self.known.len() >= KEPT {
            destroy(self.known.remove(0).graph);
        }
        self.known.push(known);
        begun
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

/// How a sequence that was held back to its end is begun.
#[derive(Clone, Copy)]
pub(crate) enum Hope {
    Graph(sys::CUgraphExec),
    /// By a graph that is to be made.
    NewGraph,
    /// Operation by operation: it is the beginning of another.
    None,
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
