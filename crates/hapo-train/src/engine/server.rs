//! Rollouts from a server (D41).
//!
//! New weights are written into a folder that both see and announced by name, and every answer of a batch must be made by
//! them. A server that is gone is waited for; what it lost with its weights is announced and asked for again, so that a
//! step begins with whole groups or not at all. The price is that weights pass through a file system.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fmt::Display, fs::File};

use hapo_core::{Fault, Refusal, RngStream, Rollout, SampledGroup, excerpt};
use hapo_kernels::Device;
use hapo_model::{ActivationCheckpointing, Model, Tape};
use hapo_net::http::ureq::{self, Agent};
use hapo_net::http::{Failure, Retries, may_pass, redacted, retry_after};
use hapo_sampler::{
    Decoding, Details, FinishReason, GroupRequest, SampleSettings, Sampled, Truncation,
};
use hapo_verify::in_order;
use serde_json::Value;

use crate::engine::protocol::{Call, Completion, End, Version};
use crate::engine::scorer::{ScoreRequest, score_with};
use crate::engine::trainer_files::{ModelFiles, write_model};
use crate::recipe::{RolloutEngine, RolloutsSection};
use crate::{Result, engine::Sampler, engine::trainer::Weights, observe::Meter};

/// Of a batch: about three minutes for a server to come back.
const RETRIES: Retries = Retries { attempts: 10, first_wait: Duration::from_millis(500) };
/// Of a request whose status may pass.
const BUSY: Retries = Retries { attempts: 6, first_wait: Duration::from_millis(250) };
const AT_ONCE: usize = 64;
const MOST_BYTES: u64 = 1 << 30;
const CONNECT: Duration = Duration::from_secs(10);
/// Longest time until the completions of a prompt are there.
const ANSWER: Duration = Duration::from_hours(1);

#[derive(Debug)]
pub(crate) struct ServerSampler {
    engine: RolloutEngine,
    address: String,
    agent: Agent,
    folder: OwnFolder,
    files: ModelFiles,
    stop_strings: Vec<String>,
    micro_batch_tokens: usize,
    /// Part of the names of weights, so that those of two processes differ.
    process: String,
    meter: Meter,
    /// The weights that are written, and the updates that made them.
    published: Option<(u64, Version)>,
    /// The weights before them, until the server has the new ones.
    old: Option<Version>,
    is_announced: bool,
    is_probed: bool,
}

/// Of something that may succeed later, perhaps with the weights announced again.
type Attempt<T, E = Refusal> = Result<T, Failure<E>>;

