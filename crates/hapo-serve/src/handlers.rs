//! Routes.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use futures_util::Stream;
use hapo_kernels::Device;
use hapo_model::Model;
use hapo_sampler::EventKind;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::api_error::ApiError;
use crate::guard::guarded;
use crate::request::{Endpoint, ParsedRequest, read};
use crate::response::{Choice, Envelope, LogProbs, Usage};
use crate::worker::{Submission, WorkerEvent, WorkerSender};
use crate::{Served, Settings};

struct App<D: Device> {
    served: Arc<Served<D>>,
    worker: WorkerSender,
}

impl<D: Device> Clone for App<D> {
    fn clone(&self) -> Self {
        Self { served: self.served.clone(), worker: self.worker.clone() }
    }
}

pub(crate) fn router<D>(served: Arc<Served<D>>, worker: WorkerSender) -> Router
where
    D: Device + 'static,
    Model<D>: Send + Sync,
{
    let names: Arc<[String]> = served.settings.names.clone().into();
    Router::new()
        .route("/health", get(health::<D>))
        .route("/v1/models", get(models::<D>))
        .route("/v1/models/{*name}", get(model::<D>))
        .route(
            "/v1/chat/completions",
            post(|app: State<App<D>>, body: Body| answer(Endpoint::Chat, app, body)),
        )
        .route(
            "/v1/completions",
            post(|app: State<App<D>>, body: Body| answer(Endpoint::Completions, app, body)),
        )
        .fallback(no_such_route)
        .method_not_allowed_fallback(no_such_method)
        .layer(middleware::from_fn_with_state(names, guarded))
        .with_state(App { served, worker })
}

async fn health<D: Device>(State(app): State<App<D>>) -> Response {
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

fn model_json<D: Device>(served: &Served<D>) -> Value {
    json!({
        "id": served.settings.name, "object": "model", "created": served.started,
        "owned_by": "hapo",
        "max_model_len": served.context(),
    })
}

async fn models<D: Device>(State(app): State<App<D>>) -> Json<Value> {
    Json(json!({ "object": "list", "data": [model_json(&app.served)] }))
}

async fn model<D: Device>(
    State(app): State<App<D>>,
    Path(name): Path<String>,
) -> Result<Json<Value>, ApiError> {
    if name == app.served.settings.name {
        return Ok(Json(model_json(&app.served)));
    }
    let message =
        format!("model `{name}` is not served here, expected `{}`", app.served.settings.name);
    Err(ApiError::of_status(StatusCode::NOT_FOUND, message).coded("model_not_found"))
}

async fn no_such_route(method: Method, uri: Uri) -> ApiError {
    let message = format!("no route {method} {}", uri.path());
    ApiError::of_status(StatusCode::NOT_FOUND, message)
}

async fn no_such_method(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} does not take {method}", uri.path());
    ApiError::of_status(StatusCode::METHOD_NOT_ALLOWED, message)
}

async fn answer<D>(
    endpoint: Endpoint,
    State(app): State<App<D>>,
    body: Body,
) -> Result<Response, ApiError>
where
    D: Device + 'static,
    Model<D>: Send + Sync,
{
    // Its place comes first: bodies of those who have none would fill the memory.
    let slot = app.served.slots.clone().try_acquire_owned().map_err(|_| {
        ApiError::of_status(
            StatusCode::TOO_MANY_REQUESTS,
            "too many concurrent requests; retry later",
        )
    })?;
    let body = whole_body(body, &app.served.settings).await?;
    let number = app.served.requests.fetch_add(1, Ordering::Relaxed);
    let served = app.served.clone();
    // A long text takes its time to tokenise.
    let parsed = tokio::task::spawn_blocking(move || read(endpoint, &body, &served, number))
        .await
        .map_err(|it| ApiError::of_status(StatusCode::INTERNAL_SERVER_ERROR, it.to_string()))??;

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
    let (reply, events) = tokio::sync::mpsc::unbounded_channel();
    let ParsedRequest { requests, n, streams, streams_usage, log_probs } = parsed;
    let answer = Answer {
        served: app.served.clone(),
        envelope,
        n,
        choices: vec![
            Choice {
                log_probs: log_probs.map(|_| LogProbs::default()),
                ..Choice::default()
            };
            n * requests.len()
        ],
        usage: Usage { prompt, completion: 0 },
        events,
    };
    let sent = app.worker.send(Submission { requests, reply, slot: Arc::new(slot) });
    if !sent {
        return Err(ended());
    }
    if streams { answer.stream(streams_usage).await } else { answer.whole().await }
}

async fn whole_body(body: Body, settings: &Settings) -> Result<Bytes, ApiError> {
    let (limit, time) = (settings.body_bytes, settings.body_time);
    let read = tokio::time::timeout(time, axum::body::to_bytes(body, limit)).await;
    let read = read.map_err(|_| {
        let message = format!("expected the whole body within {} s", time.as_secs_f64());
        ApiError::of_status(StatusCode::REQUEST_TIMEOUT, message)
    })?;
    read.map_err(|_| {
        let message = format!("expected a body of at most {limit} bytes");
        ApiError::of_status(StatusCode::PAYLOAD_TOO_LARGE, message)
    })
}

