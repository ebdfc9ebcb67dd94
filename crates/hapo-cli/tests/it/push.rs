//! `hapo push` against a hub on the loopback address that keeps what arrives.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use crate::support::{hapo, repository, succeed};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// A request as it arrived.
#[derive(Clone, Debug)]
struct Arrived {
    /// Method and path.
    what: String,
    token: Option<String>,
    body: Vec<u8>,
}

/// Answers by path: status and body.
type Faults = &'static [(&'static str, u16, &'static str)];

struct FakeHub {
    address: String,
    arrived: Arc<Mutex<Vec<Arrived>>>,
}

impl FakeHub {
    fn start(faults: Faults) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let arrived: Arc<Mutex<Vec<Arrived>>> = Arc::default();
        let kept = arrived.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let kept = kept.clone();
                std::thread::spawn(move || serve(stream.unwrap(), port, &kept, faults));
            }
        });
        Self { address: format!("http://127.0.0.1:{port}"), arrived }
    }

    fn push(&self, folder: &Path, args: &[&str], token: Option<&str>) -> Output {
        let mut command = Command::new(crate::support::binary());
        command.arg("push").args(args).current_dir(folder).env("HF_ENDPOINT", &self.address);
        // A proxy for https is none for a hub on this machine.
        command.env("HTTPS_PROXY", "http://127.0.0.1:9").env("HF_HOME", folder.join("home"));
        for name in ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE"] {
            command.env_remove(name);
        }
        for name in ["ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy"] {
            command.env_remove(name);
        }
        if let Some(it) = token {
            command.env("HF_TOKEN", it);
        }
        command.output().unwrap()
    }

    fn all(&self) -> Vec<Arrived> {
        self.arrived.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, port: u16, kept: &Mutex<Vec<Arrived>>, faults: Faults) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let what = line.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.insert(name.to_lowercase(), value.to_owned());
        }
        // Storage takes no body whose length it is not told.
        let length = headers.get("content-length").map_or(0, |it| it.parse().unwrap());
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let token = headers.get("authorization").cloned();
        let (status, answer) = match faults.iter().find(|it| what.contains(it.0)) {
            Some((_, status, answer)) => (*status, (*answer).to_owned()),
            None => (200, answer(&what, &body, port)),
        };
        kept.lock().unwrap().push(Arrived { what, token, body });
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-length: {}\r\netag: \"tag{}\"\r\n\r\n",
            answer.len(),
            length
        );
        stream.write_all((head + &answer).as_bytes()).unwrap();
    }
}

/// The hub's answers; weights go to LFS, in two parts.
fn answer(what: &str, body: &[u8], port: u16) -> String {
    let body = || -> Value { serde_json::from_slice(body).unwrap() };
    match what {
        it if it.contains("/preupload/") => {
            let mode = |it: &Value| {
                let large = it["path"].as_str().unwrap().ends_with(".safetensors");
                json!({ "path": it["path"], "uploadMode": if large { "lfs" } else { "regular" }, "shouldIgnore": false })
            };
            let files: Vec<Value> = body()["files"].as_array().unwrap().iter().map(mode).collect();
            json!({ "files": files }).to_string()
        }
        it if it.ends_with("/info/lfs/objects/batch") => {
            let of = |it: &Value| {
                let size = it["size"].as_u64().unwrap();
                let storage = format!("http://localhost:{port}/storage");
                let header = json!({ "chunk_size": (size - 10).to_string(), "00001": format!("{storage}/1"), "00002": format!("{storage}/2") });
                let actions = json!({
                    "upload": { "href": format!("http://127.0.0.1:{port}/complete"), "header": header },
                    "verify": { "href": format!("http://127.0.0.1:{port}/verify") },
                });
                json!({ "oid": it["oid"], "size": size, "actions": actions })
            };
            let objects: Vec<Value> =
                body()["objects"].as_array().unwrap().iter().map(of).collect();
            json!({ "transfer": "multipart", "objects": objects }).to_string()
        }
        it if it.contains("/commit/") => {
            json!({ "commitUrl": "https://hub/org/name/commit/abc", "commitOid": "abc" })
                .to_string()
        }
        _ => "{}".to_owned(),
    }
}

