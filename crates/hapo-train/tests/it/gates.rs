//! Runs with the gates that are no tables: what they count survives a stop, and what they read is checked.

use std::path::Path;

use hapo_core::{GATES, GateRule};
use hapo_run::{RunFolder, is_clock};
use hapo_train::{
    Metrics, Observer, Overrides, Recipe, ResumePolicy, RunPlan, Sources, replay_run, train,
};

/// Keeps the metrics, and stops after a number of steps.
struct Until(usize, Vec<Metrics>);

impl Observer for Until {
    fn step(&mut self, _: u64, metrics: &Metrics) {
        self.1.push(metrics.clone());
    }

    fn stop_requested(&self) -> bool {
        self.1.len() >= self.0
    }
}

fn recipe(more: &[&str]) -> Result<Recipe, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/smoke.toml");
    let sets = [
        "steps=3",
        "data.prompts=4",
        "data.levels=[\"multiply:5\"]",
        "sampling.group_size=4",
        "sampling.prompts_per_step=4",
        "sampling.max_new_tokens=64",
        "optim.lr=1e-3",
        "checkpoint.every=1",
        "metrics.preflight=0",
    ];
    let set = Overrides::set([&sets, more].concat());
    let overrides = Overrides { unset: vec!["hapo.turn_off_epoch".to_owned()], ..set };
    let stages = Recipe::load_stages(&path, &overrides).map_err(|it| it.to_string())?;
    Ok(stages.into_iter().next().unwrap())
}

fn settle(recipe: &Recipe, run_dir: &Path) -> Result<RunPlan, String> {
    RunPlan::settle_in(run_dir, recipe, Sources::default()).map_err(|it| it.to_string())
}

fn run(recipe: &Recipe, run_dir: &Path, policy: ResumePolicy, steps: usize) -> Vec<Metrics> {
    let mut log = Until(steps, Vec::new());
    train(&settle(recipe, run_dir).unwrap(), run_dir, policy, 2, &mut log).unwrap();
    log.1
}

fn sum(log: &[Metrics], name: &str) -> f64 {
    log.iter().map(|it| it.get(name).unwrap()).sum()
}

#[test]
fn d39_a_resumed_run_opens_for_the_groups_of_an_unbroken_one() {
    if hapo_testing::slow() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let record = format!("hapo.record={:?}", folder.path().join("posterior").display().to_string());
    let settings = |rule: &GateRule| match rule.name {
        "posterior" | "thompson" => vec!["hapo.annealing=\"off\"", "hapo.success_limit=1"],
        "budget" => vec!["hapo.exposures=5", "hapo.success_limit=2"],
        "yoked" => vec![record.as_str()],
        _ => Vec::new(),
    };
    let mut logs = Vec::new();
    for rule in GATES.iter().filter(|it| !it.is_table) {
        let name = rule.name;
        let gate = format!("hapo.gate={name:?}");
        let recipe = recipe(&[&[gate.as_str()], &*settings(rule)].concat()).unwrap();
        let run_dir = folder.path().join(name);
        let log = run(&recipe, &run_dir, ResumePolicy::Fresh, 3);
        assert!(sum(&log, "gate/open") > 0.0, "{name} never opens");
        assert!(log.iter().all(|it| it.get("gate/threshold").is_none()), "{name} is no table");
        assert!(!run_dir.join("gate.json").exists(), "{name} is no table");

        let broken = folder.path().join(format!("{name}-broken"));
        let first = run(&recipe, &broken, ResumePolicy::Fresh, 1);
        let rest = run(&recipe, &broken, ResumePolicy::Resume, 3);
        let logged = |it: &Metrics| -> Vec<_> {
            it.iter()
                .filter(|it| !is_clock(it.0))
                .map(|it| (it.0.to_owned(), it.1.to_bits()))
                .collect()
        };
        let (whole, resumed) = (log.iter(), first.iter().chain(&rest));
        assert!(whole.map(logged).eq(resumed.map(logged)), "{name}");
        let of =
            |run_dir: &Path, file| std::fs::read(RunFolder(run_dir).checkpoint_of(3).join(file));
        for file in ["model.safetensors", "trainer_state/memory.json"] {
            let kept = of(&run_dir, file).ok();
            assert_eq!(kept.is_some(), rule.remembers || file == "model.safetensors", "{name}");
            assert!(of(&broken, file).ok() == kept, "{name}: {file}");
        }
        let again = replay_run::replay_run(&run_dir, 3, 1).unwrap();
        assert!(again.agrees(), "{name}: {again:?}");
        logs.push((name, log));
    }
    let injections = |name: &str| -> Vec<f64> {
        let (_, log) = logs.iter().find(|it| it.0 == name).unwrap();
        log.iter().map(|it| 4.0 * it.get("gate/beta").unwrap()).collect()
    };
    assert_eq!(injections("yoked"), injections("posterior"));
    let spent = injections("budget");
    assert!(spent[0] <= 1.0 && spent[0] + spent[1] <= 3.0, "{spent:?} of 5 in 3 steps");
    assert!(spent.iter().sum::<f64>() <= 5.0, "{spent:?}");
}