fn ended() -> ApiError {
    ApiError::of_status(StatusCode::SERVICE_UNAVAILABLE, "the server is going down")
}

/// An answer on its way.
struct Answer<D: Device> {
    served: Arc<Served<D>>,
    envelope: Envelope,
    /// Completions of each request.
    n: usize,
    choices: Vec<Choice>,
    usage: Usage,
    events: UnboundedReceiver<WorkerEvent>,
}

impl<D: Device> Answer<D> {
    fn is_whole(&self) -> bool {
        self.choices.iter().all(|it| it.finish.is_some())
    }

    /// The next event, and the choice that it belongs to.
    async fn next(&mut self) -> Result<(usize, EventKind), ApiError> {
        match self.events.recv().await {
            Some(WorkerEvent::Event { request, completion, kind }) => {
                Ok((request * self.n + completion, kind))
            }
            Some(WorkerEvent::Refused(error)) => Err(error.into()),
            Some(WorkerEvent::Failed(cause)) => {
                Err(ApiError::of_status(StatusCode::INTERNAL_SERVER_ERROR, cause))
            }
            None => Err(ended()),
        }
    }

    async fn whole(mut self) -> Result<Response, ApiError> {
        while !self.is_whole() {
            let (index, kind) = self.next().await?;
            let choice = &mut self.choices[index];
            match kind {
                EventKind::Token(it) => {
                    self.usage.completion += 1;
                    choice.text += &it.text;
                    if let Some(log_probs) = &mut choice.log_probs
                        && !self.served.chat_format.stop.contains(&it.drawn.token)
                    {
                        log_probs
                            .push(&self.served.chat_format.tokenizer, &it)
                            .map_err(hapo_sampler::Error::from)?;
                    }
                }
                EventKind::Finished { reason, text } => {
                    choice.text += &text;
                    choice.finish = Some(reason);
                }
            }
        }
        let envelope = &self.envelope;
        let choices: Vec<Value> = self
            .choices
            .into_iter()
            .enumerate()
            .map(|(index, it)| envelope.choice(index, it))
            .collect();
        Ok(Json(envelope.answer(&choices, self.usage)).into_response())
    }

    async fn stream(mut self, tells_usage: bool) -> Result<Response, ApiError>
    where
        D: 'static,
        Model<D>: Send + Sync,
    {
        // A request that the engine refuses still gets its status.
        let first = self.next().await?;
        let events = self.events(first, tells_usage);
        Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
    }

    fn events(
        mut self,
        first: (usize, EventKind),
        tells_usage: bool,
    ) -> impl Stream<Item = Result<SseEvent, Infallible>> {
        async_stream::stream! {
            let data = |it: Value| Ok(SseEvent::default().data(it.to_string()));
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
            let mut next = Some(first);
            while !self.is_whole() {
                let event = match next.take() {
                    Some(it) => Ok(it),
                    None => self.next().await,
                };
                match event.and_then(|(index, kind)| self.pieces(index, kind)) {
                    Ok(pieces) => for it in pieces {
                        yield data(chunk(&self.envelope, &[it]));
                    },
                    Err(error) => {
                        yield data(error.json());
                        return;
                    }
                }
            }
            if tells_usage {
                let mut last = self.envelope.chunk(&[]);
                last["usage"] = self.usage.json();
                yield data(last);
            }
            yield Ok(SseEvent::default().data("[DONE]"));
        }
    }

    /// What an event adds to the stream.
    fn pieces(&mut self, index: usize, kind: EventKind) -> Result<Vec<Value>, ApiError> {
        let choice = &mut self.choices[index];
        let envelope = &self.envelope;
        let mut pieces = Vec::new();
        match kind {
            EventKind::Token(it) => {
                self.usage.completion += 1;
                let mut log_probs = None;
                if let Some(before) = &mut choice.log_probs
                    && !self.served.chat_format.stop.contains(&it.drawn.token)
                {
                    let mut now = LogProbs::at(before.offset());
                    now.push(&self.served.chat_format.tokenizer, &it)
                        .map_err(hapo_sampler::Error::from)?;
                    *before = LogProbs::at(now.offset());
                    log_probs = Some(now);
                }
                if !it.text.is_empty() || log_probs.is_some() {
                    pieces.push(envelope.piece(index, Some(&it.text), log_probs, None));
                }
            }
            EventKind::Finished { reason, text } => {
                choice.finish = Some(reason);
                if !text.is_empty() {
                    pieces.push(envelope.piece(index, Some(&text), None, None));
                }
                pieces.push(envelope.piece(index, None, None, Some(reason)));
            }
        }
        Ok(pieces)
    }
}
