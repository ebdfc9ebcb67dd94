//! D41: rollouts over HTTP from a small server of ours that speaks as vLLM's and `SGLang`'s do, over a real model. Neither
//! of them runs in these tests; `hapo serve` itself is asked in hapo-cli's `rollouts.rs`.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use hapo_core::{PromptId, RngStream};
use hapo_kernels::Cpu;
use hapo_model::LoadedModel;
use hapo_sampler::{
    Decoding, Details, FinishReason, GroupRequest, KvMemory, SampleSettings, Truncation, sample,
};
use hapo_train::{
    Metrics, Observer, Overrides, Recipe, Result, ResumePolicy, Run, RunPlan, is_clock, open_model,
    replay_run, train as train_run,
};
use serde_json::{Value, json};

const CONTEXT: usize = 256;

/// How the server departs from the trainer.
#[derive(Clone, Copy, Default)]
struct Odd {
    /// Log-probabilities are those at temperature 1.
    raw: bool,
    /// This much is added to each log-probability.
    shift: f32,
    /// The question, from 1, before which it is started again, without its weights.
    restart_at: usize,
    /// The last completion of every group is broken off.
    aborts: bool,
    /// From this question on, from 1, every completion is.
    dies_at: usize,
    /// One token more than asked for.
    is_long: bool,
}

#[derive(Default)]
struct State {
    odd: Odd,
    loaded: Option<LoadedModel<Cpu>>,
    version: String,
    /// Paths of all calls, with the names of weights in them.
    calls: Vec<String>,
    questions: usize,
}

#[derive(Clone)]
struct Server {
    address: String,
    state: Arc<Mutex<State>>,
}

impl Server {
    fn start(odd: Odd) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State { odd, ..State::default() }));
        let server = Self { address, state };
        let of_all = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let server = of_all.clone();
                std::thread::spawn(move || server.converse(&stream.unwrap()));
            }
        });
        server
    }

    fn converse(&self, stream: &TcpStream) {
        let (mut reader, mut writer) = (BufReader::new(stream), stream);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let path = line.split(' ').nth(1).unwrap().to_owned();
            let mut length = 0;
            while line != "\r\n" {
                line.clear();
                reader.read_line(&mut line).unwrap();
                if let Some(it) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = it.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let (status, answer) = self.answer(&path, &serde_json::from_slice(&body).unwrap());
            write!(
                writer,
                "HTTP/1.1 {status} .\r\nContent-Length: {}\r\n\r\n{answer}",
                answer.len()
            )
            .unwrap();
        }
    }

    fn answer(&self, path: &str, body: &Value) -> (u16, String) {
        let state = &mut *self.state.lock().unwrap();
        let name = |field: &str| body[field].as_str().unwrap_or_default().to_owned();
        state.calls.push(format!("{path} {}{}", name("lora_name"), name("weight_version")));
        match path {
            "/collective_rpc" => {
                assert_eq!(body["method"], "reload_weights");
                state.load(body["kwargs"]["weights_path"].as_str().unwrap());
            }
            "/update_weights_from_disk" => state.load(&name("model_path")),
            "/v1/load_lora_adapter" | "/load_lora_adapter" => {
                state.load(&name("lora_path"));
                state.version = name("lora_name");
            }
            "/v1/unload_lora_adapter" | "/unload_lora_adapter" => return (404, "{}".to_owned()),
            "/reset_prefix_cache" => {}
            "/v1/completions" | "/generate" => return state.completions(path, body),
            other => panic!("{other}"),
        }
        if path == "/update_weights_from_disk" {
            state.version = name("weight_version");
        }
        (200, String::new())
    }
}

impl State {
    fn load(&mut self, folder: &str) {
        let folder = Path::new(folder);
        let path = folder.display().to_string();
        let is_adapter = folder.join("adapter_config.json").exists();
        let whole = if is_adapter { "builtin:base" } else { &path };
        let mut loaded = open_model(whole, CONTEXT, 1).unwrap();
        if is_adapter {
            let adapter = hapo_model::folder::open_adapter(folder).unwrap();
            adapter.add_to(&mut loaded.model, &loaded.fingerprint).unwrap();
        }
        self.loaded = Some(loaded);
    }

