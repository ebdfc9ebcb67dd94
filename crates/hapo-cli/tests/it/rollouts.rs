//! D41: `hapo train` with the rollouts of `hapo serve`, two processes.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{binary, hapo, refuse, succeed};

const RECIPE: &str = "method = \"grpo\"\nsteps = 6\nmodel.path = \"builtin:base\"\n\
     data = { train = \"builtin\", prompts = 16, levels = [\"multiply:2\"], max_prompt_tokens = 32 }\n\
     sampling = { group_size = 4, prompts_per_step = 4, max_new_tokens = 48, temperature = 0.9 }\n\
     optim.lr = 1e-4\n\
     eval = { suite = \"multiply:2\", every = 3, problems = 4, k = 2, max_tokens = 32 }\n";

/// `hapo serve` on a port, once it says that it serves.
fn serve(folder: &Path, port: u16, more: &[&str]) -> Server {
    let mut server = Command::new(binary())
        .args(["--threads", "1", "serve", "--model", "builtin:base", "--port", &port.to_string()])
        .args(more)
        .current_dir(folder)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut messages = BufReader::new(server.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("serving ") {
        line.clear();
        assert!(messages.read_line(&mut line).unwrap() > 0, "the server ended");
    }
    // What else it says must not fill the pipe.
    std::thread::spawn(move || std::io::copy(&mut messages, &mut std::io::sink()));
    Server(server)
}

/// A server that ends with its test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The files of a run that must not depend on who samples.
fn bits(run: &Path) -> Vec<Vec<u8>> {
    let model = std::fs::read(run.join("checkpoints/step-000006/model.safetensors")).unwrap();
    let rollouts = (1..=6)
        .map(|step| std::fs::read(run.join(format!("rollouts/step-{step:06}.jsonl.zst"))).unwrap());
    rollouts.chain([model]).collect()
}

/// Evaluations and gaps of the steps of a run.
fn numbers(run: &Path) -> Vec<(serde_json::Value, serde_json::Value, serde_json::Value)> {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let lines = text.lines().map(|it| serde_json::from_str::<serde_json::Value>(it).unwrap());
    let of = |it: serde_json::Value| {
        (it["loss"].clone(), it["eval/avg@k"].clone(), it["sampler/logprob_gap_max"].clone())
    };
    lines.map(of).collect()
}

/// A server is killed after the second step of a run and started again with the base model: the run waits, gives it its
/// weights and ends with the rollouts and the weights of a run that needed no server, bit for bit.
#[test]
fn d41_a_server_killed_in_the_middle_loses_nothing() {
    if hapo_testing::slow() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("alone.toml"), RECIPE).unwrap();
    succeed(folder, &["train", "alone.toml", "--run-dir", "alone"]);
    std::fs::create_dir(folder.join("weights")).unwrap();
    let port = free_port();
    let takes_weights = ["--weights-from", "weights"];
    let rollouts = format!(
        "[rollouts]\nserver = \"http://127.0.0.1:{port}\"\nengine = \"hapo\"\nweights = \"weights\"\n"
    );
    std::fs::write(folder.join("asked.toml"), format!("{RECIPE}{rollouts}")).unwrap();
    let server = serve(folder, port, &takes_weights);
    let mut train = Command::new(binary())
        .args(["train", "asked.toml", "--run-dir", "asked"])
        .current_dir(folder)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let metrics = folder.join("asked/metrics.jsonl");
    let logged = || std::fs::read_to_string(&metrics).map_or(0, |it| it.lines().count());
    while logged() < 2 {
        assert!(train.try_wait().unwrap().is_none(), "the run ended before it was disturbed");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(server);
    let _server = serve(folder, port, &takes_weights);
    assert!(train.wait().unwrap().success());
    assert_eq!(bits(&folder.join("asked")), bits(&folder.join("alone")));
    assert_eq!(numbers(&folder.join("asked")), numbers(&folder.join("alone")));
    assert!(numbers(&folder.join("asked")).iter().all(|it| it.2 == 0.0));
    let left = std::fs::read_dir(folder.join("weights")).unwrap().count();
    assert_eq!(left, 0, "the run takes its weights with it");

    // With weights it would be another distribution: on a CPU they are all 1.
    let corrected = [
        "train",
        "asked.toml",
        "--run-dir",
        "corrected",
        "--set",
        "rollouts.correction=sequence-mask",
    ];
    succeed(folder, &corrected);
    let model = |run: &str| bits(&folder.join(run)).pop();
    assert_eq!(model("corrected"), model("alone"));
}

#[test]
fn a_server_without_a_folder_takes_no_weights() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let port = free_port();
    let _server = serve(folder, port, &[]);
    let address = format!("http://127.0.0.1:{port}");
    let rollouts = format!("[rollouts]\nserver = \"{address}\"\nweights = \"weights\"\n");
    std::fs::write(folder.join("asked.toml"), format!("{RECIPE}{rollouts}")).unwrap();
    let message = refuse(folder, &["train", "asked.toml", "--run-dir", "asked"]);
    assert!(message.contains("--weights-from") && message.contains(&address), "{message}");
    // An address without a server is waited for; one that cannot be an address is refused at once.
    let plan = hapo(folder, &["plan", "asked.toml", "--set", "rollouts.server=nowhere"]);
    let message = String::from_utf8_lossy(&plan.stderr).into_owned();
    assert!(message.contains("rollouts.server"), "{message}");
}
