//! The thread that owns the engine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use hapo_kernels::Device;
use hapo_model::Model;
use hapo_sampler::{Engine, EventKind, Request, RequestId};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedSender;

use crate::{Error, Served};

/// What the worker sends while it serves a request.
#[derive(Debug)]
pub(crate) enum WorkerEvent {
    /// Something happened to a completion.
    Event {
        /// Place of the request among those of its answer.
        request: usize,
        /// Which of its completions.
        completion: usize,
        kind: EventKind,
    },
    /// The request cannot be served as it is.
    Refused(hapo_sampler::Error),
    /// The engine failed.
    Failed(String),
}

/// Requests that belong to one answer.
pub(crate) struct Submission {
    pub(crate) requests: Vec<Request>,
    /// The handler drops its receiver when the client disconnects; the rest is then cancelled.
    pub(crate) reply: UnboundedSender<WorkerEvent>,
    /// Given back when the last of the requests is over.
    pub(crate) slot: Arc<OwnedSemaphorePermit>,
}

/// Numbers for `/health`.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) running: AtomicUsize,
    pub(crate) waiting: AtomicUsize,
    pub(crate) is_dead: AtomicBool,
}

enum Command {
    Serve(Submission),
    Stop,
}

/// Where submissions go.
#[derive(Clone)]
pub(crate) struct WorkerSender(mpsc::Sender<Command>);

impl WorkerSender {
    /// `false` when the worker is gone.
    pub(crate) fn send(&self, submission: Submission) -> bool {
        self.0.send(Command::Serve(submission)).is_ok()
    }
}

pub(crate) struct Worker {
    commands: mpsc::Sender<Command>,
    thread: JoinHandle<()>,
}

impl Worker {
    pub(crate) fn start<D>(served: &Arc<Served<D>>) -> Result<Self, Error>
    where
        D: Device + 'static,
        Model<D>: Send + Sync,
    {
        let (commands, inbox) = mpsc::channel();
        let (started, ready) = mpsc::channel();
        let served = served.clone();
        let thread = std::thread::Builder::new().name("engine".to_owned()).spawn(move || {
            let mut is_first = true;
            loop {
                let tokenizer = Some(&served.chat_format.tokenizer);
                match Engine::new(&served.model, tokenizer, served.limits()) {
                    Ok(engine) => {
                        if std::mem::take(&mut is_first) {
                            // Whoever started this may be gone; then so is the inbox.
                            let _ = started.send(Ok(()));
                        }
                        if run(engine, &inbox, &served) == LoopExit::Stopped {
                            return;
                        }
                    }
                    Err(error) => {
                        served.stats.is_dead.store(true, Ordering::Relaxed);
                        let _ = started.send(Err(error));
                        return;
                    }
                }
            }
        })?;
        match ready.recv() {
            Ok(Ok(())) => Ok(Self { commands, thread }),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(std::io::Error::other("the engine's thread has ended").into()),
        }
    }

    pub(crate) fn sender(&self) -> WorkerSender {
        WorkerSender(self.commands.clone())
    }

    /// Ends the thread; running requests are cancelled.
    pub(crate) fn stop(self) {
        // Both fail only when the thread is gone already.
        let _ = self.commands.send(Command::Stop);
        let _ = self.thread.join();
    }
}

#[derive(PartialEq)]
enum LoopExit {
    Stopped,
    /// The engine cannot continue and is replaced by a new one.
    Broken,
}

struct Job {
    reply: UnboundedSender<WorkerEvent>,
    request: usize,
    completions_left: usize,
    _slot: Arc<OwnedSemaphorePermit>,
}

fn run<D: Device>(
    mut engine: Engine<'_, D>,
    inbox: &mpsc::Receiver<Command>,
    served: &Served<D>,
) -> LoopExit {
    let mut jobs: BTreeMap<RequestId, Job> = BTreeMap::new();
    loop {
        loop {
            let command = if engine.is_idle() {
                inbox.recv().ok()
            } else {
                match inbox.try_recv() {
                    Ok(it) => Some(it),
                    Err(mpsc::TryRecvError::Empty) => break,
                    Err(mpsc::TryRecvError::Disconnected) => None,
                }
            };
            match command {
                Some(Command::Serve(it)) => submit(&mut engine, &mut jobs, it),
                Some(Command::Stop) | None => return LoopExit::Stopped,
            }
        }
        let gone: Vec<RequestId> =
            jobs.iter().filter(|(_, job)| job.reply.is_closed()).map(|(id, _)| *id).collect();
        for id in gone {
            jobs.remove(&id);
            if engine.cancel(id).is_err() {
                return broken(jobs, "the engine could not give a request up");
            }
        }
        match engine.step() {
            Ok(events) => {
                for event in events {
                    let Some(job) = jobs.get_mut(&event.request) else {
                        continue;
                    };
                    let is_last = matches!(event.kind, EventKind::Finished { .. });
                    // A closed reply is noticed before the next step.
                    let _ = job.reply.send(WorkerEvent::Event {
                        request: job.request,
                        completion: event.completion,
                        kind: event.kind,
                    });
                    if is_last {
                        job.completions_left -= 1;
                        if job.completions_left == 0 {
                            jobs.remove(&event.request);
                        }
                    }
                }
            }
            Err(error) => return broken(jobs, &error.to_string()),
        }
        let stats = &served.stats;
        stats.running.store(engine.running(), Ordering::Relaxed);
        stats.waiting.store(engine.waiting(), Ordering::Relaxed);
    }
}

fn submit<D: Device>(
    engine: &mut Engine<'_, D>,
    jobs: &mut BTreeMap<RequestId, Job>,
    submission: Submission,
) {
    let mut begun = Vec::new();
    for (index, request) in submission.requests.into_iter().enumerate() {
        let completions_left = request.completions;
        match engine.submit(request) {
            Ok(id) => {
                begun.push(id);
                jobs.insert(
                    id,
                    Job {
                        reply: submission.reply.clone(),
                        request: index,
                        completions_left,
                        _slot: submission.slot.clone(),
                    },
                );
            }
            Err(error) => {
                for id in begun {
                    jobs.remove(&id);
                    // None of them has begun, so there is nothing to give back.
                    let _ = engine.cancel(id);
                }
                let _ = submission.reply.send(WorkerEvent::Refused(error));
                return;
            }
        }
    }
}

fn broken(jobs: BTreeMap<RequestId, Job>, cause: &str) -> LoopExit {
    for job in jobs.into_values() {
        let _ = job.reply.send(WorkerEvent::Failed(cause.to_owned()));
    }
    LoopExit::Broken
}