/// A small run in `run`.
fn small_run(folder: &Path) {
    let recipe = repository("recipes/smoke.toml").display().to_string();
    let sets = [
        "model={ init = { hidden = 32, layers = 2, heads = 4, kv_heads = 2, ffn = 64, std = 0.3 } }",
        "data.prompts=8",
        "steps=2",
        "sampling.group_size=4",
        "sampling.prompts_per_step=4",
        "sampling.max_new_tokens=16",
        "checkpoint.every=1",
        "metrics.preflight=0",
    ];
    let sets = sets.iter().flat_map(|it| ["--set", it]);
    let args = [&["train", &recipe, "--run-dir", "run", "--quiet"], &sets.collect::<Vec<_>>()[..]];
    succeed(folder, &args.concat());
}

#[test]
fn a_run_arrives_byte_for_byte_with_its_readme() {
    let dir = tempfile::tempdir().unwrap();
    small_run(dir.path());
    let hub = FakeHub::start(&[]);
    let it = hub.push(dir.path(), &["run", "org/name", "--private", "--json"], Some("secret"));
    assert!(it.status.success(), "{}", String::from_utf8_lossy(&it.stderr));
    let said: Value = serde_json::from_slice(&it.stdout).unwrap();
    assert_eq!(
        (&said["commit"], &said["url"]),
        (&json!("abc"), &json!("https://hub/org/name/commit/abc"))
    );
    let all = hub.all();
    let what: Vec<&str> = all.iter().map(|it| it.what.as_str()).collect();
    assert_eq!(
        what,
        [
            "POST /api/repos/create",
            "POST /api/models/org/name/preupload/main",
            "POST /org/name.git/info/lfs/objects/batch",
            "PUT /storage/1",
            "PUT /storage/2",
            "POST /complete",
            "POST /verify",
            "POST /api/models/org/name/commit/main",
        ]
    );
    // Storage has a signed address, and gets no token.
    for it in &all {
        let expected = (!it.what.contains("/storage/")).then_some("Bearer secret");
        assert_eq!(it.token.as_deref(), expected, "{}", it.what);
    }
    let created: Value = serde_json::from_slice(&all[0].body).unwrap();
    assert_eq!(created, json!({ "name": "name", "organization": "org", "private": true }));

    let checkpoint = dir.path().join("run/checkpoints/step-000002");
    let weights = std::fs::read(checkpoint.join("model.safetensors")).unwrap();
    assert_eq!([&all[3].body[..], &all[4].body[..]].concat(), weights);
    assert_eq!(all[4].body.len(), 10);
    let complete: Value = serde_json::from_slice(&all[5].body).unwrap();
    let tag = |n: usize| format!("\"tag{n}\"");
    assert_eq!(
        complete["parts"],
        json!([{ "partNumber": 1, "etag": tag(weights.len() - 10) }, { "partNumber": 2, "etag": tag(10) }])
    );

    let lines = String::from_utf8(all[7].body.clone()).unwrap();
    let mut files = BTreeMap::new();
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let value = &line["value"];
        match line["key"].as_str().unwrap() {
            "header" => assert_eq!(value["summary"], "Upload by hapo"),
            "lfsFile" => {
                assert_eq!(value["path"], "model.safetensors");
                assert_eq!(value["size"], weights.len());
                assert_eq!(value["oid"], complete["oid"]);
            }
            _ => {
                let content = STANDARD.decode(value["content"].as_str().unwrap()).unwrap();
                files.insert(value["path"].as_str().unwrap().to_owned(), content);
            }
        }
    }
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "README.md",
            "config.json",
            "generation_config.json",
            "recipe.toml",
            "reward.svg",
            "tokenizer.json",
            "tokenizer_config.json"
        ]
    );
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        assert_eq!(files[name], std::fs::read(checkpoint.join(name)).unwrap(), "{name}");
    }
    assert_eq!(files["recipe.toml"], std::fs::read(dir.path().join("run/recipe.toml")).unwrap());
    assert!(files["reward.svg"].starts_with(b"<svg"));
    let readme = String::from_utf8(files["README.md"].clone()).unwrap();
    for it in [
        "---\nlibrary_name: transformers\n",
        "- trapo\n---\n",
        "# name\n",
        "The weights are those after step 2.",
        "| `reward/policy_only` | ",
        "![Reward over the steps](reward.svg)",
        "AutoModelForCausalLM.from_pretrained(\"org/name\")",
        "max_new_tokens = 16",
    ] {
        assert!(readme.contains(it), "{it}\n{readme}");
    }
    // A model without a name on the hub has no base to link.
    assert!(!readme.contains("base_model"), "{readme}");
}