    fn completions(&mut self, path: &str, body: &Value) -> (u16, String) {
        self.questions += 1;
        if self.questions == self.odd.restart_at {
            (self.loaded, self.version) = (None, "default".to_owned());
        }
        let of_sglang = path == "/generate";
        let asks = if of_sglang { &body["sampling_params"] } else { body };
        let wanted = if of_sglang { &body["lora_path"] } else { &body["model"] };
        if wanted.as_str().is_some_and(|it| it != self.version) {
            return (404, json!({ "error": "no such model" }).to_string());
        }
        let ids = |it: &Value| -> Vec<u32> { serde_json::from_value(it.clone()).unwrap() };
        let number = |it: &Value| it.as_u64().unwrap() as usize;
        let base = || open_model("builtin:base", CONTEXT, 1).unwrap();
        let loaded = self.loaded.get_or_insert_with(base);
        let temperature = asks["temperature"].as_f64().unwrap() as f32;
        let top_k = if of_sglang { -1 } else { 0 };
        assert_eq!((&asks["top_p"], &asks["top_k"]), (&json!(1.0), &json!(top_k)));
        let settings = SampleSettings {
            decoding: Decoding::at_temperature(temperature, Truncation::NONE).unwrap(),
            stop: &ids(&asks["stop_token_ids"]),
            max_new_tokens: number(&asks[if of_sglang { "max_new_tokens" } else { "max_tokens" }])
                + usize::from(self.odd.is_long),
            max_sequences: 64,
            kv_memory: KvMemory::Auto,
            usable_vocab: loaded.tokenizer.vocab_size(),
            seed: asks["seed"].as_u64().unwrap_or(5),
            rng_stream: RngStream::Generate,
            step: 0,
        };
        let prompt = ids(&body[if of_sglang { "input_ids" } else { "prompt" }]);
        let n = number(&asks["n"]);
        let request =
            GroupRequest::new(PromptId(prompt.iter().map(|it| u64::from(*it)).sum()), &prompt, n);
        let sampled = sample(&loaded.model, &[request], &settings, None).unwrap().remove(0);
        let reason = |index: usize, details: &Details| match details.finish {
            _ if self.odd.aborts && index + 1 == n => "abort",
            _ if (1..=self.questions).contains(&self.odd.dies_at) => "abort",
            FinishReason::Length => "length",
            _ => "stop",
        };
        let choices = sampled.completions().enumerate().map(|(index, (rollout, details))| {
            let log_probs = if self.odd.raw { &details.log_probs_t1 } else { &rollout.log_probs };
            let log_probs: Vec<f32> = log_probs.iter().map(|it| it + self.odd.shift).collect();
            let finish = reason(index, details);
            if of_sglang {
                let tokens = log_probs.iter().zip(&rollout.tokens);
                let tokens: Vec<_> = tokens.map(|(it, token)| json!([it, token, null])).collect();
                return json!({ "output_ids": rollout.tokens, "meta_info": {
                    "output_token_logprobs": tokens, "finish_reason": { "type": finish },
                    "weight_version": self.version,
                }});
            }
            json!({
                "index": index, "text": "", "token_ids": rollout.tokens, "finish_reason": finish,
                "logprobs": { "token_logprobs": log_probs },
            })
        });
        // The order of choices is nobody's promise.
        let mut choices: Vec<Value> = choices.collect();
        choices.reverse();
        let answer = match (of_sglang, choices.len()) {
            (true, 1) => choices[0].clone(),
            (true, _) => Value::from(choices),
            (false, _) => {
                json!({ "model": body["model"].as_str().unwrap_or("base"), "choices": choices })
            }
        };
        (200, answer.to_string())
    }
}

const GRPO: &str = "method = \"grpo\"\nsteps = 2\nmodel.path = \"builtin:base\"\n\
     data = { train = \"builtin\", prompts = 8, levels = [\"multiply:2\"], max_prompt_tokens = 32 }\n\
     sampling.group_size = 4\nsampling.prompts_per_step = 4\nsampling.max_new_tokens = 48\n\
     optim.lr = 1e-4\n";

fn recipe(text: &str) -> Recipe {
    Recipe::parse_stages(text, "test", "test", &Overrides::default()).unwrap().remove(0)
}

/// Two steps by a server.
fn train(server: &Server, engine: &str, more: &str) -> Result<Vec<Metrics>> {
    let folder = tempfile::tempdir().unwrap();
    let (address, weights) = (&server.address, folder.path().display());
    let text = format!(
        "{GRPO}{more}\n[rollouts]\nserver = \"{address}\"\nengine = \"{engine}\"\nweights = \"{weights}\"\n"
    );
    let mut run = Run::new(&RunPlan::settle(&recipe(&text)).unwrap(), 1).unwrap();
    let steps = (0..2).map(|_| run.step()).collect::<Result<Vec<_>>>()?;
    let entries = || std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(entries(), 1, "the weights at hand, and no older ones");
    drop(run);
    assert_eq!(entries(), 0);
    Ok(steps)
}

