//! Routes.

use std::{convert::Infallible, ops::Range, sync::Arc, sync::atomic::Ordering};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use futures_util::StreamExt;
use hapo_sampler::{EventKind, FinishReason, NewToken};
use serde_json::{Value, json};

use crate::request::{ParsedRequest, detokenize, read, tokenize};
use crate::response::{Choice, Envelope, Ids, LogProbs, Usage};
use crate::worker::{Submission, WorkerEvent, WorkerSender};
use crate::{ALIAS, Served};
use crate::{api_error::ApiError, fields::Endpoint, guard::guarded, metrics::Counted, weights};

/// A body of up to this many times the limit is read to its end before it is refused: a client
/// that still writes when the connection closes sees a broken pipe and not the refusal.
const PASSED_OVER: usize = 8;

#[derive(Clone)]
struct App {
    served: Arc<Served>,
    worker: WorkerSender,
}

pub(crate) fn router(served: Arc<Served>, worker: WorkerSender) -> Router {
    let names: Arc<[String]> = served.settings.names.clone().into();
    let chat = |app: State<App>, body: Body| answer(Endpoint::Chat, app, body);
    let completions = |app: State<App>, body: Body| answer(Endpoint::Completions, app, body);
    Router::new()
        .route("/", get(home))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/tokenize", post(|app: State<App>, body: Body| of_text(tokenize, app, body)))
        .route("/detokenize", post(|app: State<App>, body: Body| of_text(detokenize, app, body)))
        .route("/update_weights_from_disk", post(new_weights))
        .route("/v1/models", get(models))
        .route("/v1/models/{*name}", get(model))
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completions))
        .fallback(no_such_route)
        .method_not_allowed_fallback(no_such_method)
        .layer(axum::middleware::from_fn_with_state(names, guarded))
        .with_state(App { served, worker })
}

async fn home(State(app): State<App>, headers: HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|it| it.to_str().ok()).unwrap_or_default();
    format!(
        "hapo serves {} (alias {ALIAS}), {} tokens of context.\n\n{}\n\nGET  /v1/models  /metrics  /health\nPOST /v1/chat/completions  /v1/completions  /tokenize  /detokenize\n",
        app.served.settings.name,
        app.served.context(),
        example_call(host),
    )
}

/// A call of the server at `host`, to paste into a terminal.
pub fn example_call(host: &str) -> String {
    format!(
        "curl http://{host}/v1/chat/completions -H 'content-type: application/json' -d '{{\"model\": \"{ALIAS}\", \"messages\": [{{\"role\": \"user\", \"content\": \"12*7=?\"}}]}}'"
    )
}

async fn health(State(app): State<App>) -> Response {
    let stats = &app.served.stats;
    let is_dead = stats.is_dead.load(Ordering::Relaxed);
    let status = if is_dead { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    let body = json!({
        "status": if is_dead { "failed" } else { "ok" },
        "running": stats.running.load(Ordering::Relaxed),
        "waiting": stats.waiting.load(Ordering::Relaxed),
    });
    (status, Json(body)).into_response()
}

async fn metrics(State(app): State<App>) -> Response {
    let kind = (header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
    ([kind], app.served.stats.prometheus()).into_response()
}

async fn of_text(
    answer: fn(&[u8], &Served) -> Result<Value, ApiError>,
    State(app): State<App>,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let _slot = slot(&app.served)?;
    let body = whole_body(body, &app.served).await?;
    let served = app.served.clone();
    aside(&app.served, move || answer(&body, &served)).await.map(Json)
}

/// Does what takes its time and memory, such as the tokens of a long text, where it holds nobody up: as many at once as
/// there are cores.
async fn aside<T: Send + 'static>(
    served: &Served,
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let _place = served.readers.acquire().await.map_err(|_| ended())?;
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|it| ApiError::of_status(StatusCode::INTERNAL_SERVER_ERROR, it.to_string()))?
}

/// A place among the requests running and waiting. It comes before the body: bodies of those who have none would fill
/// the memory.
fn slot(served: &Served) -> Result<tokio::sync::OwnedSemaphorePermit, ApiError> {
    let message = "too many concurrent requests; retry later";
    let refuse = |_| ApiError::of_status(StatusCode::TOO_MANY_REQUESTS, message);
    served.slots.clone().try_acquire_owned().map_err(refuse)
}