#[test]
fn an_adapter_has_the_readme_of_one_and_a_readme_of_ones_own_stays() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("adapter");
    std::fs::create_dir(&folder).unwrap();
    let config =
        json!({ "base_model_name_or_path": "Qwen/Qwen2.5-0.5B", "r": 8, "peft_type": "LORA" });
    std::fs::write(folder.join("adapter_config.json"), config.to_string()).unwrap();
    std::fs::write(folder.join("adapter_model.safetensors"), [1; 40]).unwrap();
    let readme = succeed(dir.path(), &["push", "adapter", "org/name", "--dry-run"]);
    for it in [
        "library_name: peft\n",
        "base_model: Qwen/Qwen2.5-0.5B\nbase_model_relation: adapter\n",
        "- lora\n",
        "PeftModel.from_pretrained(model, \"org/name\")",
        "  adapter_model.safetensors\n",
    ] {
        assert!(readme.contains(it), "{it}\n{readme}");
    }
    std::fs::write(folder.join("README.md"), "mine").unwrap();
    let own = succeed(dir.path(), &["push", "adapter", "org/name", "--dry-run", "--json"]);
    let own: Value = serde_json::from_str(&own).unwrap();
    assert_eq!(own["readme"], "mine");
    assert_eq!(
        own["files"],
        json!(["README.md", "adapter_config.json", "adapter_model.safetensors"])
    );
}

#[test]
fn what_the_hub_refuses_is_said_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("model")).unwrap();
    std::fs::write(dir.path().join("model/config.json"), "{}").unwrap();
    let check = |faults: Faults, token, expected: &[&str]| {
        let hub = FakeHub::start(faults);
        let it = hub.push(dir.path(), &["model", "org/name"], token);
        let stderr = String::from_utf8(it.stderr).unwrap();
        assert_eq!(it.status.code(), Some(2), "{stderr}");
        assert!(it.stdout.is_empty());
        for it in expected {
            assert!(stderr.contains(it), "{it}\n{stderr}");
        }
        assert!(!stderr.contains("secret"), "{stderr}");
        hub.all().len()
    };
    let sent = check(&[], None, &["there is no token", "hint: set HF_TOKEN"]);
    assert_eq!(sent, 0);
    check(
        &[("/api/repos/create", 401, "{\"error\": \"Invalid user token.\"}")],
        Some("secret"),
        &[
            "cannot push to org/name on http://127.0.0.1:",
            "(status 401): Invalid user token.",
            "/settings/tokens",
        ],
    );
    check(
        &[
            ("/api/repos/create", 403, "{\"error\": \"no rights\"}"),
            ("GET /api/models/org/name", 404, ""),
        ],
        Some("secret"),
        &[
            "(status 403): no rights",
            "the token needs the right to write, and its account must be org",
        ],
    );
    check(
        &[("/api/repos/create", 409, ""), ("/commit/", 409, "{\"error\": \"conflict\"}")],
        Some("secret"),
        &["(status 409): conflict", "push again"],
    );
    // A repository that is there is no failure, nor one that only may be written to.
    let harmless: [Faults; 2] =
        [&[("/api/repos/create", 409, "")], &[("/api/repos/create", 403, "")]];
    for faults in harmless {
        let hub = FakeHub::start(faults);
        let it = hub.push(dir.path(), &["model", "org/name@dev"], Some("secret"));
        assert!(it.status.success(), "{}", String::from_utf8_lossy(&it.stderr));
        assert!(hub.all().last().unwrap().what.ends_with("/commit/dev"));
    }
    let bad = |args: &[&str], message: &str| {
        let it = hapo(dir.path(), args);
        let stderr = String::from_utf8(it.stderr).unwrap();
        assert_eq!(it.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(message), "{stderr}");
    };
    bad(&["push", "model", "name"], "name: no name of the hub");
    bad(
        &["push", "nothing", "org/name"],
        "nothing holds no model, and no checkpoint `last` of a run",
    );
}