#[test]
fn a_step_without_a_group_and_answers_that_cannot_be_end_the_run() {
    let refused = |odd: Odd| train(&Server::start(odd), "vllm", "").unwrap_err();
    // The probe is the first question.
    let died = refused(Odd { dies_at: 3, ..Odd::default() });
    assert!(died.to_string().contains("no group has two whole completions"), "{died}");
    assert!(!died.is_bad_input());
    for odd in [Odd { shift: 40.0, ..Odd::default() }, Odd { is_long: true, ..Odd::default() }] {
        let refusal = refused(odd).to_string();
        assert!(refusal.contains("tokens and log-probabilities below 0, got "), "{refusal}");
    }
}

/// A folder of weights as a process leaves it that is killed, and the lock that it held.
fn left_behind(weights: &std::path::Path, process: &str) -> std::fs::File {
    let folder = weights.join(format!("hapo-{process}"));
    std::fs::create_dir_all(folder.join(format!("hapo-{process}-3"))).unwrap();
    std::fs::File::create(folder.join("lock")).unwrap()
}

#[test]
fn weights_of_a_killed_trainer_go_when_the_next_one_starts() {
    let folder = tempfile::tempdir().unwrap();
    drop(left_behind(folder.path(), "killed"));
    let alive = left_behind(folder.path(), "alive");
    alive.lock().unwrap();
    std::fs::create_dir(folder.path().join("mine")).unwrap();
    let text = format!(
        "{GRPO}\n[rollouts]\nserver = \"http://127.0.0.1:9\"\nengine = \"sglang\"\nweights = \"{}\"\n",
        folder.path().display()
    );
    let run = Run::new(&RunPlan::settle(&recipe(&text)).unwrap(), 1).unwrap();
    let names = || -> BTreeSet<String> {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect()
    };
    let kept = BTreeSet::from(["hapo-alive".to_owned(), "mine".to_owned()]);
    assert!(names().is_superset(&kept) && names().len() == 3, "{:?}", names());
    drop(run);
    assert_eq!(names(), kept);
}

fn of(step: &Metrics, name: &str) -> f64 {
    step.get(name).unwrap_or_else(|| panic!("{name}"))
}

/// Every number but those of the clock, in bits.
fn numbers(steps: &[Metrics]) -> Vec<(&str, u64)> {
    let all = steps.iter().flat_map(Metrics::iter);
    let all = all.filter(|it| !is_clock(it.0));
    all.map(|it| (it.0, it.1.to_bits())).collect()
}

/// Paths of the calls without the names of weights, and how many different names there are.
fn calls(server: &Server) -> (Vec<String>, usize) {
    let state = server.state.lock().unwrap();
    let pairs = state.calls.iter().map(|it| it.split_once(' ').unwrap());
    let names: BTreeSet<&str> = pairs.clone().map(|it| it.1).filter(|it| !it.is_empty()).collect();
    (pairs.map(|it| it.0.to_owned()).collect(), names.len())
}

/// The recorded numbers of an engine that computes as the trainer are the trainer's own, so every weight is 1.
fn assert_no_mismatch(steps: &[Metrics]) {
    for it in steps {
        assert_eq!((of(it, "sampler/logprob_gap_max"), of(it, "sampler/kl")), (0.0, 0.0));
        assert_eq!((of(it, "sampler/effective"), of(it, "sampler/bounded")), (1.0, 0.0));
        assert!(of(it, "policy/entropy") > 0.0 && of(it, "policy/ratio_max") == 1.0);
    }
}

#[test]
fn d41_vllm_gets_whole_weights_before_every_batch() {
    let server = Server::start(Odd::default());
    let steps = train(&server, "vllm", "sampling.temperature = 0.8").unwrap();
    assert_no_mismatch(&steps);
    assert!(steps.iter().all(|it| of(it, "grad_norm") > 0.0));
    let (calls, _) = calls(&server);
    let news = ["/collective_rpc", "/reset_prefix_cache"];
    let asked = ["/v1/completions"; 4];
    // The probe is one question more.
    assert_eq!(calls, [&news[..], &asked[..1], &asked, &news, &asked].concat());
}