impl ServerSampler {
    pub(crate) fn new(
        server: &str,
        section: &RolloutsSection,
        files: ModelFiles,
        stop_strings: Vec<String>,
        micro_batch_tokens: usize,
    ) -> Result<Self> {
        let agent = hapo_net::http::config(server.starts_with("https:"))
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(ANSWER))
            .build()
            .new_agent();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let process = format!("{:x}-{:x}", since.as_millis(), std::process::id());
        let folder = OwnFolder::create(section.weights.as_ref(), &process);
        Ok(Self {
            engine: section.engine,
            address: server.trim_end_matches('/').to_owned(),
            agent,
            folder: folder.map_err(Refusal::io("write", section.weights.as_ref()))?,
            files,
            stop_strings,
            micro_batch_tokens,
            process,
            meter: Meter::default(),
            published: None,
            old: None,
            is_announced: false,
            is_probed: false,
        })
    }

    fn error(&self, problem: impl Display) -> Refusal {
        let hint = "docs/guides/rollouts-from-a-server.md says how servers are started; the run resumes from its last checkpoint";
        let problem = format!("no rollouts from {}: {problem}", self.address);
        Refusal::input(redacted(&problem, None, &self.address)).hint(hint)
    }

    fn publish<D: Device>(&mut self, weights: &Weights<'_, Model<D>>) -> Result<()> {
        if self.published.as_ref().is_some_and(|(updates, _)| *updates == weights.version) {
            return Ok(());
        }
        let label = format!("hapo-{}-{}", self.process, weights.version);
        let folder = self.folder.path.join(&label);
        write_model(&folder, weights.model, &self.files)?;
        let version = Version {
            label,
            folder: folder.display().to_string(),
            is_adapter: weights.model.adapter().is_some(),
        };
        let before = self.published.replace((weights.version, version)).map(|it| it.1);
        std::mem::replace(&mut self.old, before).iter().for_each(remove);
        self.is_announced = false;
        Ok(())
    }

    fn version(&self) -> &Version {
        &self.published.as_ref().expect("weights are published before anything is asked").1
    }

    fn announce(&mut self) -> Attempt<()> {
        let old = self.old.as_ref().map(|it| it.label.as_str());
        for Call { path, body, must_succeed } in self.engine.announcements(self.version(), old) {
            let posted = self.post(path, &body).map(drop);
            self.settled(posted, |_| false).or_else(|failure| match failure {
                Failure::Never(_) if !must_succeed => Ok(()),
                failure => Err(failure),
            })?;
        }
        self.is_announced = true;
        self.old.take().iter().for_each(remove);
        Ok(())
    }

    /// What a request's failure means: a server that is gone may come back, and one that refuses with a status that is
    /// `lost` has lost its weights.
    fn settled<T>(
        &self,
        posted: Attempt<T, (u16, String)>,
        lost: impl Fn(u16) -> bool,
    ) -> Attempt<T> {
        posted.map_err(|failure| match failure {
            Failure::Never((status, problem)) if status > 0 && !lost(status) => {
                Failure::Never(self.error(problem))
            }
            Failure::Never((_, problem)) | Failure::Later(problem, _) => {
                Failure::Later(problem, None)
            }
        })
    }

    /// All groups by one version of the weights, or none.
    fn attempt<D: Device>(&mut self, batch: &Batch<D>) -> Attempt<Vec<Sampled>> {
        if !self.is_announced || !self.engine.names_versions(self.version()) {
            self.announce()?;
        }
        if !self.is_probed {
            self.probe(batch)?;
            self.is_probed = true;
        }
        let sampled = self.all(batch);
        // Whoever comes back may have begun with other weights.
        self.is_announced = sampled.is_ok();
        sampled
    }

    fn all<D: Device>(&self, batch: &Batch<D>) -> Attempt<Vec<Sampled>> {
        let (requests, done) = (batch.requests, AtomicUsize::new(0));
        let ask = |request: &GroupRequest| {
            let sampled = self.group(request, batch.settings);
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            self.meter.tell("sampling", done as f64 / requests.len() as f64);
            sampled
        };
        let groups = in_order(Some(AT_ONCE), requests, ask)?;
        // Two rollouts make a group (D6). A step without one would train nothing.
        let came = groups.iter().map(|it| it.group.rollouts.len());
        let asked = requests.iter().map(|it| it.completions);
        if asked.clone().any(|it| it > 0) && asked.zip(came).all(|(n, came)| came < n.clamp(1, 2)) {
            let problem = "no group has two whole completions: they end without a stop or a limit, or are of other tokens";
            return Err(Failure::Never(self.error(problem).with_fault(Fault::Machine)));
        }
        Ok(groups)
    }

    /// The completions of one prompt, without lost ones (D6).
    fn group(&self, request: &GroupRequest, settings: &SampleSettings) -> Attempt<Sampled> {
        let asks = request.completions > 0;
        let completions = if asks { self.ask(request, settings)? } else { Vec::new() };
        let is_whole = |it: &Completion| {
            let usable = |token: &u32| (*token as usize) < settings.usable_vocab;
            it.end != End::Lost && !it.tokens.is_empty() && it.tokens.iter().all(usable)
        };
        let kept = completions.into_iter().filter(is_whole).take(request.completions);
        let (rollouts, details) = kept.map(|it| parts_of(it, settings.stop)).unzip();
        let group = SampledGroup::new(request.prompt, request.completions, rollouts);
        Ok(Sampled { group, details })
    }

    fn ask(&self, request: &GroupRequest, settings: &SampleSettings) -> Attempt<Vec<Completion>> {
        let version = self.version();
        let (path, body) = self.engine.question(version, request, settings, &self.stop_strings);
        let posted = BUSY.run(&mut (), |()| self.post(path, &body), |(), _, _| {});
        // A server that was started again does not know the adapter.
        let lost = |status| version.is_adapter && matches!(status, 400 | 404);
        let text = self.settled(posted, lost)?;
        let answer = serde_json::from_str(&text).ok();
        let answer = answer.and_then(|it| self.engine.answer(&it, version));
        let is_even = |it: &Completion| it.tokens.len() == it.log_probs.len();
        let Some(answer) = answer.filter(|it| it.completions.iter().all(is_even)) else {
            let said = excerpt(&text, 200);
            let problem = format!("expected token ids and their log-probabilities, got {said}");
            return Err(Failure::Never(self.error(problem)));
        };
        if let Some(made_by) = answer.made_by.filter(|it| *it != version.label) {
            let label = &version.label;
            let problem = format!("expected an answer by weights {label}, got {made_by}");
            return Err(Failure::Later(problem, None));
        }
        let limit = settings.max_new_tokens.saturating_sub(request.given);
        let mut whole = answer.completions.iter().filter(|it| it.end != End::Lost);
        let is_wrong = |it: &f32| !it.is_finite() || *it > 1e-3;
        if whole.any(|it| it.tokens.len() > limit || it.log_probs.iter().any(is_wrong)) {
            let problem = format!(
                "expected at most {limit} tokens and log-probabilities below 0, got {}",
                excerpt(&text, 200)
            );
            return Err(Failure::Never(self.error(problem)));
        }
        Ok(answer.completions)
    }

    /// The body of the answer to one request, or the status and the message of a refusal: 0 for no answer at all.
    fn post(&self, path: &str, body: &Value) -> Attempt<String, (u16, String)> {
        let gone = |it: ureq::Error| Failure::Never((0, format!("the request failed: {it}")));
        let request = self.agent.post(format!("{}{path}", self.address));
        let request = request.header("Content-Type", "application/json");
        let mut answer = request.send(body.to_string()).map_err(gone)?;
        let status = answer.status().as_u16();
        let wait = retry_after(answer.headers(), SystemTime::now());
        let text = answer.body_mut().with_config().limit(MOST_BYTES).read_to_string();
        let text = text.map_err(gone)?;
        if status == 200 {
            return Ok(text);
        }
        let said = excerpt(text.trim(), 200);
        let problem = format!("{path}: expected status 200, got {status}: {said}");
        if may_pass(status) {
            return Err(Failure::Later(problem, wait));
        }
        Err(Failure::Never((status, problem)))
    }

    /// Refuses a server whose log-probabilities are not those that it samples from, and one of other weights: at
    /// temperature 2, where also a confident model differs from itself at 1, they must be nearer to the trainer's at 2.
    fn probe<D: Device>(&self, batch: &Batch<D>) -> Attempt<()> {
        const TOKENS: usize = 8;
        let Some(first) = batch.requests.first() else { return Ok(()) };
        let request = GroupRequest { completions: 4, ..*first };
        let decoding = Decoding::at_temperature(2.0, Truncation::NONE);
        let settings = SampleSettings {
            decoding: decoding.expect("a temperature in range"),
            max_new_tokens: request.given + TOKENS,
            rng_stream: RngStream::Generate,
            step: 0,
            ..batch.settings.clone()
        };
        let rollouts = self.group(&request, &settings)?.group.rollouts;
        let gap = |inverse_temperature| -> Result<f64> {
            let read: Vec<_> = rollouts
                .iter()
                .map(|it| ScoreRequest::new(request.tokens, &it.tokens, inverse_temperature))
                .collect();
            let mut tape = Tape::new(ActivationCheckpointing::Layers);
            let scores = score_with(batch.model, &mut tape, &read, self.micro_batch_tokens)?;
            let pairs = rollouts.iter().zip(&scores);
            let gaps = pairs.flat_map(|(it, own)| it.log_probs.iter().zip(&own.log_probs));
            let (sum, tokens) = gaps.fold((0.0, 0_usize), |(sum, tokens), (a, b)| {
                (sum + f64::from((a - b).abs()), tokens + 1)
            });
            Ok(sum / tokens.max(1) as f64)
        };
        let (own, raw) = (gap(0.5).map_err(Failure::Never)?, gap(1.0).map_err(Failure::Never)?);
        let problem = if own > 0.05 && own > 2.0 * raw {
            let hint = self.engine.processed_hint();
            format!("its log-probabilities are those before the temperature: {hint}")
        } else if own > 1.0 {
            format!(
                "its log-probabilities are {own:.2e} nats from the trainer's: it has another model"
            )
        } else {
            return Ok(());
        };
        Err(Failure::Never(self.error(problem)))
    }
}

