//! What `plan` says against the most bytes that a run's allocations hold at once, to a tenth. The emulated GPU's are in
//! `hapo-cuda`; the process's peak and the time are compared by `scripts/speed/plan_against_run.py`.

use std::path::Path;

use hapo_testing::allocator::{self, MeasuringAllocator};
use hapo_train::plan::{DeviceSpec, Lengths, Workload, config_of, estimate};
use hapo_train::{Metrics, Observer, Overrides, Recipe, ResumePolicy, RunPlan, train};

#[global_allocator]
static ALLOCATOR: MeasuringAllocator = MeasuringAllocator;

struct Silent;

impl Observer for Silent {
    fn step(&mut self, _: u64, _: &Metrics) {}
}

/// The built-in tokenizer with words that no text has, so that hardly a draw ends a response.
fn tokenizer(path: &Path) {
    let built_in = std::fs::read(hapo_testing::repository("models/base/tokenizer.json")).unwrap();
    let mut json: serde_json::Value = serde_json::from_slice(&built_in).unwrap();
    let vocabulary = json["model"]["vocab"].as_object_mut().unwrap();
    for id in vocabulary.len()..2048 {
        vocabulary.insert(format!("w{id}"), id.into());
    }
    std::fs::write(path, json.to_string()).unwrap();
}

fn recipe(folder: &Path, sets: &[&str]) -> Recipe {
    let tokens = folder.join("tokenizer.json");
    tokenizer(&tokens);
    let problems = folder.join("problems.jsonl");
    let rows =
        (10..42).map(|it| format!("{{\"problem\": \"{it}+11=?\", \"answer\": \"{}\"}}\n", it + 11));
    std::fs::write(&problems, rows.collect::<String>()).unwrap();
    let text = format!(
        "method = \"grpo\"\nsteps = 2\nloss.entropy_coef = 0.001\nmetrics.preflight = 0\n\
         model.init = {{ hidden = 96, layers = 3, heads = 6, kv_heads = 2, ffn = 256, tokenizer = \"{}\" }}\n\
         data = {{ train = \"{1}\", max_prompt_tokens = 15, template = \"chatml\" }}\n\
         sampling = {{ group_size = 4, prompts_per_step = 8, max_new_tokens = 64 }}\n{2}",
        tokens.display(),
        problems.display(),
        sets.iter()
            .map(|it| it.replace("FILE", problems.to_str().unwrap()) + "\n")
            .collect::<String>(),
    );
    Recipe::parse(&text, "r", &Overrides::default()).unwrap()
}

fn check(sets: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let recipe = recipe(folder.path(), sets);
    let config = config_of(&recipe).unwrap();
    let device = DeviceSpec::cpu("cpu", 1 << 40, 1e11, 1e10);
    let planned = estimate(
        Workload::new(&recipe, &config, &device),
        Lengths { prompt: 15.0, response: 64.0 },
    );
    let program = planned.memory.iter().find(|it| it.name == "program").unwrap().bytes;
    let planned = planned.total_bytes - program;
    let before = allocator::held();
    let plan = RunPlan::settle(&recipe).unwrap();
    train(&plan, &folder.path().join("run"), ResumePolicy::Fresh, 2, &mut Silent).unwrap();
    let most = (allocator::most_held() - before) as u64;
    assert!(most.abs_diff(planned) < most / 10, "{sets:?}: {most} held, {planned} planned");
}

/// One after the other: the allocator counts those of the whole process.
#[test]
fn planned_bytes_are_held() {
    if hapo_testing::slow() {
        return;
    }
    check(&[]);
    check(&["optim.activation_checkpointing = \"layers\""]);
    check(&["metrics.kl_every = 1", "optim.mini_batch_prompts = 4"]);
    check(&["optim.micro_batch_tokens = 540"]);
    check(&["eval = { data = \"FILE\", problems = 32, k = 8, max_tokens = 150 }"]);
}
