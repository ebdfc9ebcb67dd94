//! D28: `reward.success_at` decides what counts as success, with a gate and without one.

use std::path::Path;

use hapo_kernels::Cpu;
use hapo_train::{Metrics, Overrides, Recipe, Run, RunPlan};

/// One step of two prompts in groups of four, with a custom reward of .9 for every text that has a box and 0 for any other.
fn step(method: &str, folder: &Path) -> Metrics {
    run(method, "0.9", "0", folder).unwrap().step().unwrap()
}

/// A run with these rewards for texts with a box and without.
fn run(method: &str, boxed: &str, other: &str, folder: &Path) -> Result<Run<Cpu>, String> {
    let program = folder.join("reward.sh");
    let script = format!(
        "while read -r line; do case $line in *boxed*) echo {boxed};; *) echo {other};; esac; done"
    );
    std::fs::write(&program, script).unwrap();
    let text = format!(
        "{method}\nsteps = 1\nmodel.path = \"builtin:base\"\n\
         data = {{ train = \"builtin\", prompts = 4, teacher_coverage = 1.0, levels = [\"multiply:2\"], \
         max_prompt_tokens = 32, truncated = \"grade\", grader = \"command:sh {}\" }}\n\
         sampling = {{ group_size = 4, prompts_per_step = 2, max_new_tokens = 160 }}\n",
        program.display()
    );
    let in_words = |it: hapo_core::Refusal| it.to_string();
    let recipe = Recipe::parse(&text, "test", &Overrides::default()).map_err(in_words)?;
    let plan = RunPlan::settle(&recipe).map_err(in_words)?;
    Run::new(&plan, 1).map_err(in_words)
}

#[test]
fn maxrl_refuses_negative_rewards_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let settled = run("method = \"maxrl\"\nreward.wrong = -1.0", "1", "0", folder.path()).err();
    let settled = settled.unwrap();
    assert!(settled.starts_with("`maxrl` cannot learn from rewards below 0 ("), "{settled}");
    assert!(settled.ends_with("reward.wrong)"), "{settled}");
    let mut met = run("method = \"maxrl\"", "-0.5", "0", folder.path()).unwrap();
    let met = met.step().unwrap_err().to_string();
    assert_eq!(met, "`maxrl` cannot learn from rewards below 0, got -0.5");
    run("method = \"maxrl\"", "0.5", "0", folder.path()).unwrap().step().unwrap();
    run("method = \"grpo\"", "-0.5", "-1", folder.path()).unwrap().step().unwrap();
}

#[test]
fn a_bare_method_admits_a_teacher_whose_reward_reaches_the_level() {
    let folder = tempfile::tempdir().unwrap();
    let of = |metrics: &Metrics| {
        let names = ["gate/beta", "gate/open_no_teacher"];
        names.map(|name| metrics.get(name).unwrap())
    };
    let refused = step("method = \"luffy\"", folder.path());
    assert_eq!(of(&refused), [0.0, 2.0]);
    let admitted = step("method = \"luffy\"\nreward.success_at = 0.9", folder.path());
    assert_eq!(of(&admitted), [1.0, 0.0]);
    assert_eq!(admitted.get("gate/beta_trajectories"), Some(0.25));
    // The rollouts that reach it are successes too.
    let correct = admitted.get("verify/correct").unwrap();
    assert!(correct > 0.0 && refused.get("verify/correct") == Some(0.0), "{correct}");
}

#[test]
fn a_built_in_grader_gives_no_reward_above_one() {
    let parse = |level: &str| {
        let text = format!("method = \"grpo\"\nmodel.path = \"m\"\nreward.success_at = {level}\n");
        let recipe = Recipe::parse(&text, "r", &Overrides::default());
        recipe.map(|it| it.reward.success_at).map_err(|it| it.to_string())
    };
    assert_eq!(parse("0.5").unwrap(), 0.5);
    for level in ["0", "1.5", "nan"] {
        let error = parse(level).unwrap_err();
        assert!(error.starts_with("expected a reward in (0, 1], got "), "{error}");
        assert!(error.ends_with("line 3, column 8: reward.success_at)"), "{error}");
    }
}
