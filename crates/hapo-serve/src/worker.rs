//! The thread that owns the engine.
//!
//! An engine that fails, also by a panic, takes the requests in flight with it and is replaced. When some in a row
//! fail without finishing anything, the thread ends and says why.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{sync::Arc, sync::atomic::Ordering, sync::mpsc, thread::JoinHandle};

use hapo_core::Refusal;
use hapo_kernels::Device;
use hapo_model::{ActivationCheckpointing, Model, Tape};
use hapo_sampler::{Engine, Event, EventKind, Request, RequestId, ScoredToken, Scoring};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::Served;
use crate::weights::{ServedModel, Wanted};

#[derive(Debug)]
pub(crate) enum WorkerEvent {
    /// The version of the weights that everything else of the answer is made by.
    Begun(Arc<str>),
    Event {
        /// Index of the request within its answer.
        request: usize,
        completion: usize,
        kind: EventKind,
    },
    Scored {
        /// Index of the request within its answer.
        request: usize,
        tokens: Vec<ScoredToken>,
    },
    Refused(Refusal),
    Failed(String),
}

pub(crate) struct Submission {
    /// Those without a token to generate are done when their prompts are scored.
    pub(crate) requests: Vec<Request>,
    /// Score the prompts, before generating anything.
    pub(crate) scores_prompts: bool,
    /// The handler drops its receiver when the client disconnects; the rest is then cancelled.
    pub(crate) reply: UnboundedSender<WorkerEvent>,
    /// Given back when the last of the requests is over.
    pub(crate) slot: Arc<OwnedSemaphorePermit>,
}

struct Load {
    wanted: Wanted,
    reply: oneshot::Sender<Result<(), String>>,
}

enum Command {
    Serve(Submission),
    Load(Load),
    Stop,
}

#[derive(Clone)]
pub(crate) struct WorkerSender(mpsc::Sender<Command>);

impl WorkerSender {
    /// `false` when the worker is gone.
    pub(crate) fn send(&self, submission: Submission) -> bool {
        self.0.send(Command::Serve(submission)).is_ok()
    }

    /// Says when new weights are served; `None` when the worker is gone.
    pub(crate) fn load(&self, wanted: Wanted) -> Option<oneshot::Receiver<Result<(), String>>> {
        let (reply, loaded) = oneshot::channel();
        self.0.send(Command::Load(Load { wanted, reply })).ok().map(|()| loaded)
    }
}

pub(crate) struct Worker {
    pub(crate) sender: WorkerSender,
    thread: JoinHandle<()>,
    /// Why there is no engine any more.
    pub(crate) died: oneshot::Receiver<Died>,
}

/// Engines failed in a row, and the last one why.
#[derive(Debug)]
pub(crate) struct Died {
    pub(crate) failures: usize,
    pub(crate) cause: String,
}

