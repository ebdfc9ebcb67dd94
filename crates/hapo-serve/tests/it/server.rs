//! A served tiny model over real HTTP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use hapo_core::{PromptId, RngStream};
use hapo_data::TemplateChoice;
use hapo_kernels::Cpu;
use hapo_model::{LoadedModel, Model};
use hapo_sampler::{
    ChatFormat, Decoding, GroupRequest, KvMemory, SampleSettings, Sampled, Truncation,
    choose_template, sample,
};
use hapo_serve::{ServedModel, Settings};
use reqwest::StatusCode;
use serde_json::{Value, json};

const CONTEXT: usize = 256;

pub(crate) fn folder() -> PathBuf {
    hapo_testing::model_dir("tiny-qwen3")
}

pub(crate) fn load() -> (Model<Cpu>, ChatFormat) {
    let LoadedModel { model, tokenizer, tokenizer_files, .. } =
        hapo_model::load(&folder(), Cpu::new(2).unwrap(), |_| CONTEXT).unwrap();
    let template =
        choose_template(TemplateChoice::named("chat"), "tiny", &tokenizer_files).unwrap();
    let chat_format = ChatFormat::new(tokenizer, template, &model.config().eos).unwrap();
    (model, chat_format)
}

pub(crate) fn settings() -> Settings {
    Settings {
        name: "tiny".to_owned(),
        max_sequences: 8,
        cache_tokens: 4096,
        kv_memory: KvMemory::Auto,
        prefill_tokens: 64,
        max_requests: 64,
        default_max_tokens: 24,
        body_bytes: 1 << 20,
        body_time: Duration::from_secs(30),
        head_time: Duration::from_secs(30),
        write_time: Duration::from_secs(30),
        max_connections: 128,
        names: vec!["gpu-box".to_owned()],
        seed: 11,
        clock: || 1_721_952_000,
    }
}

#[tokio::test]
async fn a_browser_finds_a_call_to_paste_and_the_alias_answers_it() {
    let client = start(settings()).await;
    let page = client.http.get(client.url("/")).send().await.unwrap().text().await.unwrap();
    assert!(page.starts_with("hapo serves tiny (alias default), 256 tokens of context."), "{page}");
    let call = page.lines().find(|it| it.starts_with("curl")).unwrap();
    assert!(call.contains(&client.url(CHAT)), "{call}");
    let (_, body) = call.split_once("-d '").unwrap();
    let body: Value = serde_json::from_str(body.trim_end_matches('\'')).unwrap();
    assert_eq!(body["model"], "default");
    assert_eq!(client.ok(CHAT, &body).await["model"], "tiny");
}

pub(crate) struct Client {
    address: SocketAddr,
    http: reqwest::Client,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    server: tokio::task::JoinHandle<Result<(), hapo_core::Refusal>>,
}

async fn start(settings: Settings) -> Client {
    start_with(load(), settings).await
}

pub(crate) async fn start_with(
    (model, chat_format): (Model<Cpu>, ChatFormat),
    settings: Settings,
) -> Client {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let server = tokio::spawn(async move {
        let stopped = async {
            let _ = stopped.await;
        };
        let served = ServedModel { model, new_weights: None };
        hapo_serve::serve(served, chat_format, settings, listener, stopped).await
    });
    // The workspace's client brings no provider of TLS; there is none here.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client {
        address,
        http: reqwest::Client::builder().no_proxy().build().unwrap(),
        stop: Some(stop),
        server,
    }
}

impl Client {
    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn request(&self, path: &str) -> reqwest::RequestBuilder {
        self.http.post(self.url(path)).header("content-type", "application/json")
    }

    async fn send(&self, path: &str, body: &Value) -> reqwest::Response {
        self.request(path).body(body.to_string()).send().await.unwrap()
    }

    async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        let response = self.send(path, body).await;
        let status = response.status();
        let text = response.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap())
    }

    pub(crate) async fn ok(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.post(path, body).await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    async fn get(&self, path: &str) -> (StatusCode, Value) {
        let response = self.http.get(self.url(path)).send().await.unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap())
    }

    /// The data of a stream's events; the last must be the end mark.
    pub(crate) async fn stream(&self, path: &str, body: &Value) -> Vec<Value> {
        let response = self.send(path, body).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let text = response.text().await.unwrap();
        let mut data: Vec<&str> = text.lines().filter_map(|it| it.strip_prefix("data: ")).collect();
        assert_eq!(data.pop(), Some("[DONE]"));
        data.iter().map(|it| serde_json::from_str(it).unwrap()).collect()
    }
}

const CHAT: &str = "/v1/chat/completions";
pub(crate) const COMPLETIONS: &str = "/v1/completions";

fn chat(text: &str) -> Value {
    json!({ "model": "tiny", "messages": [{ "role": "user", "content": text }] })
}

fn with(mut body: Value, more: Value) -> Value {
    let Value::Object(more) = more else { panic!("expected an object") };
    body.as_object_mut().unwrap().extend(more);
    body
}

fn texts(answer: &Value) -> Vec<String> {
    let choices = answer["choices"].as_array().unwrap();
    choices
        .iter()
        .enumerate()
        .map(|(index, it)| {
            assert_eq!(it["index"], index);
            let text = it["message"]["content"].as_str().or(it["text"].as_str());
            text.unwrap().to_owned()
        })
        .collect()
}

