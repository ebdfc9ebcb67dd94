//! Every method, stopped after two of three steps and resumed, has the bits of the run that was not; a replay of its last
//! step agrees.

use std::path::Path;

use hapo_core::{METHODS, MethodEntry, MethodSettings};
use hapo_run::RunFolder;
use hapo_train::{
    Metrics, Observer, Outcome, Overrides, Recipe, ResumePolicy, RunPlan, Sources, replay_run,
    train,
};

/// Stops after so many steps.
struct Until(u64);

impl Observer for Until {
    fn step(&mut self, step: u64, _: &Metrics) {
        self.0 = self.0.saturating_sub(u64::from(step > 0));
    }

    fn stop_requested(&self) -> bool {
        self.0 == 0
    }
}

/// Settings with which a method does within three steps what it has its state for.
fn soon(name: &str) -> &'static [&'static str] {
    match name {
        "relift" => &["relift.batch=2"],
        "repo" => &["repo.begin=4", "repo.replayed=2"],
        "exgrpo" => &["exgrpo.start=0"],
        _ => &[],
    }
}

fn recipe(entry: &MethodEntry) -> Recipe {
    let method = (entry.build)(&MethodSettings::default()).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/mini");
    let path = folder.join(format!("{}.toml", entry.name));
    let mut keys = vec![
        "model.init={ hidden = 32, layers = 2, heads = 4, kv_heads = 2, ffn = 64, std = 0.3 }"
            .to_owned(),
        "steps=3".to_owned(),
        "data.prompts=4".to_owned(),
        "data.levels=[\"multiply:2\"]".to_owned(),
        "data.teacher_coverage=1".to_owned(),
        "data.teacher_steps=\"two\"".to_owned(),
        "data.max_prompt_tokens=64".to_owned(),
        "optim.lr=1e-3".to_owned(),
        "optim.mini_batch_prompts=1".to_owned(),
        "checkpoint.every=2".to_owned(),
    ];
    if method.samples() {
        keys.extend(
            ["group_size=4", "prompts_per_step=2", "max_new_tokens=32"]
                .map(|it| format!("sampling.{it}")),
        );
        keys.extend([
            "data.verdict_noise=0.3".to_owned(),
            "metrics.preflight=0".to_owned(),
            "metrics.rollouts_every=1".to_owned(),
        ]);
    } else {
        keys.push("sampling.prompts_per_step=2".to_owned());
    }
    if method.needs().reference {
        keys.push("reference.path=builtin:base".to_owned());
    }
    keys.extend(soon(entry.name).iter().map(ToString::to_string));
    let unset = vec!["model.path".to_owned()];
    let overrides = Overrides { unset, ..Overrides::set(keys) };
    Recipe::load_stages(&path, &overrides).unwrap().pop().unwrap()
}

fn run(recipe: &Recipe, run_dir: &Path, policy: ResumePolicy, steps: u64) -> Outcome {
    let plan = RunPlan::settle_in(run_dir, recipe, Sources::default()).unwrap();
    train(&plan, run_dir, policy, 2, &mut Until(steps)).unwrap()
}

#[test]
fn every_method_goes_on_with_the_same_bits() {
    for entry in METHODS {
        let (recipe, name) = (recipe(entry), entry.name);
        let folder = tempfile::tempdir().unwrap();
        let (whole, broken) = (folder.path().join("whole"), folder.path().join("broken"));
        assert!(run(&recipe, &whole, ResumePolicy::Fresh, 9).finished, "{name}");
        run(&recipe, &broken, ResumePolicy::Fresh, 2);
        let resumed = run(&recipe, &broken, ResumePolicy::Resume, 9);
        assert_eq!((resumed.steps, resumed.steps_now), (3, 1), "{name}");
        for file in
            ["model.safetensors", "trainer_state/first_moments.f32", "trainer_state/memory.json"]
        {
            let of = |run_dir: &Path| std::fs::read(RunFolder(run_dir).checkpoint_of(3).join(file));
            let (a, b) = (of(&whole).ok(), of(&broken).ok());
            assert!(a == b, "{name}: {file}");
            let is_memory = file.ends_with("memory.json");
            assert_eq!(a.is_some(), !is_memory || recipe.needs().memory, "{name}: {file}");
        }
        if recipe.method().samples() {
            let again = replay_run::replay_run(&whole, 3, 1).unwrap();
            assert!(again.agrees(), "{name}: {again:?}");
        }
    }
}