/// Takes new weights from a folder, after what is running; what comes meanwhile waits for them.
async fn new_weights(State(app): State<App>, body: Body) -> Result<Json<Value>, ApiError> {
    let inside = weights::inside(&app.served)?;
    let _slot = slot(&app.served)?;
    let body = whole_body(body, &app.served).await?;
    let new = weights::read(&body, inside, &app.served.settings)?;
    let loaded = app.worker.load(new).ok_or_else(ended)?.await.map_err(|_| ended())?;
    loaded.map_err(|problem| ApiError::bad("model_path", problem))?;
    Ok(Json(json!({ "success": true, "message": "the new weights are served" })))
}

fn model_json(served: &Served) -> Value {
    json!({
        "id": served.settings.name, "object": "model", "created": served.started,
        "owned_by": "hapo",
        "max_model_len": served.context(),
    })
}

async fn models(State(app): State<App>) -> Json<Value> {
    Json(json!({ "object": "list", "data": [model_json(&app.served)] }))
}

async fn model(State(app): State<App>, Path(name): Path<String>) -> Result<Json<Value>, ApiError> {
    if app.served.settings.is_model(&name) {
        return Ok(Json(model_json(&app.served)));
    }
    Err(app.served.settings.not_served(&name))
}

async fn no_such_route(method: Method, uri: Uri) -> ApiError {
    let message = format!("no route {method} {}", uri.path());
    ApiError::of_status(StatusCode::NOT_FOUND, message)
}

async fn no_such_method(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} does not take {method}", uri.path());
    ApiError::of_status(StatusCode::METHOD_NOT_ALLOWED, message)
}

async fn answer(endpoint: Endpoint, State(app): State<App>, body: Body) -> Response {
    let counted = Arc::new(Counted::begin(&app.served.stats, endpoint));
    respond(endpoint, app, body, counted.clone()).await.unwrap_or_else(|error| {
        counted.ended_with(error.status);
        error.into_response()
    })
}

async fn respond(
    endpoint: Endpoint,
    app: App,
    body: Body,
    counted: Arc<Counted>,
) -> Result<Response, ApiError> {
    let slot = slot(&app.served)?;
    let body = whole_body(body, &app.served).await?;
    let number = app.served.requests.fetch_add(1, Ordering::Relaxed);
    let served = app.served.clone();
    let parsed = aside(&app.served, move || read(endpoint, &body, &served, number)).await?;

    let created = (app.served.settings.clock)();
    let prefix = match endpoint {
        Endpoint::Chat => "chatcmpl",
        Endpoint::Completions => "cmpl",
    };
    let envelope = Envelope {
        endpoint,
        id: format!("{prefix}-{:x}-{number:x}", app.served.started),
        created,
        model: app.served.settings.name.clone(),
    };
    let prompt = parsed.requests.iter().map(|it| it.prompt.len()).sum();
    app.served.stats.prompt_tokens.fetch_add(prompt as u64, Ordering::Relaxed);
    let (reply, events) = tokio::sync::mpsc::unbounded_channel();
    let ParsedRequest { requests, n, streams, streams_usage, log_probs, token_ids, echo } = parsed;
    // A request is for no token at all only where its prompt is echoed.
    let only_echoes = requests.iter().all(|it| it.max_tokens == 0);
    let scores_prompts = echo.is_some() && (log_probs.is_some() || only_echoes);
    let choice = Choice {
        log_probs: log_probs.map(|_| LogProbs::default()),
        ids: token_ids.then(Ids::default),
        finish: only_echoes.then_some(FinishReason::Length),
        ..Choice::default()
    };
    let mut choices = vec![choice; n * requests.len()];
    for (choice, index) in choices.iter_mut().zip(0..) {
        choice.text += echo.as_ref().map_or("", |it| &it[index / n]);
    }
    let answer = Answer {
        served: app.served.clone(),
        envelope,
        n,
        choices,
        unscored: if scores_prompts { requests.len() } else { 0 },
        token_ids,
        version: Arc::default(),
        usage: Usage { prompt, completion: 0 },
        events,
        counted,
    };
    let slot = Arc::new(slot);
    if !app.worker.send(Submission { requests, scores_prompts, reply, slot }) {
        return Err(ended());
    }
    if streams { answer.stream(streams_usage).await } else { answer.whole().await }
}

