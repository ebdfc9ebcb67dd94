//! What a trainer asks of a server: token ids by its own key, log-probabilities as they are sampled from, new weights.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hapo_core::{PromptId, RngStream};
use hapo_data::TemplateChoice;
use hapo_kernels::Cpu;
use hapo_model::folder::{Layout, read_tokenizer_files};
use hapo_model::{Dtype, LoadedModel, Model};
use hapo_sampler::{
    ChatFormat, Decoding, GroupRequest, KvMemory, SampleSettings, Sampled, Truncation,
    choose_template, sample,
};
use hapo_serve::{NewWeights, ServedModel, Settings};
use serde_json::{Value, json};

const COMPLETIONS: &str = "/v1/completions";
const UPDATE: &str = "/update_weights_from_disk";
const PROMPT: [u32; 4] = [5, 9, 40, 7];

fn open(folder: &Path) -> LoadedModel<Cpu> {
    hapo_model::load(folder, Cpu::new(1).unwrap(), |_| 128).unwrap()
}

fn first() -> PathBuf {
    hapo_testing::model_dir("tiny-qwen3")
}

/// A folder of the first model with every weight times `factor`.
fn write_scaled(folder: &Path, factor: f32) {
    let model = open(&first()).model;
    let files = read_tokenizer_files(&first()).unwrap();
    let layout = Layout { dtype: Dtype::F32, shard_bytes: 1 << 30, tokenizer_files: &files };
    hapo_model::folder::write(folder, model.config(), &layout, |spec| {
        Ok(model.tensor(&spec.name)?.iter().map(|it| factor * it).collect())
    })
    .unwrap();
}