#[test]
fn d41_an_adapter_is_a_model_of_its_own_in_vllm_and_a_path_in_sglang() {
    for (engine, unload, load, ask) in [
        ("vllm", "/v1/unload_lora_adapter", "/v1/load_lora_adapter", "/v1/completions"),
        ("sglang", "/unload_lora_adapter", "/load_lora_adapter", "/generate"),
    ] {
        let server = Server::start(Odd::default());
        let steps = train(&server, engine, "lora = { rank = 4, alpha = 8.0 }").unwrap();
        assert_no_mismatch(&steps);
        let (calls, names) = calls(&server);
        let asked = [ask; 5];
        let (first, second) = ([unload, load], [unload, unload, load]);
        assert_eq!(calls, [&first[..], &asked, &second, &asked[..4]].concat(), "{engine}");
        assert_eq!(names, 2);
    }
}

/// A server that comes back without its weights is told of them again, and what it did in between does not count.
#[test]
fn d41_a_server_that_lost_its_weights_gets_them_again() {
    for (engine, more) in [("sglang", ""), ("vllm", "lora = { rank = 4, alpha = 8.0 }")] {
        let calm = train(&Server::start(Odd::default()), engine, more).unwrap();
        let server = Server::start(Odd { restart_at: 8, ..Odd::default() });
        let broken = train(&server, engine, more).unwrap();
        assert_eq!(numbers(&broken), numbers(&calm), "{engine}");
        let (calls, _) = calls(&server);
        let loads = calls.iter().filter(|it| it.ends_with("load_lora_adapter"));
        let loads = loads.filter(|it| !it.contains("unload")).count();
        let updates = calls.iter().filter(|it| it.starts_with("/update")).count();
        assert_eq!(loads + updates, 3, "{engine}: two versions, one of them twice");
    }
}

#[test]
fn d41_log_probabilities_before_the_temperature_are_refused() {
    for engine in ["vllm", "sglang"] {
        let server = Server::start(Odd { raw: true, ..Odd::default() });
        let error = train(&server, engine, "").unwrap_err().to_string();
        assert!(error.contains("before the temperature"), "{error}");
    }
}

/// By hand: each recorded number is 0.1 below the trainer's, so w = e^0.1 for every token; at a ratio of 1 the policy's
/// loss is that times the one without a shift, and of the batch nothing is lost.
#[test]
fn d41_a_known_shift_gives_its_weight() {
    let plain = train(&Server::start(Odd::default()), "vllm", "").unwrap();
    let shifted = Server::start(Odd { shift: -0.1, ..Odd::default() });
    let shifted = train(&shifted, "vllm", "").unwrap();
    let (plain, shifted) = (&plain[0], &shifted[0]);
    for name in ["sampler/logprob_gap_mean", "sampler/logprob_gap_max"] {
        assert!((of(shifted, name) - 0.1).abs() < 1e-5, "{name}");
    }
    assert!((of(shifted, "sampler/kl") - (0.1_f64.exp() - 1.1)).abs() < 1e-5);
    assert!((of(shifted, "sampler/effective") - 1.0).abs() < 1e-6);
    assert_eq!(of(shifted, "policy/ratio_max"), 1.0);
    let factor = of(shifted, "grad_norm") / of(plain, "grad_norm");
    assert!((factor - 0.1_f64.exp()).abs() < 1e-5, "{factor}");
}

#[test]
fn d6_a_completion_that_was_broken_off_is_lost() {
    let server = Server::start(Odd { aborts: true, ..Odd::default() });
    for it in &train(&server, "sglang", "").unwrap() {
        let verdicts = ["verify/correct", "verify/wrong", "verify/unparsable"];
        assert_eq!(verdicts.map(|name| of(it, name)).iter().sum::<f64>(), 12.0, "3 of each 4");
    }
}

/// Our own sampler with a correction: no number and no weight of the run changes by a bit, except that the gap is
/// measured over all tokens; nor with masks and several updates of a batch.
#[test]
fn d41_our_own_sampler_corrected_keeps_its_bits() {
    if hapo_testing::slow() {
        return;
    }
    let run = |more: &str| {
        let mut run =
            Run::new(&RunPlan::settle(&recipe(&format!("{GRPO}{more}"))).unwrap(), 1).unwrap();
        (0..2).map(|_| run.step().unwrap()).collect::<Vec<_>>()
    };
    let updates = "loss.entropy_coef = 0.01\noptim.mini_batch_prompts = 2\noptim.passes = 2\n";
    let mut plain = run(updates);
    for it in &mut plain {
        it.retain(|name| !name.starts_with("sampler/"));
    }
    for kind in ["token-truncate", "token-mask", "sequence-truncate", "sequence-mask"] {
        let mut corrected = run(&format!("{updates}rollouts.correction = \"{kind}\"\n"));
        assert!(corrected.iter().all(|it| of(it, "sampler/effective") == 1.0));
        for it in &mut corrected {
            it.retain(|name| !name.starts_with("sampler/"));
        }
        assert_eq!(numbers(&corrected), numbers(&plain), "{kind}");
    }
}