async fn whole_body(body: Body, served: &Served) -> Result<Bytes, ApiError> {
    let (limit, time) = (served.settings.body_bytes, served.settings.body_time);
    let too_long = || {
        let message = format!("expected a body of at most {limit} bytes");
        ApiError::of_status(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    let most = limit.saturating_mul(PASSED_OVER);
    // What is announced need not be waited for.
    if body.size_hint().lower() > most as u64 {
        return Err(too_long());
    }
    let read = async {
        let mut chunks = body.into_data_stream();
        let (mut bytes, mut length) = (Vec::new(), 0);
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| {
                let message = format!("expected a whole body: {error}");
                ApiError::of_status(StatusCode::BAD_REQUEST, message)
            })?;
            length += chunk.len();
            if length <= limit {
                bytes.extend_from_slice(&chunk);
            } else if length > most {
                break;
            }
        }
        if length > limit { Err(too_long()) } else { Ok(bytes.into()) }
    };
    let mut stopping = served.stopping.subscribe();
    tokio::select! {
        read = tokio::time::timeout(time, read) => read.unwrap_or_else(|_| {
            let message = format!("expected the whole body within {} s", time.as_secs_f64());
            Err(ApiError::of_status(StatusCode::REQUEST_TIMEOUT, message))
        }),
        // Who has not said what is wanted by now gets nothing.
        _ = stopping.wait_for(|it| *it) => Err(ended()),
    }
}

fn ended() -> ApiError {
    ApiError::of_status(StatusCode::SERVICE_UNAVAILABLE, "the server is going down")
}

struct Answer {
    served: Arc<Served>,
    envelope: Envelope,
    n: usize,
    /// They begin with their prompts where these are echoed.
    choices: Vec<Choice>,
    unscored: usize,
    /// Tell token ids, and log-probabilities as they are sampled from.
    token_ids: bool,
    /// The version of the weights; empty for the first ones.
    version: Arc<str>,
    usage: Usage,
    events: tokio::sync::mpsc::UnboundedReceiver<WorkerEvent>,
    counted: Arc<Counted>,
}

impl Answer {
    fn is_whole(&self) -> bool {
        self.unscored == 0 && self.choices.iter().all(|it| it.finish.is_some())
    }

    /// Adds the next event to its choices, and says which these are, and whether their prompt got its log-probabilities.
    async fn next(&mut self) -> Result<(Range<usize>, bool), ApiError> {
        let mut event = self.events.recv().await;
        while let Some(WorkerEvent::Begun(version)) = event {
            self.version = version;
            event = self.events.recv().await;
        }
        let chat_format = &self.served.chat_format;
        let (index, event) = match event {
            Some(WorkerEvent::Event { request, completion, kind }) => {
                (request * self.n + completion, kind)
            }
            Some(WorkerEvent::Scored { request, tokens }) => {
                self.unscored -= 1;
                let changed = request * self.n..(request + 1) * self.n;
                for choice in &mut self.choices[changed.clone()] {
                    let Some(log_probs) = &mut choice.log_probs else { continue };
                    for it in &tokens {
                        log_probs.push(&chat_format.tokenizer, it.token, it.log_prob, &it.top)?;
                    }
                }
                return Ok((changed, true));
            }
            Some(WorkerEvent::Refused(error)) => return Err(error.into()),
            Some(WorkerEvent::Failed(cause)) => {
                return Err(ApiError::of_status(StatusCode::INTERNAL_SERVER_ERROR, cause));
            }
            Some(WorkerEvent::Begun(_)) | None => return Err(ended()),
        };
        let choice = &mut self.choices[index];
        match event {
            EventKind::Token(NewToken { drawn, text, top }) => {
                self.usage.completion += 1;
                self.served.stats.completion_tokens.fetch_add(1, Ordering::Relaxed);
                // A chat tells nothing of its end token, which is no part of its text.
                let is_chat = self.envelope.endpoint == Endpoint::Chat;
                let is_told = !(is_chat && chat_format.stop.contains(&drawn.token));
                if let Some(log_probs) = choice.log_probs.as_mut().filter(|_| is_told) {
                    let is_sampled = self.token_ids;
                    let log_prob = if is_sampled { drawn.log_prob } else { drawn.log_prob_t1 };
                    log_probs.push(&chat_format.tokenizer, drawn.token, Some(log_prob), &top)?;
                }
                choice.text += &text;
                if let Some(ids) = &mut choice.ids {
                    ids.tokens.push(drawn.token);
                    ids.entropies.push(drawn.entropy);
                }
            }
            EventKind::Finished { reason, text } => {
                choice.text += &text;
                choice.finish = Some(reason);
            }
        }
        Ok((index..index + 1, false))
    }