/// An engine's next step; [`Engine::step`] except in tests.
pub(crate) type Step<D> = fn(&mut Engine<'_, D>) -> Result<Vec<Event>, Refusal>;

/// Engines that may fail in a row without finishing a completion.
pub(crate) const FAILURES: usize = 3;

impl Worker {
    pub(crate) fn start<D: Device>(
        served: &Arc<Served>,
        model: ServedModel<D>,
        step: Step<D>,
    ) -> Result<Self, Refusal> {
        let (commands, inbox) = mpsc::channel();
        let (started, ready) = mpsc::channel();
        let (death, died) = oneshot::channel();
        let served = served.clone();
        let thread = std::thread::Builder::new().name("engine".to_owned()).spawn(move || {
            if let Some(it) = work(&served, model, step, &inbox, &started) {
                served.stats.is_dead.store(true, Ordering::Relaxed);
                // Nobody listens where the server never started.
                let _ = death.send(it);
            }
        });
        let no_thread = |cause| Refusal::machine("the engine's thread cannot start").source(cause);
        let thread = thread.map_err(no_thread)?;
        match ready.recv() {
            Ok(Ok(())) => Ok(Self { sender: WorkerSender(commands), thread, died }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(Refusal::machine("the engine's thread has ended")),
        }
    }

    pub(crate) fn stop(self) {
        // Both fail only when the thread is gone already.
        let _ = self.sender.0.send(Command::Stop);
        let _ = self.thread.join();
    }
}

/// Runs engines until the inbox says stop, or until no engine works.
fn work<D: Device>(
    served: &Served,
    mut model: ServedModel<D>,
    step: Step<D>,
    inbox: &mpsc::Receiver<Command>,
    started: &mpsc::Sender<Result<(), Refusal>>,
) -> Option<Died> {
    let (mut failures, mut version) = (0, Arc::default());
    loop {
        let tokenizer = Some(&served.chat_format.tokenizer);
        let engine = match Engine::new(&model.model, tokenizer, served.limits()) {
            Ok(it) => it,
            Err(error) => {
                let cause = error.to_string();
                let _ = started.send(Err(error));
                return Some(Died { failures: failures + 1, cause });
            }
        };
        // The starter may be gone; then so is the inbox.
        let _ = started.send(Ok(()));
        let mut jobs = Jobs::default();
        // The engine is gone after a panic, and of the jobs only the replies are used.
        let weights = Weights { served, model: &model.model, version: &version };
        let run = AssertUnwindSafe(|| run(engine, step, &mut jobs, inbox, &weights));
        let cause = match catch_unwind(run) {
            Ok(Ok(None)) => return None,
            Ok(Ok(Some(load))) => {
                load.into_place(&mut model, &mut version);
                continue;
            }
            Ok(Err(cause)) => cause,
            Err(panic) => format!("the engine failed: {}", hapo_core::panic_message(&*panic)),
        };
        failures = if jobs.finished > 0 { 1 } else { failures + 1 };
        let scoring = jobs.scoring.into_iter().map(|it| it.0.reply);
        for reply in jobs.by_request.into_values().map(|it| it.reply).chain(scoring) {
            let _ = reply.send(WorkerEvent::Failed(cause.clone()));
        }
        for it in [&served.stats.running, &served.stats.waiting] {
            it.store(0, Ordering::Relaxed);
        }
        if failures >= FAILURES {
            return Some(Died { failures, cause });
        }
    }
}

impl Load {
    /// Loads the weights in the place of a model's, or says why they stay.
    fn into_place<D: Device>(self, model: &mut ServedModel<D>, version: &mut Arc<str>) {
        let Wanted { folder, version: name } = &self.wanted;
        let open = model.new_weights.as_ref().map(|it| &it.open);
        let opened = open.map_or_else(|| Err("no weights are taken".to_owned()), |it| it(folder));
        let fits = |it: &Model<D>| it.config() == model.model.config();
        let loaded = match opened {
            Ok(new) if fits(&new) => {
                (model.model, *version) = (new, name.as_str().into());
                Ok(())
            }
            Ok(_) => Err("its model is of another shape than the one that is served".to_owned()),
            Err(problem) => Err(problem),
        };
        // Whoever asked may be gone.
        let _ = self.reply.send(loaded);
    }
}

struct Weights<'a, D: Device> {
    served: &'a Served,
    model: &'a Model<D>,
    version: &'a Arc<str>,
}

#[derive(Default)]
struct Jobs {
    /// Those with prompts to score, and how many of each are.
    scoring: VecDeque<(Submission, usize)>,
    by_request: BTreeMap<RequestId, Job>,
    finished: usize,
}

struct Job {
    reply: UnboundedSender<WorkerEvent>,
    request: usize,
    completions_left: usize,
    _slot: Arc<OwnedSemaphorePermit>,
}

/// Serves until the inbox says stop, or has new weights and nothing runs; or returns the engine's error.
fn run<D: Device>(
    mut engine: Engine<'_, D>,
    step: Step<D>,
    jobs: &mut Jobs,
    inbox: &mpsc::Receiver<Command>,
    weights: &Weights<'_, D>,
) -> Result<Option<Load>, String> {
    let mut tape = Tape::new(ActivationCheckpointing::Layers);
    let (mut scoring, mut load) = (None, None);
    loop {
        while load.is_none() {
            let command = if engine.is_idle() && jobs.scoring.is_empty() {
                inbox.recv().ok()
            } else {
                match inbox.try_recv() {
                    Ok(it) => Some(it),
                    Err(mpsc::TryRecvError::Empty) => break,
                    Err(mpsc::TryRecvError::Disconnected) => None,
                }
            };
            if let Some(Command::Serve(it)) = &command {
                let _ = it.reply.send(WorkerEvent::Begun(weights.version.clone()));
            }
            match command {
                Some(Command::Serve(it)) if it.scores_prompts => jobs.scoring.push_back((it, 0)),
                Some(Command::Serve(it)) => submit(&mut engine, &mut jobs.by_request, it),
                Some(Command::Load(it)) => load = Some(it),
                Some(Command::Stop) | None => return Ok(None),
            }
        }
        if load.is_some() && engine.is_idle() && jobs.scoring.is_empty() {
            return Ok(load);
        }
        if jobs.scoring.front().is_some_and(|(it, _)| it.reply.is_closed()) {
            scoring = None;
        }
        jobs.scoring.retain(|(it, _)| !it.reply.is_closed());
        if let Some(it) = score(jobs, &mut scoring, &mut tape, weights.model) {
            submit(&mut engine, &mut jobs.by_request, it);
        }
        let all = jobs.by_request.iter();
        let gone: Vec<RequestId> =
            all.filter(|(_, job)| job.reply.is_closed()).map(|(id, _)| *id).collect();
        for id in gone {
            jobs.by_request.remove(&id);
            let cancelled = engine.cancel(id);
            cancelled.map_err(|it| format!("the engine could not give a request up: {it}"))?;
        }
        for event in step(&mut engine).map_err(|it| it.to_string())? {
            tell(jobs, event);
        }
        let stats = &weights.served.stats;
        stats.running.store(engine.running(), Ordering::Relaxed);
        let scoring = jobs.scoring.iter().map(|(it, scored)| it.requests.len() - scored);
        stats.waiting.store(engine.waiting() + scoring.sum::<usize>(), Ordering::Relaxed);
    }
}

/// Scores a piece of a prompt, so that those who wait for their next token wait for no more than that; gives the
/// submission when it was the last of its last prompt. `begun` is the prompt at hand.
fn score<D: Device>(
    jobs: &mut Jobs,
    begun: &mut Option<Scoring<D>>,
    tape: &mut Tape<D>,
    model: &Model<D>,
) -> Option<Submission> {
    let (submission, scored) = jobs.scoring.front_mut()?;
    let Request { prompt, top_log_probs, .. } = &submission.requests[*scored];
    let begin = || Scoring::begin(model, tape, prompt, *top_log_probs);
    let scoring = begun.take().map_or_else(begin, Ok);
    let tokens = scoring.and_then(|it| {
        let scoring = begun.insert(it);
        scoring.advance(model, tape)
    });
    match tokens {
        Ok(None) => return None,
        Ok(Some(tokens)) => {
            *begun = None;
            let event = WorkerEvent::Scored { request: *scored, tokens };
            let _ = submission.reply.send(event);
        }
        Err(error) => {
            *begun = None;
            let _ = submission.reply.send(WorkerEvent::Refused(error));
            jobs.scoring.pop_front();
            return None;
        }
    }
    *scored += 1;
    jobs.finished += 1;
    if *scored < submission.requests.len() {
        return None;
    }
    jobs.scoring.pop_front().map(|it| it.0)
}

fn tell(jobs: &mut Jobs, event: Event) {
    let Some(job) = jobs.by_request.get_mut(&event.request) else { return };
    let is_last = matches!(event.kind, EventKind::Finished { .. });
    // A closed reply is noticed before the next step.
    let (request, completion, kind) = (job.request, event.completion, event.kind);
    let _ = job.reply.send(WorkerEvent::Event { request, completion, kind });
    if is_last {
        jobs.finished += 1;
        job.completions_left -= 1;
        if job.completions_left == 0 {
            jobs.by_request.remove(&event.request);
        }
    }
}

fn submit<D: Device>(
    engine: &mut Engine<'_, D>,
    jobs: &mut BTreeMap<RequestId, Job>,
    submission: Submission,
) {
    let mut begun = Vec::new();
    let requests = submission.requests.into_iter().enumerate();
    for (index, request) in requests.filter(|(_, it)| it.max_tokens > 0) {
        let (reply, slot) = (submission.reply.clone(), submission.slot.clone());
        let completions_left = request.completions;
        match engine.submit(request) {
            Ok(id) => {
                begun.push(id);
                jobs.insert(id, Job { reply, request: index, completions_left, _slot: slot });
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