/// The sampler's completions of a prompt.
fn sampled(prompt: &[u32], decoding: Decoding, seed: u64, n: usize, max: usize) -> Sampled {
    let (model, chat_format) = load();
    let request = GroupRequest::new(PromptId(0), prompt, n);
    let settings = SampleSettings {
        decoding,
        stop: &chat_format.stop,
        max_new_tokens: max,
        max_sequences: 3,
        kv_memory: KvMemory::Auto,
        usable_vocab: chat_format.tokenizer.vocab_size(),
        seed,
        rng_stream: RngStream::Generate,
        step: 0,
    };
    sample(&model, &[request], &settings, None).unwrap().remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_the_samplers_for_the_same_seed() {
    let client = start(settings()).await;
    let (_, chat_format) = load();
    let prompt = chat_format.prompt("The sum is").unwrap();
    let decoding = Decoding::Sample {
        temperature: 0.8,
        truncation: Truncation { top_k: 50, top_p: 0.9, min_p: 0.01 },
    };
    let expected = sampled(&prompt, decoding, 5, 4, 20);
    let fields = json!({
        "n": 4, "seed": 5, "max_tokens": 20, "temperature": 0.8, "top_p": 0.9, "top_k": 50,
        "min_p": 0.01, "logprobs": true, "top_logprobs": 3,
    });
    let answer = client.ok(CHAT, &with(chat("The sum is"), fields)).await;
    let expected_texts: Vec<String> =
        expected.completions().map(|(it, _)| chat_format.text(&it.tokens).unwrap()).collect();
    assert_eq!(texts(&answer), expected_texts);
    let mut total = 0;
    let choices = answer["choices"].as_array().unwrap();
    for (choice, (it, details)) in choices.iter().zip(expected.completions()) {
        let reason = if it.ended { "stop" } else { "length" };
        assert_eq!(choice["finish_reason"], reason);
        total += it.tokens.len();
        let told = choice["logprobs"]["content"].as_array().unwrap();
        assert_eq!(told.len(), it.tokens.len() - usize::from(it.ended));
        for (told, expected) in told.iter().zip(&details.log_probs_t1) {
            assert_eq!(told["logprob"].as_f64().unwrap() as f32, *expected);
            let top = told["top_logprobs"].as_array().unwrap();
            assert_eq!(top.len(), 3);
            assert!(top[0]["logprob"].as_f64() >= told["logprob"].as_f64());
        }
    }
    assert_eq!(answer["usage"]["completion_tokens"], total);
    assert_eq!(answer["usage"]["prompt_tokens"], prompt.len());
    assert_eq!(answer["object"], "chat.completion");

    // The other endpoint, by the same tokens and greedily.
    let expected = sampled(&prompt, Decoding::Greedy, 0, 1, 16);
    let body = json!({ "prompt": prompt, "temperature": 0 });
    let answer = client.ok(COMPLETIONS, &body).await;
    assert_eq!(texts(&answer), [chat_format.text(&expected.group.rollouts[0].tokens).unwrap()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_at_once_get_what_each_gets_alone() {
    let client = start(settings()).await;
    let body = |i: usize| {
        let text = "a b c d e f ".repeat(1 + i % 5);
        with(chat(&text), json!({ "seed": i, "n": 1 + i % 3, "max_tokens": 8 + i }))
    };
    let mut alone = Vec::new();
    for i in 0..12 {
        alone.push(texts(&client.ok(CHAT, &body(i)).await));
    }
    let bodies: Vec<Value> = (0..12).map(body).collect();
    let together =
        futures_util::future::join_all(bodies.iter().map(|it| client.ok(CHAT, it))).await;
    let together: Vec<Vec<String>> = together.iter().map(texts).collect();
    assert_eq!(together, alone);
    // Without a seed every request draws for itself.
    let free = chat("a b c");
    assert_ne!(texts(&client.ok(CHAT, &free).await), texts(&client.ok(CHAT, &free).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_joins_to_the_whole_answer() {
    let client = start(settings()).await;
    for path in [CHAT, COMPLETIONS] {
        for stop in [json!(null), json!(["e", "the "])] {
            let fields = json!({
                "n": 3, "seed": 2, "max_tokens": 40, "temperature": 1.5, "stop": stop,
                "logprobs": if path == CHAT { json!(true) } else { json!(1) },
            });
            let start = if path == CHAT {
                chat("Say it")
            } else {
                json!({ "model": "tiny", "prompt": "Say it" })
            };
            let body = with(start, fields);
            let whole = client.ok(path, &body).await;
            let options = json!({ "stream": true, "stream_options": { "include_usage": true } });
            let mut pieces = client.stream(path, &with(body, options)).await;
            let usage = pieces.pop().unwrap();
            assert_eq!(usage["usage"], whole["usage"]);
            assert_eq!(usage["choices"], json!([]));
            let mut joined = vec![String::new(); 3];
            let mut reasons = vec![Value::Null; 3];
            let mut log_probs = vec![Vec::new(); 3];
            for piece in &pieces {
                assert_eq!(piece["usage"], Value::Null);
                let choice = &piece["choices"][0];
                let index = choice["index"].as_u64().unwrap() as usize;
                let text = choice["delta"]["content"].as_str().or(choice["text"].as_str());
                joined[index] += text.unwrap_or_default();
                if !choice["finish_reason"].is_null() {
                    assert!(reasons[index].is_null(), "one end each");
                    reasons[index] = choice["finish_reason"].clone();
                }
                let told = &choice["logprobs"];
                for it in [&told["content"], &told["token_logprobs"]] {
                    log_probs[index].extend(it.as_array().into_iter().flatten().cloned());
                }
            }
            assert_eq!(joined, texts(&whole), "{path} {stop}");
            for (index, choice) in whole["choices"].as_array().unwrap().iter().enumerate() {
                assert_eq!(choice["finish_reason"], reasons[index]);
                let told = &choice["logprobs"];
                let told = told["content"].as_array().or(told["token_logprobs"].as_array());
                assert_eq!(&log_probs[index], told.unwrap());
            }
            if stop.is_null() {
                assert!(joined.concat().contains('e'), "the stop strings would matter");
            } else {
                assert!(joined.iter().all(|it| !it.contains('e')));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_string_is_found_across_tokens() {
    let client = start(settings()).await;
    let (_, chat_format) = load();
    let body = with(chat("Go on"), json!({ "seed": 3, "max_tokens": 60, "temperature": 1.2 }));
    let whole = texts(&client.ok(CHAT, &body).await).remove(0);
    // Three characters that no single token holds.
    let characters: Vec<char> = whole.chars().collect();
    let stop = characters
        .windows(3)
        .map(|it| it.iter().collect::<String>())
        .find(|it| !it.contains('\u{FFFD}') && chat_format.tokenizer.encode(it).unwrap().len() == 3)
        .unwrap();
    let answer = client.ok(CHAT, &with(body, json!({ "stop": stop }))).await;
    assert_eq!(texts(&answer), [whole.split_once(&stop).unwrap().0.to_owned()]);
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_are_refused_by_field() {
    let client = start(settings()).await;
    let check = async |path: &str, body: Value, status: u16, param: Value, message: &str| {
        let (got, answer) = client.post(path, &body).await;
        let error = &answer["error"];
        assert_eq!(got, status, "{answer}");
        assert_eq!(error["message"], message);
        assert_eq!(error["param"], param);
        assert_eq!(error["type"], "invalid_request_error");
    };
    for (field, value, message) in [
        ("temperature", json!(-1), "temperature: expected a number from 0 to 100, got -1"),
        ("temperature", json!("hot"), "temperature: expected a number from 0 to 100, got \"hot\""),
        ("top_p", json!(0), "top_p: expected a number in (0, 1], got 0"),
        ("min_p", json!(2), "min_p: expected a number in [0, 1], got 2"),
        ("top_k", json!(-2), "top_k: expected a whole number from -1, got -2"),
        ("n", json!(0), "n: expected a whole number from 1 to 128, got 0"),
        ("n", json!(1.5), "n: expected a whole number from 1 to 128, got 1.5"),
        ("max_tokens", json!(0), "max_tokens: expected a whole number from 1, got 0"),
        (
            "max_completion_tokens",
            json!(-3),
            "max_completion_tokens: expected a whole number from 1, got -3",
        ),
        ("seed", json!("x"), "seed: expected an integer, got \"x\""),
        (
            "stop",
            json!([""]),
            "stop: expected a string, or a list of at most 16, each of 1 to 1000 bytes, got [\"\"]",
        ),
        (
            "stop",
            json!(5),
            "stop: expected a string, or a list of at most 16, each of 1 to 1000 bytes, got 5",
        ),
        ("top_logprobs", json!(2), "top_logprobs: expected logprobs to be true as well"),
        ("tools", json!([{}]), "tools: not supported, got [{}]"),
        ("presence_penalty", json!(0.5), "presence_penalty: not supported, got 0.5"),
        (
            "response_format",
            json!({"type": "json_object"}),
            "response_format: not supported, got {\"type\":\"json_object\"}",
        ),
        ("min_tokens", json!(3), "min_tokens: not supported, got 3"),
        ("ignore_eos", json!(1), "ignore_eos: expected true or false, got 1"),
        (
            "stop_token_ids",
            json!([-1]),
            "stop_token_ids: expected a list of at most 256 token ids, got [-1]",
        ),
        ("logit_bias", json!({"5": -100}), "logit_bias: not supported, got {\"5\":-100}"),
        ("echo", json!(true), "echo: not supported, got true"),
        ("best_of", json!(1), "best_of: unknown field"),
        ("prompt", json!("a"), "prompt: unknown field"),
        ("temprature", json!(0), "temprature: unknown field"),
        ("guided_choice", json!(["a"]), "guided_choice: not supported, got [\"a\"]"),
        ("prompt_logprobs", json!(1), "prompt_logprobs: not supported, got 1"),
        ("reasoning_effort", json!("high"), "reasoning_effort: not supported, got \"high\""),
        ("messages", json!([]), "messages: expected at least one message, got []"),
        ("messages", json!("hi"), "messages: expected a list of messages, got \"hi\""),
    ] {
        let mut body = chat("a");
        body[field] = value;
        check(CHAT, body, 400, json!(field), message).await;
    }
    for (content, param, message) in [
        (
            json!({"role": "tool", "content": "x"}),
            "messages[0].role",
            "messages[0].role: expected system, user or assistant, got \"tool\"",
        ),
        (
            json!({"role": "user"}),
            "messages[0].content",
            "messages[0].content: expected a text, or a list of parts of type text, got null",
        ),
        (
            json!({"role": "user", "content": [{"type": "image_url"}]}),
            "messages[0].content",
            "messages[0].content: expected a text, or a list of parts of type text, got {\"type\":\"image_url\"}",
        ),
    ] {
        check(CHAT, json!({ "messages": [content] }), 400, json!(param), message).await;
    }
    let neutral = json!({
        "tools": [], "presence_penalty": 0, "logit_bias": {}, "user": "me", "stop": null,
        "response_format": {"type": "text"}, "metadata": {"a": "b"}, "unknown": null, "max_tokens": 1, "min_tokens": 0,
        "ignore_eos": false, "stop_token_ids": [], "skip_special_tokens": true, "length_penalty": 1.0,
        "prompt_logprobs": null, "add_generation_prompt": true, "echo": false,
    });
    client.ok(CHAT, &with(chat("a"), neutral)).await;
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    let greedy = json!({ "temperature": 0 });
    let of_parts = json!({ "messages": [{ "role": "user", "content": parts }] });
    assert_eq!(
        texts(&client.ok(CHAT, &with(of_parts, greedy.clone())).await),
        texts(&client.ok(CHAT, &with(chat("ab"), greedy)).await)
    );

    let long = "a b ".repeat(CONTEXT);
    let (status, answer) = client.post(CHAT, &chat(&long)).await;
    assert_eq!(status, 400);
    assert_eq!(answer["error"]["code"], "context_length_exceeded");
    let (status, answer) =
        client.post(CHAT, &with(chat("a"), json!({ "max_tokens": CONTEXT }))).await;
    assert_eq!(
        (status.as_u16(), &answer["error"]["code"]),
        (400, &json!("context_length_exceeded"))
    );
    for (field, value, message) in [
        ("max_tokens", json!(0), "max_tokens: expected a whole number from 1, got 0"),
        ("best_of", json!(2), "best_of: expected as many as n, got 2"),
        ("suffix", json!("x"), "suffix: not supported, got \"x\""),
        ("echo", json!("yes"), "echo: expected true or false, got \"yes\""),
        ("add_special_tokens", json!(1), "add_special_tokens: expected true or false, got 1"),
        ("messages", json!([]), "messages: unknown field"),
    ] {
        let body = with(json!({ "prompt": "a" }), json!({ field: value }));
        check(COMPLETIONS, body, 400, json!(field), message).await;
    }
    check(
        COMPLETIONS,
        json!({ "prompt": "" }),
        400,
        json!("prompt"),
        "prompt: expected at least one token, got none",
    )
    .await;
    check(
        COMPLETIONS,
        json!({ "prompt": [99_999] }),
        400,
        json!("prompt"),
        "prompt: expected tokens below 384, the size of the vocabulary, got 99999 at position 0",
    )
    .await;
    let expected = "prompt: expected a string, a list of strings, a list of token ids, or a list of such lists, got [1,\"a\"]";
    check(COMPLETIONS, json!({ "prompt": [1, "a"] }), 400, json!("prompt"), expected).await;
    check(
        CHAT,
        with(chat("a"), json!({ "model": "gpt" })),
        404,
        json!("model"),
        "model `gpt` is not served here, expected `tiny`",
    )
    .await;
    check("/v1/embeddings", json!({}), 404, json!(null), "no route POST /v1/embeddings").await;

    let response = client.request(CHAT).body("{").send().await.unwrap();
    assert_eq!(response.status(), 400);
    for length in [(1 << 20) + 1, 8 << 20] {
        let response = client.request(CHAT).body(vec![b' '; length]).send().await.unwrap();
        assert_eq!(response.status(), 413);
    }
    assert_eq!(client.get(CHAT).await.0, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_pages_and_under_other_names_are_refused() {
    let client = start(settings()).await;
    let port = client.address.port();
    let check = async |headers: &[(&str, &str)], status: u16| {
        let mut request = client.http.post(client.url(CHAT));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = with(chat("a"), json!({ "max_tokens": 1 })).to_string();
        let response = request.body(body).send().await.unwrap();
        assert_eq!(response.status(), status, "{headers:?}");
        response.text().await.unwrap()
    };
    let json = ("content-type", "application/json");
    let own = format!("http://127.0.0.1:{port}");
    check(&[json], 200).await;
    check(&[("content-type", "Application/JSON; charset=utf-8")], 200).await;
    check(&[json, ("host", "GPU-box:1")], 200).await;
    check(&[json, ("host", "localhost")], 200).await;
    check(&[json, ("origin", &own)], 200).await;
    for host in ["evil.example", "localhost:80@evil.example", "127.0.0.1.evil.example", ""] {
        let answer = check(&[json, ("host", host)], 403).await;
        assert!(answer.contains("is not called"), "{answer}");
    }
    for origin in ["http://evil.example", "null", "http://127.0.0.1", "http://localhost:3000"] {
        let answer = check(&[json, ("origin", origin)], 403).await;
        assert!(answer.contains("may not use this server"), "{answer}");
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp"] {
        check(&[("content-type", kind)], 415).await;
    }
    check(&[], 415).await;
}

/// The connection's answer to these bytes, until it closes.
async fn raw(client: &Client, bytes: &str) -> String {
    let (address, bytes) = (client.address, bytes.to_owned());
    let talk = move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(bytes.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // A connection may be closed with bytes left unread.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    };
    tokio::task::spawn_blocking(talk).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_says_nothing_loses_its_place() {
    let brief = Duration::from_millis(300);
    let client = start(Settings {
        head_time: brief,
        body_time: brief,
        write_time: Duration::from_secs(30),
        max_connections: 2,
        max_requests: 1,
        ..settings()
    })
    .await;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n";
    let half = format!("{head}content-type: application/json\r\ncontent-length: 99\r\n\r\n{{");
    // Half a head, half a body, nothing at all, and more of them than there are places.
    let all = (0..4).flat_map(|_| [head, &half, ""]).map(|it| raw(&client, it));
    let body = json!({ "prompt": "a", "max_tokens": 1 });
    let patient = async {
        // The only slot may be with half a body for a moment.
        while client.send(COMPLETIONS, &body).await.status() != 200 {}
    };
    let (answers, ()) = tokio::join!(futures_util::future::join_all(all), patient);
    let status = |it: &&String| it.get(9..12) == Some("408") || it.get(9..12) == Some("429");
    // Hyper answers nothing, or 408, to half a head; a body without a slot gets 429.
    assert!(answers.iter().filter(status).count() >= 4, "{answers:?}");
    until_idle(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_is_taken_before_the_body_is_read() {
    let client = start(Settings { max_requests: 1, ..settings() }).await;
    let mut first = TcpStream::connect(client.address).unwrap();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n\
                content-type: application/json\r\ncontent-length: 1000\r\n\r\n{";
    first.write_all(head.as_bytes()).unwrap();
    // It is the first to ask for the place.
    tokio::time::sleep(Duration::from_millis(300)).await;
    loop {
        let status = client.send(CHAT, &with(chat("a"), json!({ "max_tokens": 1 }))).await.status();
        if status == 429 {
            break;
        }
        assert_eq!(status, 200);
    }
    drop(first);
    loop {
        let status = client.send(CHAT, &with(chat("a"), json!({ "max_tokens": 1 }))).await.status();
        if status == 200 {
            break;
        }
        assert_eq!(status, 429);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_and_the_health_are_told() {
    let client = start(settings()).await;
    let (status, models) = client.get("/v1/models").await;
    assert_eq!(status, 200);
    assert_eq!(models["data"][0]["id"], "tiny");
    assert_eq!(models["data"][0]["max_model_len"], CONTEXT);
    assert_eq!(client.get("/v1/models/tiny").await.1["object"], "model");
    assert_eq!(client.get("/v1/models/org/other").await.0, 404);
    let idle = json!({ "status": "ok", "running": 0, "waiting": 0 });
    assert_eq!(client.get("/health").await, (StatusCode::OK, idle));
}

/// Log-probabilities of the tokens of a text but the first, as one forward pass of the model has them.
fn forward(tokens: &[u32]) -> Vec<f32> {
    let (model, _) = load();
    let logits = hapo_model::Tape::new(hapo_model::ActivationCheckpointing::None)
        .logits(&model, tokens)
        .unwrap();
    let rows = logits.chunks_exact(model.config().vocab_size).zip(&tokens[1..]);
    rows.map(|(row, token)| {
        hapo_kernels::log_prob(hapo_kernels::row_stats(row, 1.0), 1.0, row[*token as usize])
    })
    .collect()
}

fn numbers(list: &Value) -> Vec<f32> {
    list.as_array().unwrap().iter().map(|it| it.as_f64().unwrap() as f32).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_echoed_prompt_has_the_log_probabilities_of_a_forward_pass() {
    let client = start(settings()).await;
    let (_, chat_format) = load();
    let cases = hapo_testing::reference::expected("tiny-qwen3");
    let cases: Vec<_> = cases.into_iter().filter(|it| it.tokens.len() + 2 < CONTEXT).collect();
    assert!(cases.iter().map(|it| it.tokens.len()).max() > Some(20));
    let prompts: Vec<&[u32]> = cases.iter().map(|it| &it.tokens[..]).collect();
    let body = json!({
        "model": "tiny", "prompt": prompts, "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": true,
    });
    let answer = client.ok(COMPLETIONS, &body).await;
    let none = client.ok(COMPLETIONS, &with(body.clone(), json!({ "max_tokens": 0 }))).await;
    assert_eq!(none["usage"]["completion_tokens"], 0);
    for (index, case) in cases.iter().enumerate() {
        let n = case.tokens.len();
        let choice = &answer["choices"][index];
        let told = &choice["logprobs"];
        assert!(told["token_logprobs"][0].is_null() && told["top_logprobs"][0].is_null());
        let all = told["token_logprobs"].as_array().unwrap();
        // The prompt's, and the generated token's.
        assert_eq!(all.len(), n + 1);
        let of_prompt = numbers(&json!(all[1..n]));
        assert_eq!(of_prompt, forward(&case.tokens));
        for (ours, recorded) in of_prompt.iter().zip(&case.log_probs) {
            assert!((ours - recorded).abs() < 1e-4, "{ours} {recorded}");
        }
        let rows = case.logits.chunks_exact(case.logits.len() / n).zip(&case.tokens[1..]);
        for (at, (row, token)) in rows.enumerate() {
            let top = told["top_logprobs"][at + 1].as_object().unwrap();
            assert_eq!(top.len(), 1);
            let is_greedy = row.iter().all(|it| *it <= row[*token as usize]);
            assert_eq!(top.values().next() == Some(&all[at + 1]), is_greedy);
        }
        let text = chat_format.tokenizer.decode(&case.tokens).unwrap();
        let generated = chat_format.tokenizer.decode(&case.greedy[..1]).unwrap();
        assert_eq!(choice["text"], text.clone() + &generated);
        assert_eq!(told["tokens"][n], generated);
        let offset = all.iter().zip(told["text_offset"].as_array().unwrap());
        assert!(offset.clone().map(|it| it.1.as_u64()).is_sorted());
        // Without a generated token: the same, as far as it goes.
        let choice = &none["choices"][index];
        assert_eq!(choice["text"], text);
        assert_eq!(choice["finish_reason"], "length");
        assert_eq!(choice["logprobs"]["token_logprobs"], json!(all[..n]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_echo_is_the_prompt_before_every_completion_also_in_a_stream() {
    let client = start(settings()).await;
    for fields in [
        json!({ "logprobs": 2, "max_tokens": 9 }),
        json!({ "logprobs": 2, "max_tokens": 0 }),
        json!({ "logprobs": null, "max_tokens": 9 }),
        json!({ "logprobs": null, "max_tokens": 0 }),
    ] {
        let prompts = json!(["Say it", "Ünd: so"]);
        let body = json!({ "prompt": prompts, "n": 2, "best_of": 2, "seed": 4, "echo": true });
        let body = with(body, fields.clone());
        let whole = client.ok(COMPLETIONS, &body).await;
        let plain = with(body.clone(), json!({ "echo": false }));
        let bare: Vec<String> = match fields["max_tokens"].as_u64() {
            Some(0) => vec![String::new(); 4],
            _ => texts(&client.ok(COMPLETIONS, &plain).await),
        };
        let expected: Vec<String> = bare
            .iter()
            .enumerate()
            .map(|(index, it)| prompts[index / 2].as_str().unwrap().to_owned() + it)
            .collect();
        assert_eq!(texts(&whole), expected);
        let mut joined = vec![String::new(); 4];
        let mut log_probs = vec![Vec::new(); 4];
        for piece in client.stream(COMPLETIONS, &with(body, json!({ "stream": true }))).await {
            let choice = &piece["choices"][0];
            let index = choice["index"].as_u64().unwrap() as usize;
            joined[index] += choice["text"].as_str().unwrap();
            let told = choice["logprobs"]["token_logprobs"].as_array();
            log_probs[index].extend(told.into_iter().flatten().cloned());
        }
        assert_eq!(joined, expected);
        for (index, it) in log_probs.into_iter().enumerate() {
            let told = &whole["choices"][index]["logprobs"]["token_logprobs"];
            assert_eq!(it, told.as_array().cloned().unwrap_or_default());
        }
    }
    let (status, answer) =
        client.post(COMPLETIONS, &json!({ "prompt": [9999], "echo": true, "max_tokens": 0 })).await;
    assert_eq!(
        (status.as_u16(), &answer["error"]["message"]),
        (400, &json!("token 9999 at row 0: the vocabulary has 384"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_tokens_are_those_of_the_model_and_of_the_request() {
    let client = start(settings()).await;
    let (_, chat_format) = load();
    let body = json!({ "prompt": "Go on", "seed": 3, "max_tokens": 60, "temperature": 1.2 });
    let free = with(body.clone(), json!({ "ignore_eos": true, "logprobs": 0 }));
    let answer = client.ok(COMPLETIONS, &free).await;
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["usage"]["completion_tokens"], 60);
    let tokens = answer["choices"][0]["logprobs"]["tokens"].as_array().unwrap().clone();
    assert_eq!(tokens.len(), 60);
    // The first token that is one character of its own and comes late.
    let at = (10..60)
        .find(|at| {
            let text = tokens[*at].as_str().unwrap();
            text.chars().all(|it| it.is_ascii_alphanumeric())
                && !tokens[..*at].contains(&tokens[*at])
        })
        .unwrap();
    let id = chat_format.tokenizer.encode(tokens[at].as_str().unwrap()).unwrap();
    let stopped = with(free, json!({ "stop_token_ids": id }));
    let answer = client.ok(COMPLETIONS, &stopped).await;
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(answer["usage"]["completion_tokens"], at + 1);
    assert_eq!(answer["choices"][0]["logprobs"]["tokens"], json!(tokens[..=at]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tokenizer_answers() {
    let client = start(settings()).await;
    let (_, chat_format) = load();
    let ids = chat_format.tokenizer.encode("The sum is").unwrap();
    let body = json!({ "model": "tiny", "prompt": "The sum is", "add_special_tokens": false });
    let answer = client.ok("/tokenize", &body).await;
    let expected =
        json!({ "count": ids.len(), "max_model_len": CONTEXT, "tokens": ids, "token_strs": null });
    assert_eq!(answer, expected);
    let strings = with(body, json!({ "return_token_strs": true }));
    let answer = client.ok("/tokenize", &strings).await;
    assert_eq!(answer["token_strs"][0], "T");
    let answer = client.ok("/tokenize", &chat("The sum is")).await;
    assert_eq!(answer["tokens"], json!(chat_format.prompt("The sum is").unwrap()));
    let answer = client.ok("/detokenize", &json!({ "tokens": ids })).await;
    assert_eq!(answer, json!({ "prompt": "The sum is" }));
    for (path, body, message) in [
        ("/tokenize", json!({}), "prompt: expected a string, or messages in its place, got null"),
        (
            "/tokenize",
            json!({ "prompt": "a", "add_special_tokens": 1 }),
            "add_special_tokens: expected true or false, got 1",
        ),
        ("/tokenize", json!({ "prompt": "a", "x": 1 }), "x: unknown field"),
        (
            "/detokenize",
            json!({ "tokens": "a" }),
            "tokens: expected a list of token ids, got \"a\"",
        ),
    ] {
        let (status, answer) = client.post(path, &body).await;
        assert_eq!((status.as_u16(), &answer["error"]["message"]), (400, &json!(message)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_requests_tokens_and_seconds() {
    let client = start(settings()).await;
    let body = json!({ "prompt": [5, 6, 7], "n": 2, "max_tokens": 4, "ignore_eos": true });
    client.ok(COMPLETIONS, &body).await;
    client.stream(COMPLETIONS, &with(body, json!({ "stream": true }))).await;
    assert_eq!(client.post(CHAT, &json!({ "n": 0 })).await.0, 400);
    until_idle(&client).await;
    // A stream is counted when its connection is done with it.
    let text = loop {
        let response = client.http.get(client.url("/metrics")).send().await.unwrap();
        let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
        assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
        let text = response.text().await.unwrap();
        if text.contains("hapo_request_seconds_count{endpoint=\"completions\"} 2\n") {
            break text;
        }
    };
    for line in [
        "# TYPE hapo_requests_total counter",
        "hapo_requests_total{endpoint=\"chat/completions\",status=\"400\"} 1",
        "hapo_requests_total{endpoint=\"completions\",status=\"200\"} 2",
        "hapo_prompt_tokens_total 6",
        "hapo_completion_tokens_total 16",
        "hapo_sequences_running 0",
        "hapo_sequences_waiting 0",
        "hapo_up 1",
        "# TYPE hapo_request_seconds histogram",
        "hapo_request_seconds_bucket{endpoint=\"completions\",le=\"+Inf\"} 2",
    ] {
        assert!(text.lines().any(|it| it == line), "{line}\n{text}");
    }
    let sum = text.lines().find(|it| it.starts_with("hapo_request_seconds_sum{endpoint=\"comp"));
    let seconds: f64 = sum.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    assert!(seconds > 0.0 && seconds < 60.0);
}

/// A long request whose client goes away after the first bytes, once it is taken.
async fn begin_and_leave(client: &Client) {
    let fields = json!({
        "n": 16, "temperature": 100, "max_tokens": 200, "stream": true, "logprobs": true,
    });
    let body = with(chat("a"), fields);
    let mut response = until_taken(client, &body).await;
    assert!(response.chunk().await.unwrap().is_some());
}

/// Asks until there is room: a request's is free when its last part is over, which may be after its answer.
async fn until_taken(client: &Client, body: &Value) -> reqwest::Response {
    loop {
        let response = client.send(CHAT, body).await;
        if response.status() == 200 {
            return response;
        }
        assert_eq!(response.status(), 429);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn until_idle(client: &Client) {
    loop {
        let (_, health) = client.get("/health").await;
        if health["running"] == 0 && health["waiting"] == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_gives_its_places_back() {
    let client = start(Settings { max_requests: 1, ..settings() }).await;
    let full = {
        let fields = json!({ "n": 16, "max_tokens": 200, "temperature": 100, "stream": true });
        let mut first = client.send(CHAT, &with(chat("a"), fields)).await;
        assert!(first.chunk().await.unwrap().is_some());
        // Its completions outnumber the places, so it is still there.
        let second = client.send(CHAT, &chat("b")).await;
        (second.status(), second.headers().get("retry-after").cloned())
    };
    assert_eq!(full.0, 429);
    assert_eq!(full.1.unwrap(), "1");
    until_idle(&client).await;
    for _ in 0..3 {
        until_taken(&client, &with(chat("b"), json!({ "max_tokens": 1 }))).await;
        until_idle(&client).await;
        begin_and_leave(&client).await;
        until_idle(&client).await;
    }
}

/// Old clients send a line end behind a body, others the next request.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_bytes_behind_gives_its_places_back() {
    let client = start(Settings { max_requests: 1, ..settings() }).await;
    let body =
        with(chat("a"), json!({ "n": 16, "max_tokens": 200, "temperature": 100 })).to_string();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    for behind in ["\r\n".to_owned(), "x".repeat(1 << 20)] {
        let (address, bytes) = (client.address, format!("{head}{body}{behind}"));
        let leave = move || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_nonblocking(false).unwrap();
            stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
            // The server takes only so much before it answers.
            let _ = stream.write_all(bytes.as_bytes());
            std::thread::sleep(Duration::from_millis(100));
        };
        tokio::task::spawn_blocking(leave).await.unwrap();
        tokio::time::timeout(Duration::from_secs(5), until_idle(&client)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_say_two_things_are_refused() {
    let client = start(settings()).await;
    let body = chat("a").to_string();
    let post = |first: &str, headers: &str, body: &str| {
        format!(
            "POST {first} HTTP/1.1\r\nConnection: close\r\nContent-Type: application/json\r\n{headers}\r\n{body}"
        )
    };
    let whole = format!("Content-Length: {}\r\n", body.len());
    let cases = [
        (post(CHAT, &format!("Host: localhost\r\nHost: evil.example\r\n{whole}"), &body), "400"),
        (
            post(
                &format!("http://evil.example{CHAT}"),
                &format!("Host: localhost\r\n{whole}"),
                &body,
            ),
            "403",
        ),
        (
            post(CHAT, &format!("Host: localhost\r\nContent-Encoding: gzip\r\n{whole}"), &body),
            "415",
        ),
        (post(CHAT, "Host: localhost\r\nTransfer-Encoding: chunked\r\n", "zz\r\n"), "400"),
        (post(CHAT, "Host: localhost\r\nContent-Length: 9223372036854775807\r\n", ""), "413"),
        (
            post(
                "/detokenize",
                "Host: localhost\r\nContent-Length: 2011\r\n",
                &format!("{{\"tokens\":[{}1]}}", "1,".repeat(999)),
            ),
            "400",
        ),
    ];
    for (request, status) in cases {
        let answer = raw(&client, &request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_stopped_finishes_what_is_under_way() {
    let mut client = start(settings()).await;
    let body = with(chat("a"), json!({ "n": 8, "max_tokens": 100, "seed": 1, "stream": true }));
    let mut response = client.send(CHAT, &body).await;
    let mut text = response.chunk().await.unwrap().unwrap().to_vec();
    client.stop.take().unwrap().send(()).unwrap();
    while let Some(chunk) = response.chunk().await.unwrap() {
        text.extend_from_slice(&chunk);
    }
    assert!(text.ends_with(b"data: [DONE]\n\n"));
    client.server.await.unwrap().unwrap();
    assert!(client.http.get(format!("http://{}/health", client.address)).send().await.is_err());
}

/// Bodies within the limit of their size whose answers, or whose work, would be thousands of times as large.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_multiply_are_refused_with_their_field() {
    let client = start(settings()).await;
    let prompt: Vec<u32> = (0..200).map(|it| it % 8 + 1).collect();
    let prompts = vec![prompt.clone(); 8];
    let long = "1+".repeat(400_000);
    for (path, body, param) in [
        (
            COMPLETIONS,
            json!({ "prompt": prompts, "echo": true, "max_tokens": 0, "n": 128, "logprobs": 20 }),
            "logprobs",
        ),
        (
            COMPLETIONS,
            json!({ "prompt": prompts, "max_tokens": 56, "n": 128, "logprobs": 20 }),
            "logprobs",
        ),
        (
            COMPLETIONS,
            json!({ "prompt": vec!["<|im_start|>".repeat(200); 256], "echo": true, "max_tokens": 0, "n": 128 }),
            "echo",
        ),
        (COMPLETIONS, json!({ "prompt": long, "max_tokens": 1 }), "prompt"),
        ("/tokenize", json!({ "prompt": long }), "prompt"),
        (CHAT, chat(&long), "messages"),
        (COMPLETIONS, json!({ "prompt": "1", "stop_token_ids": vec![7; 257] }), "stop_token_ids"),
        (COMPLETIONS, json!({ "prompt": "1", "stop": "1".repeat(1001) }), "stop"),
    ] {
        let (status, answer) = client.post(path, &body).await;
        assert_eq!(status, 400, "{param}: {answer}");
        assert_eq!(answer["error"]["param"], param, "{answer}");
    }
    let twice = client.request(COMPLETIONS).body("{\"prompt\":\"a\",\"prompt\":\"1\"}");
    let twice = twice.send().await.unwrap();
    assert_eq!(twice.status(), 400);
    assert!(twice.text().await.unwrap().contains("the field `prompt` comes twice"));
    let body = json!({ "prompt": prompt, "echo": true, "max_tokens": 0, "n": 2, "logprobs": 20 });
    assert_eq!(client.ok(COMPLETIONS, &body).await["choices"].as_array().unwrap().len(), 2);
}

/// Connections whose client sends requests and reads no answer.
fn deaf(address: SocketAddr, n: usize) -> Vec<TcpStream> {
    let request = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(64);
    let mut streams = Vec::new();
    for _ in 0..n {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        while stream.write_all(&request).is_ok() {}
        streams.push(stream);
    }
    streams
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_holds_nobody_up() {
    let brief = Duration::from_millis(500);
    let mut client = start(Settings { max_connections: 2, write_time: brief, ..settings() }).await;
    let held = deaf(client.address, 2);
    // They lose their places.
    let health = tokio::time::timeout(Duration::from_secs(20), client.get("/health")).await;
    assert_eq!(health.unwrap().0, 200);
    drop(held);
    // When the server goes down they have a second, whatever the limit.
    let mut other = start(settings()).await;
    let held = deaf(other.address, 3);
    for it in [&mut client, &mut other] {
        it.stop.take().unwrap().send(()).unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(20), &mut it.server).await;
        ended.unwrap().unwrap().unwrap();
    }
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_never_comes_does_not_keep_the_server_up() {
    let mut client = start(settings()).await;
    let mut stream = TcpStream::connect(client.address).unwrap();
    let head = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
    stream.write_all(head.as_bytes()).unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    client.stop.take().unwrap().send(()).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(10), &mut client.server).await;
    ended.unwrap().unwrap().unwrap();
}