/// A server on loopback that takes weights from a folder, if there is one.
async fn start(inside: Option<&Path>) -> (reqwest::Client, String) {
    let LoadedModel { model, tokenizer, tokenizer_files, .. } = open(&first());
    let template = TemplateChoice::named("none");
    let template = choose_template(template, "tiny", &tokenizer_files).unwrap();
    let chat_format = ChatFormat::new(tokenizer, template, &model.config().eos).unwrap();
    let settings = Settings {
        name: "tiny".to_owned(),
        max_sequences: 4,
        cache_tokens: 1024,
        kv_memory: KvMemory::Auto,
        prefill_tokens: 64,
        max_requests: 8,
        default_max_tokens: 4,
        body_bytes: 1 << 20,
        body_time: Duration::from_secs(30),
        head_time: Duration::from_secs(30),
        write_time: Duration::from_secs(30),
        max_connections: 16,
        names: Vec::new(),
        seed: 1,
        clock: || 0,
    };
    let new_weights = inside.map(|inside| NewWeights {
        inside: inside.to_owned(),
        open: Box::new(|folder: &Path| {
            let loaded = hapo_model::load(folder, Cpu::new(1).unwrap(), |_| 128);
            loaded.map(|it| it.model).map_err(|it| it.to_string())
        }),
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let served = ServedModel { model, new_weights };
    let stop = std::future::pending();
    tokio::spawn(hapo_serve::serve(served, chat_format, settings, listener, stop));
    // The workspace's client brings no provider of TLS; there is none here.
    let _ = rustls::crypto::ring::default_provider().install_default();
    (reqwest::Client::builder().no_proxy().build().unwrap(), address)
}

async fn post(client: &reqwest::Client, url: String, body: &Value) -> (u16, Value) {
    let request = client.post(url).header("content-type", "application/json");
    let response = request.body(body.to_string()).send().await.unwrap();
    let status = response.status().as_u16();
    (status, serde_json::from_str(&response.text().await.unwrap()).unwrap())
}

/// Three completions by a trainer's own sampler.
fn sampled(model: &Model<Cpu>, usable_vocab: usize) -> Sampled {
    let settings = SampleSettings {
        decoding: Decoding::at_temperature(0.7, Truncation::NONE).unwrap(),
        stop: &[3, 11],
        max_new_tokens: 12,
        max_sequences: 3,
        kv_memory: KvMemory::Auto,
        usable_vocab,
        seed: 21,
        rng_stream: RngStream::LaterPart(2),
        step: 6,
    };
    let request = GroupRequest::new(PromptId(1 << 60), &PROMPT, 3);
    sample(model, &[request], &settings, None).unwrap().remove(0)
}

/// The request for them.
fn question() -> Value {
    json!({
        "prompt": PROMPT, "n": 3, "max_tokens": 12, "temperature": 0.7, "logprobs": 0,
        "stop_token_ids": [3, 11], "ignore_eos": true, "return_token_ids": true,
        "rng": { "seed": 21, "rng_stream": { "later_part": 2 }, "step": 6, "prompt": 1_u64 << 60 },
    })
}

/// Tokens, log-probabilities and entropies are the sampler's, bit for bit.
fn assert_answer(answer: &Value, folder: &Path) {
    let loaded = open(folder);
    let sampled = sampled(&loaded.model, loaded.tokenizer.vocab_size());
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 3);
    for (choice, (rollout, details)) in choices.iter().zip(sampled.completions()) {
        let numbers = |it: &Value| -> Vec<f32> { serde_json::from_value(it.clone()).unwrap() };
        let tokens: Vec<u32> = serde_json::from_value(choice["token_ids"].clone()).unwrap();
        assert_eq!(tokens, rollout.tokens);
        assert_eq!(numbers(&choice["logprobs"]["token_logprobs"]), rollout.log_probs);
        assert_eq!(numbers(&choice["entropies"]), details.entropies);
        assert_eq!(choice["finish_reason"], if rollout.ended { "stop" } else { "length" });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trainers_key_gives_the_trainers_rollouts_by_any_weights() {
    let folder = tempfile::tempdir().unwrap();
    let (client, address) = start(Some(folder.path())).await;
    let question = question();
    let ask = || post(&client, format!("{address}{COMPLETIONS}"), &question);
    let (status, answer) = ask().await;
    assert_eq!(status, 200, "{answer}");
    assert_answer(&answer, &first());
    assert_eq!(answer.get("weight_version"), None);

    for (version, factor) in [("a-1", 1.25), ("a-2", 0.5)] {
        let new = folder.path().join(version);
        write_scaled(&new, factor);
        // Requests in flight are finished by the weights that they began with.
        let body = json!({ "model_path": new, "weight_version": version, "flush_cache": true });
        let (status, answer) = post(&client, format!("{address}{UPDATE}"), &body).await;
        assert_eq!((status, &answer["success"]), (200, &json!(true)), "{answer}");
        let (_, answer) = ask().await;
        assert_eq!(answer["weight_version"], version);
        assert_answer(&answer, &new);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_is_that_of_the_weights_that_made_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (first(), folder.path().join("new"));
    write_scaled(&new, 1.25);
    let (client, address) = start(Some(folder.path())).await;
    let body = json!({ "model_path": new, "weight_version": "new" });
    let question = question();
    let update = post(&client, format!("{address}{UPDATE}"), &body);
    let asks = (0..6).map(|_| post(&client, format!("{address}{COMPLETIONS}"), &question));
    let (updated, answers) =
        futures_util::future::join(update, futures_util::future::join_all(asks)).await;
    assert_eq!(updated.0, 200);
    for (_, answer) in answers {
        let is_new = answer["weight_version"] == "new";
        assert_answer(&answer, if is_new { &new } else { &old });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn weights_are_taken_from_the_allowed_folder_alone() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_scaled(&other.path().join("new"), 2.0);
    std::os::unix::fs::symlink(other.path().join("new"), folder.path().join("link")).unwrap();
    let (client, closed) = start(None).await;
    let (_, open) = start(Some(folder.path())).await;
    let of = |path: &Path| json!({ "model_path": path, "weight_version": "v" });
    for (address, body, expected, named) in [
        (&closed, of(folder.path()), 403, "--weights-from"),
        (&open, of(&other.path().join("new")), 403, "--weights-from"),
        (&open, of(&folder.path().join("link")), 403, "--weights-from"),
        (&open, of(&folder.path().join("../new")), 403, "--weights-from"),
        (&open, of(folder.path()), 400, "config.json"),
        (&open, json!({ "model_path": folder.path() }), 400, "weight_version"),
        (&open, json!({ "model_path": 5, "weight_version": "v" }), 400, "model_path"),
        (&open, json!({ "load_format": "x" }), 400, "load_format"),
    ] {
        let (status, answer) = post(&client, format!("{address}{UPDATE}"), &body).await;
        let message = answer["error"]["message"].as_str().unwrap();
        assert_eq!(status, expected, "{body}: {message}");
        assert!(message.contains(named), "{body}: {message}");
    }
    // What could not be loaded has left the first weights in place.
    let (_, answer) = post(&client, format!("{open}{COMPLETIONS}"), &question()).await;
    assert_answer(&answer, &first());
}

/// A request for new weights of whose body one byte has come.
fn begin_update(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address.strip_prefix("http://").unwrap()).unwrap();
    let head = format!(
        "POST {UPDATE} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{{"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_no_weights_reads_no_body() {
    let (_, closed) = start(None).await;
    let answer = tokio::task::spawn_blocking(move || {
        let mut stream = begin_update(&closed);
        // Well before the time for a body is over.
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).map(|()| String::from_utf8_lossy(&answer).into_owned())
    });
    assert_eq!(answer.await.unwrap().unwrap(), "HTTP/1.1 403");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_new_weights_takes_the_place_of_a_request() {
    let folder = tempfile::tempdir().unwrap();
    let (client, address) = start(Some(folder.path())).await;
    let ask = async || {
        let body = json!({ "prompt": PROMPT, "max_tokens": 1 });
        post(&client, format!("{address}{COMPLETIONS}"), &body).await.0
    };
    let until = async |expected: u16| {
        for _ in 0..500 {
            if ask().await == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("status {expected} never came");
    };
    // More than there are places: a question may have one for a moment.
    let begun: Vec<TcpStream> = (0..12).map(|_| begin_update(&address)).collect();
    until(429).await;
    drop(begun);
    until(200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_a_trainer_that_do_not_go_together_are_refused() {
    let (client, address) = start(None).await;
    for (field, value) in [
        ("stream", json!(true)),
        ("logprobs", json!(2)),
        ("logprobs", Value::Null),
        ("echo", json!(true)),
        ("rng", json!({ "seed": 1 })),
        ("prompt", json!([[1], [2]])),
        ("return_token_ids", json!("yes")),
    ] {
        let mut body = question();
        body[field] = value;
        let (status, answer) = post(&client, format!("{address}{COMPLETIONS}"), &body).await;
        assert_eq!(status, 400, "{field}: {answer}");
    }
}