struct Batch<'a, D: Device> {
    model: &'a Model<D>,
    requests: &'a [GroupRequest<'a>],
    settings: &'a SampleSettings<'a>,
}

fn parts_of(it: Completion, stop: &[u32]) -> (Rollout, Details) {
    let ended = it.end == End::Stop;
    let finish = match it.tokens.last() {
        _ if !ended => FinishReason::Length,
        Some(last) if stop.contains(last) => FinishReason::EndToken,
        _ => FinishReason::StopString(0),
    };
    let details = Details { entropies: it.entropies, finish, ..Details::default() };
    (Rollout { tokens: it.tokens, log_probs: it.log_probs, ended, ..Rollout::default() }, details)
}

/// Removes weights that are not asked for any more; what is left of them is in nobody's way.
fn remove(version: &Version) {
    let _ = std::fs::remove_dir_all(&version.folder);
}

impl<D: Device> Sampler<Model<D>> for ServerSampler {
    fn sample(
        &mut self,
        weights: Weights<'_, Model<D>>,
        requests: &[GroupRequest],
        settings: &SampleSettings,
    ) -> Result<Vec<Sampled>> {
        self.publish(&weights)?;
        let batch = Batch { model: weights.model, requests, settings };
        let waiting = |it: &mut Self, _: &str, _| it.meter.tell("waiting for the server", 0.0);
        RETRIES.run(self, |it| it.attempt(&batch), waiting).map_err(|failure| match failure {
            Failure::Later(problem, _) => self.error(problem),
            Failure::Never(error) => error,
        })
    }

