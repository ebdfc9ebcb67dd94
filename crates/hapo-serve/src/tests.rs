//! Engines that fail, which no request can bring about from outside.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hapo_data::TemplateChoice;
use hapo_kernels::Cpu;
use hapo_model::LoadedModel;
use hapo_sampler::{ChatFormat, Engine, Event, KvMemory, choose_template};
use serde_json::{Value, json};

use crate::worker::Step;
use crate::{Served, ServedModel, Settings, serve_with};

type Running = tokio::task::JoinHandle<Result<(), hapo_core::Refusal>>;

async fn start(step: Step<Cpu>) -> (String, Running) {
    let folder = hapo_testing::model_dir("tiny-qwen3");
    let LoadedModel { model, tokenizer, tokenizer_files, .. } =
        hapo_model::load(&folder, Cpu::new(1).unwrap(), |_| 64).unwrap();
    let template =
        choose_template(TemplateChoice::named("none"), "tiny", &tokenizer_files).unwrap();
    let chat_format = ChatFormat::new(tokenizer, template, &model.config().eos).unwrap();
    let settings = Settings {
        name: "tiny".to_owned(),
        max_sequences: 2,
        cache_tokens: 512,
        kv_memory: KvMemory::Auto,
        prefill_tokens: 64,
        max_requests: 8,
        default_max_tokens: 4,
        body_bytes: 1 << 20,
        body_time: Duration::from_secs(5),
        head_time: Duration::from_secs(5),
        write_time: Duration::from_secs(30),
        max_connections: 16,
        names: Vec::new(),
        seed: 1,
        clock: || 0,
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let stop = std::future::pending();
    let served = Served::new(&model, chat_format, settings).unwrap();
    let model = ServedModel { model, new_weights: None };
    let served = tokio::spawn(serve_with(step, model, served, listener, stop));
    (address, served)
}

fn client() -> reqwest::Client {
    // The workspace's client brings no provider of TLS; there is none here.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

async fn ask(client: &reqwest::Client, address: &str) -> (u16, Value) {
    let body = json!({ "prompt": "a", "max_tokens": 2, "temperature": 0 });
    let request = client.post(format!("{address}/v1/completions"));
    let request = request.header("content-type", "application/json").body(body.to_string());
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    (status, serde_json::from_str(&response.text().await.unwrap()).unwrap())
}

async fn health(client: &reqwest::Client, address: &str) -> (u16, Value) {
    let response = client.get(format!("{address}/health")).send().await.unwrap();
    let status = response.status().as_u16();
    (status, serde_json::from_str(&response.text().await.unwrap()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_panics_fails_its_requests_and_is_replaced() {
    fn every_other(engine: &mut Engine<'_, Cpu>) -> Result<Vec<Event>, hapo_core::Refusal> {
        static STEPS: AtomicUsize = AtomicUsize::new(0);
        // A completion of two tokens takes one step: its prompt's token, and another.
        assert!(!STEPS.fetch_add(1, Ordering::Relaxed).is_multiple_of(2), "this step is bad");
        engine.step()
    }
    let (address, served) = start(every_other).await;
    let client = client();
    let mut good = Vec::new();
    for round in 0..8 {
        let (status, answer) = ask(&client, &address).await;
        if round % 2 == 0 {
            assert_eq!(status, 500, "{answer}");
            let message = &answer["error"]["message"];
            assert_eq!(message, "the engine failed: this step is bad");
        } else {
            assert_eq!(status, 200, "{answer}");
            good.push(answer["choices"][0]["text"].clone());
        }
        assert_eq!(health(&client, &address).await.0, 200);
    }
    assert_eq!(good.len(), 4);
    assert!(good.iter().all(|it| *it == good[0]));
    assert!(!served.is_finished());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_working_engine_says_so_and_ends() {
    fn never(_: &mut Engine<'_, Cpu>) -> Result<Vec<Event>, hapo_core::Refusal> {
        panic!("no step is good")
    }
    let (address, served) = start(never).await;
    let client = client();
    for _ in 0..3 {
        assert_eq!(ask(&client, &address).await.0, 500);
    }
    let (status, said) = loop {
        // The thread may need a moment to end after its last answer.
        let it = health(&client, &address).await;
        if it.0 != 200 {
            break it;
        }
    };
    assert_eq!((status, &said["status"]), (503, &json!("failed")));
    assert_eq!(ask(&client, &address).await.0, 503);
    let error = served.await.unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "3 engines failed in a row, the last with: the engine failed: no step is good"
    );
}

/// Finding 5 of the second review of reliability: a scored prompt was read to its end for a client that had gone.
#[tokio::test(flavor = "multi_thread")]
async fn scoring_stops_when_its_client_has_gone() {
    static STEPS: AtomicUsize = AtomicUsize::new(0);
    static HAS_GONE: AtomicBool = AtomicBool::new(false);
    // Each step follows one piece of scoring; the fourth waits for the client to leave.
    fn held(engine: &mut Engine<'_, Cpu>) -> Result<Vec<Event>, hapo_core::Refusal> {
        let steps = STEPS.fetch_add(1, Ordering::SeqCst) + 1;
        while steps == 4 && !HAS_GONE.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        engine.step()
    }
    let (address, _served) = start(held).await;
    let client = client();
    let prompts = vec!["ab"; 40];
    let body = json!({ "prompt": prompts, "echo": true, "max_tokens": 0, "logprobs": 1 });
    let request = client.post(format!("{address}/v1/completions"));
    let request = request.header("content-type", "application/json").body(body.to_string());
    let asked = tokio::spawn(request.send());
    while STEPS.load(Ordering::SeqCst) < 4 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    asked.abort();
    let gone = "hapo_requests_total{endpoint=\"completions\",status=\"499\"} 1";
    loop {
        let metrics = client.get(format!("{address}/metrics")).send().await.unwrap();
        if metrics.text().await.unwrap().contains(gone) {
            break;
        }
    }
    HAS_GONE.store(true, Ordering::SeqCst);
    while health(&client, &address).await.1["waiting"] != 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let steps = STEPS.load(Ordering::SeqCst);
    assert!((4..=6).contains(&steps), "{steps} pieces were scored, 4 before the client left");
}