#[test]
fn a_record_that_does_not_say_every_step_is_refused_when_the_run_is_settled() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("metrics.jsonl");
    let line = |step: u64| {
        format!(
            "{{\"step\":{step},\"gate/beta\":0.5,\"groups/all_fail\":3,\"groups/all_solved\":1,\
             \"groups/partially_solved\":0}}\n"
        )
    };
    let refused = |path: &Path| {
        let record = format!("hapo.record={:?}", path.display().to_string());
        let recipe = recipe(&["hapo.gate=\"yoked\"", &record]).unwrap();
        settle(&recipe, &folder.path().join("run")).err()
    };
    let whole: String = (1..=3).map(line).collect();
    for (text, expected) in [
        (
            whole.replace("\"gate/beta\":0.5", "\"gate/beta\":null"),
            "line 1: expected a number `gate/beta`",
        ),
        (format!("{}not JSON\n", line(1)), "line 2: "),
        ((1..=2).map(line).collect(), "expected 3 steps, step 3 is missing"),
        (String::new(), "step 1 is missing"),
    ] {
        std::fs::write(&file, text).unwrap();
        for path in [&file, folder.path()] {
            let problem = refused(path).unwrap();
            assert!(problem.contains(expected) && problem.contains("metrics.jsonl"), "{problem}");
            assert!(problem.contains("hapo.record"), "{problem}");
        }
    }
    std::fs::write(&file, line(0).replace("\"gate/beta\":0.5,", "") + &whole).unwrap();
    assert_eq!(refused(&file), None);
    let missing = refused(&folder.path().join("none")).unwrap();
    assert!(missing.contains("none: "), "{missing}");
}

#[test]
fn a_gate_without_its_settings_and_with_those_of_another_is_refused() {
    for (sets, expected) in [
        (&["hapo.gate=\"budget\""][..], "hapo.gate = \"budget\" needs it"),
        (&["hapo.gate=\"yoked\""], "hapo.gate = \"yoked\" needs it"),
        (
            &["hapo.gate=\"posterior\"", "hapo.annealing=\"off\"", "hapo.discount=1.5"],
            "a number from 0 to 1",
        ),
        (
            &["hapo.gate=\"budget\"", "hapo.exposures=3", "sampling.dynamic_sampling=1"],
            "chooses among all groups of a step",
        ),
        (
            &["hapo.gate=\"yoked\"", "hapo.record=\"x\"", "hapo.slot=\"fixed\""],
            "expected gate = \"always\"",
        ),
        (
            &["hapo.gate=\"thompson\"", "hapo.annealing=\"off\"", "hapo.exposures=3"],
            "hapo.gate = \"thompson\" does not read it",
        ),
        (
            &["hapo.gate=\"no-signal\"", "hapo.success_limit=1"],
            "hapo.gate = \"no-signal\" does not read it",
        ),
        (&["hapo.gate=\"random\""], "expected one of confidence, always, never, posterior"),
    ] {
        let problem = recipe(sets).unwrap_err();
        assert!(problem.contains(expected), "{sets:?}: {problem}");
    }
}