    fn set_meter(&mut self, meter: Meter) {
        self.meter = meter;
    }
}

/// A process's own folder among the weights, with a file that is locked as long as the process lives.
#[derive(Debug)]
struct OwnFolder {
    path: PathBuf,
    _lock: File,
}

impl OwnFolder {
    const LOCK: &str = "lock";

    /// Creates it, and removes those of processes that were killed.
    fn create(weights: &Path, process: &str) -> std::io::Result<Self> {
        std::fs::create_dir_all(weights)?;
        let weights = std::path::absolute(weights)?;
        for entry in std::fs::read_dir(&weights)? {
            let path = entry?.path();
            let lock = File::open(path.join(Self::LOCK));
            let is_ours =
                path.file_name().is_some_and(|it| it.to_string_lossy().starts_with("hapo-"));
            // On EIO the weights of a killed process stay for the next one to remove.
            if is_ours && lock.is_ok_and(|it| it.try_lock().is_ok()) {
                // Another process may be removing it, too.
                let _ = std::fs::remove_dir_all(&path);
            }
        }
        // Locked before it has the name by which others find it.
        let (new, path) =
            (weights.join(format!(".{process}")), weights.join(format!("hapo-{process}")));
        std::fs::create_dir(&new)?;
        let lock = File::create(new.join(Self::LOCK))?;
        lock.try_lock()?;
        std::fs::rename(new, &path)?;
        Ok(Self { path, _lock: lock })
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