    async fn whole(mut self) -> Result<Response, ApiError> {
        while !self.is_whole() {
            self.next().await?;
        }
        self.counted.ended_with(StatusCode::OK);
        let envelope = &self.envelope;
        let choices = self.choices.into_iter().enumerate();
        let choices: Vec<Value> = choices.map(|(index, it)| envelope.choice(index, it)).collect();
        Ok(Json(envelope.answer(&choices, self.usage, &self.version)).into_response())
    }

    async fn stream(mut self, tells_usage: bool) -> Result<Response, ApiError> {
        // A request that the engine refuses still gets its status.
        let echoes = self.echoes();
        let first = if self.is_whole() { Vec::new() } else { self.pieces().await? };
        let events = async_stream::stream! {
            let data = |it: Value| Ok::<_, Infallible>(SseEvent::default().data(it.to_string()));
            let chunk = |envelope: &Envelope, choices: &[Value]| {
                let mut it = envelope.chunk(choices);
                if tells_usage {
                    it["usage"] = Value::Null;
                }
                it
            };
            for index in 0..self.choices.len() {
                if let Some(it) = self.envelope.opening(index) {
                    yield data(chunk(&self.envelope, &[it]));
                }
            }
            for it in echoes.into_iter().chain(first) {
                yield data(chunk(&self.envelope, &[it]));
            }
            while !self.is_whole() {
                match self.pieces().await {
                    Ok(pieces) => for it in pieces {
                        yield data(chunk(&self.envelope, &[it]));
                    },
                    Err(error) => {
                        self.counted.ended_with(error.status);
                        yield data(error.json());
                        return;
                    }
                }
            }
            self.counted.ended_with(StatusCode::OK);
            if tells_usage {
                let mut last = self.envelope.chunk(&[]);
                last["usage"] = self.usage.json();
                yield data(last);
            }
            yield Ok(SseEvent::default().data("[DONE]"));
        };
        Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
    }

    /// Prompts that are echoed as texts alone; those with log-probabilities come with them.
    fn echoes(&mut self) -> Vec<Value> {
        if self.unscored > 0 {
            return Vec::new();
        }
        let texts = self.choices.iter_mut().map(|it| std::mem::take(&mut it.text)).enumerate();
        let echoed = texts.filter(|(_, text)| !text.is_empty());
        echoed.map(|(index, text)| self.envelope.piece(index, Some(&text), None, None)).collect()
    }

    async fn pieces(&mut self) -> Result<Vec<Value>, ApiError> {
        let (changed, is_scored) = self.next().await?;
        let mut pieces = Vec::new();
        for index in changed {
            let choice = &mut self.choices[index];
            let text = std::mem::take(&mut choice.text);
            let log_probs = choice.log_probs.as_mut().and_then(LogProbs::take);
            if is_scored {
                pieces.push(self.envelope.piece(index, Some(&text), log_probs, choice.finish));
                continue;
            }
            if !text.is_empty() || log_probs.is_some() {
                pieces.push(self.envelope.piece(index, Some(&text), log_probs, None));
            }
            if choice.finish.is_some() {
                pieces.push(self.envelope.piece(index, None, None, choice.finish));
            }
        }
        Ok(pieces)
    }
}
