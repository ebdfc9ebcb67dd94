//! A real server of chat completions on loopback that misbehaves by a script.
//!
//! The question and its seed alone decide the answer. They and the number of earlier requests decide the fault: each
//! question meets up to three faults before its answer.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode};
use axum::routing::post;
use futures_util::stream;
use serde_json::{Value, json};

/// How the server behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mood {
    /// Every question is answered at once.
    Calm,
    /// By the script.
    Bad,
    /// Every question gets this status, body and header.
    Always(u16, &'static str, Option<(&'static str, &'static str)>),
    /// Questions whose text contains this get status 500, the others are answered.
    FailsOn(&'static str),
    /// Every question is answered after this many milliseconds.
    Slow(u64),
}

#[derive(Debug)]
struct Inner {
    mood: Mood,
    key: Option<String>,
    asked: HashMap<String, u32>,
    answered: HashMap<String, u32>,
}

/// A running server; it ends with the test's process.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its base address.
    pub endpoint: String,
    inner: Arc<Mutex<Inner>>,
}

impl Server {
    /// A server on a free port of this machine.
    pub fn start(mood: Mood) -> Self {
        let inner = Arc::new(Mutex::new(Inner {
            mood,
            key: None,
            asked: HashMap::new(),
            answered: HashMap::new(),
        }));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let endpoint = format!("http://{}/v1", listener.local_addr().unwrap());
        let app = axum::Router::new()
            .route("/v1/chat/completions", post(complete))
            .with_state(inner.clone());
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                axum::serve(listener, app).await.unwrap();
            });
        });
        Self { endpoint, inner }
    }

    /// Another behaviour from now on, with all counts at zero.
    pub fn set(&self, mood: Mood) {
        let mut inner = self.inner.lock().unwrap();
        inner.mood = mood;
        inner.asked.clear();
        inner.answered.clear();
    }

    /// Refuses questions without this key.
    pub fn require(&self, key: &str) {
        self.inner.lock().unwrap().key = Some(key.to_owned());
    }

    /// Requests so far.
    pub fn requests(&self) -> u32 {
        self.inner.lock().unwrap().asked.values().sum()
    }

    /// Good answers so far, for each question.
    pub fn answered(&self) -> HashMap<String, u32> {
        self.inner.lock().unwrap().answered.clone()
    }

    /// Good answers so far.
    pub fn answers(&self) -> u32 {
        self.inner.lock().unwrap().answered.values().sum()
    }
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn reply(text: &str, finish: &str) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "model": "sums-1",
        "choices": [{ "index": 0, "message": { "role": "assistant", "content": text }, "finish_reason": finish }],
        "usage": { "prompt_tokens": 50, "completion_tokens": text.len(), "total_tokens": 50 + text.len() },
    })
}

/// The model's answer: right in several lengths, wrong, self-revealing, without an answer, or cut off.
fn answer(user: &str, draw: u64) -> Value {
    let problem = user.rsplit("What is ").next().unwrap();
    let sum: u64 = problem
        .split(|it: char| !it.is_ascii_digit())
        .filter_map(|it| it.parse::<u64>().ok())
        .take(2)
        .sum();
    let padding = "Add the ones, then the tens. ".repeat((draw >> 8) as usize % 5);
    match draw % 8 {
        0..=2 => reply(&format!("{padding}So it is \\boxed{{{sum}}}."), "stop"),
        3 => reply(&format!("It is the given answer, \\boxed{{{sum}}}."), "stop"),
        4 | 5 => reply(&format!("{padding}\\boxed{{{}}}", sum + 1), "stop"),
        6 => reply("I do not know.", "stop"),
        _ => reply(&format!("\\boxed{{{sum}}} and then"), "length"),
    }
}

async fn complete(
    State(inner): State<Arc<Mutex<Inner>>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let request: Value = serde_json::from_slice(&body).unwrap();
    let user = request["messages"].as_array().unwrap().last().unwrap()["content"]
        .as_str()
        .unwrap()
        .to_owned();
    let key = format!("{user} seed {}", request["seed"]);
    let (mood, times) = {
        let mut inner = inner.lock().unwrap();
        if let Some(key) = &inner.key
            && headers.get("authorization").map(|it| it.to_str().unwrap())
                != Some(&format!("Bearer {key}"))
        {
            return json_response(
                401,
                r#"{"error":{"message":"Incorrect API key","code":"invalid_api_key"}}"#,
            );
        }
        let mood = inner.mood;
        let times = inner.asked.entry(key.clone()).or_default();
        *times += 1;
        (mood, *times)
    };
    let draw = hash(&key);
    match mood {
        Mood::Always(status, body, header) => {
            let mut it = json_response(status, body);
            if let Some((name, value)) = header {
                it.headers_mut().insert(name, value.parse().unwrap());
            }
            return it;
        }
        Mood::FailsOn(part) if user.contains(part) => return json_response(500, "{}"),
        Mood::Slow(milliseconds) => tokio::time::sleep(Duration::from_millis(milliseconds)).await,
        Mood::Bad if u64::from(times) <= draw % 4 => {
            return misbehave(hash((&key, times)), &user, draw).await;
        }
        Mood::Bad => tokio::time::sleep(Duration::from_millis(draw % 8)).await,
        Mood::Calm | Mood::FailsOn(_) => {}
    }
    *inner.lock().unwrap().answered.entry(key).or_default() += 1;
    json_response(200, &answer(&user, draw).to_string())
}

async fn misbehave(kind: u64, user: &str, draw: u64) -> Response<Body> {
    let with = |status, name: &'static str, value: &str| {
        let mut it = json_response(status, r#"{"error":{"message":"slow down"}}"#);
        it.headers_mut().insert(name, value.parse().unwrap());
        it
    };
    let good = answer(user, draw).to_string();
    match kind % 14 {
        0 => json_response(429, r#"{"error":{"message":"slow down"}}"#),
        1 => with(429, "retry-after", "0.01"),
        2 => with(429, "retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"),
        3 => with(429, "retry-after-ms", "5"),
        4 => json_response(500, "Internal Server Error"),
        5 => with(503, "retry-after", "0"),
        6 => json_response(502, "<html>Bad gateway</html>"),
        7 => {
            // Half of the answer, then the connection breaks.
            let half = Bytes::from(good[..good.len() / 2].to_owned());
            let parts: [Result<Bytes, std::io::Error>; 2] =
                [Ok(half), Err(std::io::Error::other("cut"))];
            Response::new(Body::from_stream(stream::iter(parts)))
        }
        8 => json_response(200, &good[..good.len() - 9]),
        9 => json_response(200, r#"{"choices":[]}"#),
        10 => json_response(200, r#"{"choices":[{"index":0}],"usage":null}"#),
        11 => json_response(200, r#"{"error":{"message":"upstream","code":502}}"#),
        12 => {
            // More than anyone wants to read.
            let piece = Bytes::from(vec![b' '; 1 << 20]);
            let pieces = (0..40).map(move |_| Ok::<_, std::io::Error>(piece.clone()));
            Response::new(Body::from_stream(stream::iter(pieces)))
        }
        _ => {
            // Longer than the client's patience.
            tokio::time::sleep(Duration::from_secs(3)).await;
            json_response(200, &good)
        }
    }
}

fn json_response(status: u16, body: &str) -> Response<Body> {
    Response::builder()
        .status(StatusCode::from_u16(status).unwrap())
        .header("content-type", "application/json")
        .body(Body::from(body.to_owned()))
        .unwrap()
}