/// Keeps the metrics of every step.
#[derive(Default)]
struct StepLog(Vec<Metrics>);

impl Observer for StepLog {
    fn step(&mut self, _: u64, metrics: &Metrics) {
        self.0.push(metrics.clone());
    }
}

/// Makes the run of a recipe whose rollouts an engine other than ours samples, and computes its last step again from
/// what was kept.
fn train_and_replay(text: &str, odd: Odd, correction: &str) -> Vec<Metrics> {
    let (server, folder) = (Server::start(odd), tempfile::tempdir().unwrap());
    let (address, weights) = (&server.address, folder.path().join("weights"));
    let text = format!(
        "{text}[rollouts]\nserver = \"{address}\"\nengine = \"sglang\"\nweights = \"{}\"\n{correction}",
        weights.display()
    );
    let (plan, run_dir) = (RunPlan::settle(&recipe(&text)).unwrap(), folder.path().join("run"));
    let mut log = StepLog::default();
    train_run(&plan, &run_dir, ResumePolicy::Fresh, 1, &mut log).unwrap();
    let replayed = replay_run::replay_run(&run_dir, 2, 1).unwrap();
    assert!(replayed.agrees() && replayed.loss != 0.0, "{replayed:?}");
    log.0
}

/// Of responses of t tokens with a gap of 0.1 each, those above ln(6)/0.1 = 17.9 tokens are masked.
#[test]
fn d41_a_step_with_masks_is_replayed() {
    let masks = "correction = \"sequence-mask\"\ncorrection_cap = 6.0\n";
    let steps = train_and_replay(GRPO, Odd { shift: -0.1, ..Odd::default() }, masks);
    for it in &steps {
        let (bounded, longest) = (of(it, "sampler/bounded"), of(it, "response_length/p95"));
        assert!(bounded < 1.0 && (bounded > 0.0) == (longest > 17.0), "{bounded} {longest}");
    }
    assert!(steps.iter().any(|it| of(it, "sampler/bounded") > 0.0));
}

/// Growth by prefixes of the teacher's: the server samples behind tokens that it is given.
#[test]
fn d41_groups_grow_over_a_server() {
    let hard = GRPO
        .replace("multiply:2", "add:5")
        .replace("tokens = 32", "tokens = 160")
        .replace("tokens = 48", "tokens = 96")
        .replace("grpo", "luffy")
        .replace("data = {", "data = { teacher_coverage = 1.0,");
    let hapo = "hapo = { turn_off_epoch = 9, injection = \"prefix\" }\n";
    let steps = train_and_replay(&format!("{hard}{hapo}"), Odd::default(), "");
    assert_no_mismatch(&steps);
    assert!(steps.iter().filter_map(|it| it.get("growth/helped")).sum::<f64>() > 0.0);
}

#[test]
fn d41_what_a_server_cannot_do_is_refused_when_the_recipe_is_read() {
    let refused = |more: &str| {
        let text = format!("{GRPO}{more}");
        let error = Recipe::parse_stages(&text, "test", "test", &Overrides::default()).unwrap_err();
        error.to_string()
    };
    let server = "rollouts.server = \"http://127.0.0.1:9\"\nrollouts.engine = \"vllm\"\n";
    for (more, key) in [
        (
            "rollouts.server = \"127.0.0.1:9\"\nrollouts.weights = \"/tmp/w\"\n".to_owned(),
            "rollouts.server",
        ),
        (server.to_owned(), "rollouts.weights"),
        (
            format!("{server}rollouts.weights = \"w\"\nsampling.top_p = 0.9\n"),
            "rollouts.correction",
        ),
        (
            format!("{server}rollouts.weights = \"w\"\nrollouts.correction_cap = 0.5\n"),
            "rollouts.correction_cap",
        ),
        (
            format!(
                "{server}rollouts.weights = \"w\"\nloss.importance_ratio_level = \"sequence\"\n"
            ),
            "rollouts.correction",
        ),
        ("rollouts.engine = \"vllm\"\n".to_owned(), "rollouts.engine"),
        ("rollouts.correction_cap = 3.0\n".to_owned(), "rollouts.correction_cap"),
    ] {
        let message = refused(&more);
        assert!(message.contains(key), "{more}: {message}");
    }
}
