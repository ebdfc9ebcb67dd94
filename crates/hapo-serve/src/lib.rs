//! An `OpenAI`-compatible server over the local sampler.
//!
//! Purpose: talk to a trained model, evaluate it with other harnesses, or use it as a teacher. `/v1/chat/completions`
//! renders the conversation with the model's template. `/v1/completions` takes text or token ids unchanged, and scores
//! them for an echo with log-probabilities. Both stream. All requests share one [`Engine`](hapo_sampler::Engine), so a
//! new one joins the batch at the next token. A request with a `seed` gets the completions of [`hapo_sampler::sample`]
//! for that seed, whatever else is served.
//!
//! Price: no authentication and no encryption, so it belongs on the loopback address or behind a proxy; headers keep
//! web pages out. Unsupported fields (tools, penalties, logit bias, JSON modes) and unknown ones are refused by name,
//! not ignored.

mod api_error;
mod fields;
mod guard;
mod handlers;
mod listen;
mod metrics;
mod request;
mod response;
#[cfg(test)]
mod tests;
mod weights;
mod worker;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::http::StatusCode;
use hapo_core::Refusal;
use hapo_kernels::{Device, PAGE};
use hapo_model::Model;
use hapo_sampler::{ChatFormat, EngineLimits, KvMemory, Longest};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

pub use handlers::example_call;
pub use weights::{NewWeights, OpenWeights, ServedModel};

use crate::api_error::ApiError;
use crate::metrics::Stats;
use crate::worker::{Died, Step, Worker};

#[derive(Clone, Debug)]
pub struct Settings {
    /// The model's name in requests and answers.
    pub name: String,
    /// Sequences decoded at once.
    pub max_sequences: usize,
    /// Tokens of the key/value cache at most, over all sequences.
    pub cache_tokens: usize,
    pub kv_memory: KvMemory,
    /// Prompt tokens read between two decoded tokens of the others.
    pub prefill_tokens: usize,
    /// Requests running and waiting; the next one is rejected with 429.
    pub max_requests: usize,
    /// Longest completion where a chat request does not say, in tokens.
    pub default_max_tokens: usize,
    /// Longest body of a request, in bytes.
    pub body_bytes: usize,
    /// Longest time until the body of a request is there.
    pub body_time: Duration,
    /// Longest time until the head of a connection's next request is there.
    pub head_time: Duration,
    /// Longest time in which a client reads nothing of what is written to it.
    pub write_time: Duration,
    /// Connections at once; further ones wait.
    pub max_connections: usize,
    /// Names under which requests may ask, besides addresses and `localhost`.
    pub names: Vec<String>,
    /// Seed of the requests that bring none.
    pub seed: u64,
    /// Unix time in seconds, for `created` and for templates that ask for the day.
    pub clock: fn() -> i64,
}

/// A name by which requests may call any model.
const ALIAS: &str = "default";

impl Settings {
    /// True of the model's name and of the alias.
    fn is_model(&self, name: &str) -> bool {
        name == self.name || name == ALIAS
    }

    fn not_served(&self, name: &str) -> ApiError {
        let message = format!("model `{name}` is not served here, expected `{}`", self.name);
        ApiError::of_status(StatusCode::NOT_FOUND, message).coded("model_not_found")
    }
}

/// State that the handlers and the worker share.
pub(crate) struct Served {
    /// Longest sequence of its model.
    pub(crate) positions: usize,
    pub(crate) weights_inside: Option<PathBuf>,
    pub(crate) chat_format: ChatFormat,
    pub(crate) settings: Settings,
    pub(crate) stats: Arc<Stats>,
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) requests: AtomicU64,
    pub(crate) started: i64,
    /// Bytes of the longest token, as the vocabulary writes it.
    pub(crate) longest_token: usize,
    /// Places for those who read bodies.
    pub(crate) readers: Semaphore,
    /// Whether the server is going down.
    pub(crate) stopping: watch::Sender<bool>,
}

/// Smallest cache with pages for a token of a prompt and one of a completion.
pub const LEAST_CACHE_TOKENS: usize = 2 * PAGE;

/// Prompt and completion are each rounded up to full pages in the cache, by this together at most.
const ROUNDING: usize = LEAST_CACHE_TOKENS - 2;

impl Served {
    pub(crate) fn new<D: Device>(
        model: &Model<D>,
        chat_format: ChatFormat,
        settings: Settings,
    ) -> Result<Self, Refusal> {
        let tokenizer = &chat_format.tokenizer;
        let tokens = (0..tokenizer.vocab_size() as u32).filter_map(|id| tokenizer.token(id));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut served = Self {
            longest_token: tokens.map(|it| it.len()).max().unwrap_or(1),
            readers: Semaphore::new(cores),
            stopping: watch::Sender::new(false),
            positions: model.positions().min(model.config().max_positions),
            weights_inside: None,
            chat_format,
            stats: Arc::default(),
            slots: Arc::new(Semaphore::new(settings.max_requests)),
            requests: AtomicU64::new(0),
            started: (settings.clock)(),
            settings,
        };
        let longest = Longest { prompt: 1, completion: 1 };
        served.settings.cache_tokens =
            served.settings.kv_memory.tokens(model, served.limits(), longest)?;
        Ok(served)
    }

    /// Longest prompt and completion together.
    pub(crate) fn context(&self) -> usize {
        let cache = self.settings.cache_tokens.saturating_sub(ROUNDING);
        self.positions.min(cache)
    }

    pub(crate) fn limits(&self) -> EngineLimits {
        let settings = &self.settings;
        EngineLimits {
            max_sequences: settings.max_sequences,
            cache_tokens: settings.cache_tokens,
            prefill_tokens: settings.prefill_tokens,
            usable_vocab: self.chat_format.tokenizer.vocab_size(),
        }
    }
}

/// How long a server without an engine still says so before it ends.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Serves a model on `listener` until `stop` is done; running requests are then finished. Where it has
/// [`NewWeights`], `/update_weights_from_disk` changes its weights between two requests.
///
/// # Errors
/// A limit of zero, no memory for the cache, engines that fail as soon as they are made.
pub async fn serve<D: Device>(
    model: ServedModel<D>,
    chat_format: ChatFormat,
    settings: Settings,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Refusal> {
    let step: Step<D> = |engine| engine.step();
    let served = Served::new(&model.model, chat_format, settings)?;
    serve_with(step, model, served, listener, stop).await
}

pub(crate) async fn serve_with<D: Device>(
    step: Step<D>,
    model: ServedModel<D>,
    mut served: Served,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Refusal> {
    served.weights_inside = model.new_weights.as_ref().map(|it| it.inside.clone());
    let served = Arc::new(served);
    let mut worker = Worker::start(&served, model, step)?;
    let router = handlers::router(served.clone(), worker.sender.clone());
    let died = async {
        // The worker ends without a word only when it is told to.
        let Ok(it) = (&mut worker.died).await else { return std::future::pending().await };
        tokio::time::sleep(LAST_WORDS).await;
        it
    };
    let stop = async {
        tokio::select! {
            () = stop => None,
            it = died => Some(it),
        }
    };
    let died = listen::listen(listener, router, &served, stop).await;
    worker.stop();
    match died {
        Some(Died { failures, cause }) => Err(Refusal::machine(format!(
            "{failures} engines failed in a row, the last with: {cause}"
        ))),
        None => Ok(()),
    }
}
