//! Every method, stopped after two of three steps and resumed, has the bits of the run that was not; a replay of its last
//! step agrees. What else a run keeps between its steps: the score of the next checkpoint, the place in a schedule, a
//! memory.

use std::path::Path;

use hapo_core::{METHODS, MethodEntry, MethodSettings};
use hapo_run::RunFolder;
use hapo_train::{
    Metrics, Observer, Outcome, Overrides, Recipe, ResumePolicy, RunPlan, Sources, replay_run,
    train,
};

/// Stops after so many steps, and keeps the warnings.
struct Until(u64, Vec<String>);

impl Observer for Until {
    fn step(&mut self, step: u64, _: &Metrics) {
        self.0 = self.0.saturating_sub(u64::from(step > 0));
    }

    fn warning(&mut self, text: &str) {
        self.1.push(text.to_owned());
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
    let method = entry.build(&MethodSettings::default()).unwrap();
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
    begin(recipe, run_dir, policy, &mut Until(steps, Vec::new())).unwrap()
}

fn begin(
    recipe: &Recipe,
    run_dir: &Path,
    policy: ResumePolicy,
    until: &mut Until,
) -> hapo_train::Result<Outcome> {
    let plan = RunPlan::settle_in(run_dir, recipe, Sources::default())?;
    train(&plan, run_dir, policy, 2, until)
}

/// The recipe of a method with other keys.
fn with(name: &str, sets: &[&str]) -> Recipe {
    let entry = METHODS.iter().find(|it| it.name == name).unwrap();
    recipe(entry).with(&Overrides::set(sets.iter().map(ToString::to_string))).unwrap()
}

/// A number of each step.
fn logged(run_dir: &Path, name: &str) -> Vec<f64> {
    let text = std::fs::read_to_string(RunFolder(run_dir).metrics()).unwrap();
    let number = |line: &str| {
        serde_json::from_str::<serde_json::Value>(line).unwrap()[name].as_f64().unwrap()
    };
    text.lines().map(number).collect()
}

#[test]
fn every_method_goes_on_with_the_same_bits() {
    if hapo_testing::slow() {
        return;
    }
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

/// A checkpoint that is written because somebody stopped the run takes nothing from the score of the next one.
#[test]
fn a_stop_between_checkpoints_changes_no_score() {
    let sets = ["steps=6", "checkpoint.every=3", "checkpoint.best=-loss", "checkpoint.keep=9"];
    let (recipe, folder) = (with("grpo", &sets), tempfile::tempdir().unwrap());
    let (whole, broken) = (folder.path().join("whole"), folder.path().join("broken"));
    run(&recipe, &whole, ResumePolicy::Fresh, 9);
    run(&recipe, &broken, ResumePolicy::Fresh, 5);
    run(&recipe, &broken, ResumePolicy::Resume, 9);
    let score = |run_dir: &Path, step: u64| {
        hapo_train::checkpoint::verify(&RunFolder(run_dir).checkpoint_of(step)).unwrap().score
    };
    assert_eq!(score(&broken, 5), None);
    for step in [3, 6] {
        assert!(score(&whole, step).is_some_and(|it| Some(it) == score(&broken, step)), "{step}");
    }
}

/// Updates of imitation between the steps take the rate of their step, so that the last step still moves.
#[test]
fn d43_a_schedule_ends_with_the_run_however_often_the_method_imitates() {
    let sets = ["steps=4", "optim.lr_schedule=linear", "optim.warmup=0.25"];
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str| {
        let run_dir = folder.path().join(name);
        run(&with(name, &sets), &run_dir, ResumePolicy::Fresh, 9);
        (logged(&run_dir, "lr"), std::fs::read_to_string(RunFolder(&run_dir).metrics()).unwrap())
    };
    let ((relift, log), (grpo, _)) = (of("relift"), of("grpo"));
    assert!(log.contains("demonstrations/loss"), "it imitates");
    assert_eq!(relift, grpo);
    assert!(relift[3] > 0.0, "{relift:?}");
}

#[test]
fn what_is_remembered_of_other_data_is_dropped() {
    for name in ["relift", "repo", "mfc"] {
        let folder = tempfile::tempdir().unwrap();
        let run_dir = folder.path().join("run");
        run(&with(name, &[]), &run_dir, ResumePolicy::Fresh, 2);
        let other = with(name, &["data.prompts=3"]);
        let mut until = Until(9, Vec::new());
        begin(&other, &run_dir, ResumePolicy::ResumeWithRecipe, &mut until).unwrap();
        let dropped = "the data are others: what the method remembers";
        assert!(until.1.iter().any(|it| it.starts_with(dropped)), "{name}: {:?}", until.1);
    }
}

/// The exposures of a budget are spread over the steps.
#[test]
fn a_run_with_a_budget_is_not_made_longer() {
    let sets = ["hapo={ gate = \"budget\", exposures = 4 }"];
    let (recipe, folder) = (with("luffy", &sets), tempfile::tempdir().unwrap());
    run(&recipe, folder.path(), ResumePolicy::Fresh, 9);
    let longer = with("luffy", &[sets[0], "steps=6"]);
    let mut until = Until(9, Vec::new());
    let refused = begin(&longer, folder.path(), ResumePolicy::Resume, &mut until).unwrap_err();
    assert!(refused.to_string().contains("(hapo.exposures depend on steps)"), "{refused}");
}
