//! Groups that grow: scheduled prefixes, and what HAPO injects besides the teacher's trajectory (D35, D36).

use std::path::{Path, PathBuf};

use hapo_core::Context;
use hapo_data::task::{Split, TaskSet, TeacherSteps, make_set};
use hapo_run::{Role, RolloutLine, RunFolder, read_rollouts};
use hapo_train::{Metrics, Observer, Overrides, Recipe, ResumePolicy, RunPlan, replay_run, train};
use serde_json::json;

/// Keeps the metrics of every step.
#[derive(Default)]
struct StepLog(Vec<Metrics>);

impl Observer for StepLog {
    fn step(&mut self, _: u64, metrics: &Metrics) {
        self.0.push(metrics.clone());
    }

    fn wants_preflight(&self) -> bool {
        true
    }
}

impl StepLog {
    fn of(&self, name: &str) -> f64 {
        self.0.iter().filter_map(|it| it.get(name)).sum()
    }
}

/// Two steps of a recipe on hard problems of which each has a teacher; "-KEY" takes a key away.
fn run(folder: &Path, more: &[&str]) -> (PathBuf, StepLog) {
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/smoke.toml");
    let sets = [
        "steps=2",
        "data.prompts=12",
        "data.teacher_coverage=1",
        "data.levels=[\"add:5\"]",
        "data.max_prompt_tokens=160",
        "sampling.prompts_per_step=6",
        "optim.mini_batch_prompts=3",
        "metrics.kl_every=1",
        "metrics.preflight=0",
    ];
    let (unset, more): (Vec<_>, Vec<_>) = more.iter().partition(|it| it.starts_with('-'));
    let unset = unset.iter().map(|it: &&str| it[1..].to_owned()).collect();
    let overrides = Overrides { unset, ..Overrides::set([&sets[..], &more].concat()) };
    let recipe = Recipe::load_stages(&recipe, &overrides).unwrap();
    let plan = RunPlan::settle(&recipe[0]).unwrap();
    let run_dir = folder.join("run");
    let mut log = StepLog::default();
    train(&plan, &run_dir, ResumePolicy::Fresh, 2, &mut log).unwrap();
    (run_dir, log)
}

fn lines(run_dir: &Path) -> Vec<RolloutLine> {
    (1..=2).flat_map(|it| read_rollouts(&RunFolder(run_dir).rollouts_of(it)).unwrap()).collect()
}

/// The second step is computed again from what was kept, to the bit.
fn replays(run_dir: &Path) {
    let replayed = replay_run::replay_run(run_dir, 2, 1).unwrap();
    assert!(replayed.agrees(), "{replayed:?}");
}

#[test]
fn d36_a_prefix_that_succeeds_enters_a_failed_group() {
    let folder = tempfile::tempdir().unwrap();
    let (run_dir, log) = run(folder.path(), &["hapo.injection=\"prefix\""]);
    let lines = lines(&run_dir);
    let helped: Vec<_> = lines.iter().filter(|it| it.role == Role::Helped).collect();
    assert!(!helped.is_empty(), "some failed group succeeds behind a prefix");
    assert!(helped.iter().all(|it| it.prefix > 0 && it.part > 0 && it.verdict.is_correct()));
    assert!(lines.iter().all(|it| it.log_probs.len() + it.prefix == it.tokens.len()));
    assert!(lines.iter().all(|it| it.role != Role::Teacher));
    let with_help = lines.iter().filter(|it| it.part > 0).count();
    assert_eq!(log.of("growth/helped"), with_help as f64);
    let thrown_away = lines.iter().filter(|it| it.role == Role::Discarded).count();
    assert_eq!(log.of("growth/discarded"), thrown_away as f64);
    assert!(log.of("teacher/token_share") > 0.0, "the prefix is imitated");
    assert_eq!(log.of("sampler/logprob_gap_max"), 0.0);
    replays(&run_dir);
}

#[test]
fn d36_a_rollout_under_a_hint_is_trained_on_behind_the_plain_prompt() {
    for source in ["solution", "answer"] {
        let folder = tempfile::tempdir().unwrap();
        let hints = format!("data.hints=\"{source}\"");
        let (run_dir, log) = run(folder.path(), &["hapo.injection=\"hint\"", &hints]);
        let lines = lines(&run_dir);
        let hinted: Vec<_> = lines.iter().filter(|it| it.part > 0).collect();
        assert!(!hinted.is_empty(), "failed groups are shown hints");
        assert_eq!(log.of("growth/helped"), hinted.len() as f64);
        for it in hinted {
            assert_eq!(it.context, Some(Context::Hint(it.part - 1)));
            assert!(it.context_tokens.len() > it.prompt_tokens.len());
            assert_ne!(it.context_tokens, it.prompt_tokens);
        }
        // What was sampled under a hint is no measure of the sampler.
        assert_eq!(log.of("sampler/logprob_gap_max"), 0.0);
        replays(&run_dir);
    }
}

/// Rows with two hints each: the beginning of the solution, and the whole of it.
fn write_hinted(path: &Path) {
    let levels = vec![("add".to_owned(), 5)];
    let (split, teacher_steps) = (Split::Train, TeacherSteps::default());
    let set = TaskSet { seed: 3, levels, split, count: 12, teacher_coverage: 1.0, teacher_steps };
    let row = |it: &hapo_data::Example| {
        let solution = &it.teachers[0];
        let hints = [&solution[..solution.len() / 3], solution];
        json!({"problem": it.problem, "answer": it.answer, "steps": hints}).to_string() + "\n"
    };
    let rows: String = make_set(&set).unwrap().examples.iter().map(row).collect();
    std::fs::write(path, rows).unwrap();
}

#[test]
fn d36_hints_of_a_column_are_shown_in_its_order() {
    let folder = tempfile::tempdir().unwrap();
    let rows = folder.path().join("rows.jsonl");
    write_hinted(&rows);
    let recipe = format!(
        r#"
        method = "trapo"
        steps = 2
        model.path = "builtin:base"
        sampling = {{ group_size = 8, prompts_per_step = 6, max_new_tokens = 96 }}
        optim = {{ lr = 1e-4, mini_batch_prompts = 3 }}
        hapo = {{ turn_off_epoch = 1.5, injection = "hint" }}
        metrics.preflight = 0
        [data]
        train = {rows:?}
        hints = "column"
        columns = {{ problem = "problem", answer = "answer", hint = ["steps"] }}
        max_prompt_tokens = 160
        "#
    );
    let none = Overrides::set([] as [&str; 0]);
    let recipe = Recipe::parse_stages(&recipe, "test", "test", &none).unwrap();
    let plan = RunPlan::settle(&recipe[0]).unwrap();
    let run_dir = folder.path().join("run");
    train(&plan, &run_dir, ResumePolicy::Fresh, 2, &mut StepLog::default()).unwrap();
    let lines = lines(&run_dir);
    let hinted: Vec<_> = lines.iter().filter(|it| it.part > 0).collect();
    assert!(!hinted.is_empty());
    for it in hinted {
        assert_eq!(it.context, Some(Context::Hint(it.part - 1)));
        assert!(it.part <= 2, "a row has two hints");
        assert!(it.context_tokens.len() > it.prompt_tokens.len());
    }
}

/// The look at the first prompts moves no bit of a run whose groups grow.
#[test]
fn preflight_leaves_a_growing_run_as_it_is() {
    if hapo_testing::slow() {
        return;
    }
    for injection in ["hapo.injection=\"prefix\"", "hapo.injection=\"hint\""] {
        let folder = tempfile::tempdir().unwrap();
        let run_with =
            |name: &str, preflight: &str| run(&folder.path().join(name), &[injection, preflight]).0;
        let (without, with) =
            (run_with("without", "metrics.preflight=0"), run_with("with", "metrics.preflight=4"));
        assert!(lines(&with) == lines(&without), "{injection}");
        assert!(RunFolder(&with).preflight().exists() && !RunFolder(&without).preflight().exists());
    }
}

/// The second model reads a rollout behind the prompt that it is trained on behind, and the gap to it leaves out what
/// was sampled behind another one: with the policy's own weights it is 0 in the first step.
#[test]
fn d38_the_second_model_reads_what_is_trained_on() {
    if hapo_testing::slow() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let reference = ["reference.path=\"builtin:base\"", "loss.kl_coef=0.1"];
    let plain = ["hapo.injection=\"hint\"", "hapo.success_limit=7", "data.verdict_noise=0.4"];
    let under_hints = ["-hapo", "method=\"ghpo\""];
    for (name, method, role) in
        [("plain", &plain[..], Role::Helped), ("hinted", &under_hints, Role::Policy)]
    {
        let (run_dir, log) = run(&folder.path().join(name), &[&reference, method].concat());
        let hinted = |it: &RolloutLine| it.step == 1 && it.role == role && it.context.is_some();
        assert!(lines(&run_dir).iter().any(hinted), "{name}");
        let gap = log.0[0].get("policy/kl_to_reference").unwrap();
        assert!(gap.abs() < 1e-6, "{name}: {gap}");
        replays(&run_dir);
    }
}

#[test]
fn hints_that_do_not_fit_are_refused_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/smoke.toml");
    let sets = ["hapo.injection=\"hint\"", "data.teacher_coverage=1"];
    let recipe = Recipe::load_stages(&recipe, &Overrides::set(sets)).unwrap();
    let plan = RunPlan::settle(&recipe[0]).unwrap();
    let run_dir = folder.path().join("run");
    let refused = train(&plan, &run_dir, ResumePolicy::Fresh, 2, &mut StepLog::default());
    let problem = refused.unwrap_err().to_string();
    assert!(problem.contains("expected a prompt with its hint of at most 32 tokens"), "{problem}");
}

#[test]
fn uft_shows_prefixes_and_then_none() {
    if hapo_testing::slow() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let uft = ["method=\"uft\"", "uft.steps=1", "uft.low=0.5", "uft.weight=0.1"];
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/mini/uft.toml");
    let sets = [
        "steps=2",
        "data.prompts=12",
        "data.teacher_coverage=1",
        "sampling.prompts_per_step=6",
        "optim.mini_batch_prompts=3",
        "metrics.preflight=0",
    ];
    let recipe = Recipe::load_stages(&recipe, &Overrides::set([&sets[..], &uft].concat())).unwrap();
    let run_dir = folder.path().join("run");
    let mut log = StepLog::default();
    let plan = RunPlan::settle(&recipe[0]).unwrap();
    train(&plan, &run_dir, ResumePolicy::Fresh, 2, &mut log).unwrap();
    let lines = lines(&run_dir);
    let prefixes = |step: u64, prompt: u64| {
        let of = lines.iter().filter(move |it| it.step == step && it.prompt_id == prompt);
        of.map(|it| it.prefix).collect::<Vec<_>>()
    };
    let mut shown = 0;
    for it in &lines {
        let all = prefixes(it.step, it.prompt_id);
        assert!(all.iter().all(|prefix| *prefix == all[0]), "one prefix for a group");
        assert!(it.step == 1 || it.prefix == 0, "the schedule ends with its last step");
        shown += usize::from(it.prefix > 0);
    }
    assert!(shown > 0);
    assert_eq!(log.of("growth/helped"), shown as f64);
    let taught = |step: usize| log.0[step].get("teacher/loss").unwrap();
    assert!(taught(0) > 0.0 && taught(1) == 0.0, "{} {}", taught(0), taught(1));
    replays(&run_dir);
}

/// Two steps on problems that the base model solves now and then: failed groups are sampled again under hints.
#[test]
fn methods_with_hints_replace_what_failed() {
    if hapo_testing::slow() {
        return;
    }
    for (method, own) in [("ghpo", "seed=0"), ("scaf-grpo", "scaf-grpo.warmup=1")] {
        let folder = tempfile::tempdir().unwrap();
        let recipe =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../recipes/mini/{method}.toml"));
        let sets = [
            "steps=2",
            "data.prompts=12",
            "data.levels=[\"linear:4\"]",
            "sampling.prompts_per_step=6",
            "optim.mini_batch_prompts=3",
            own,
        ];
        let recipe = Recipe::load_stages(&recipe, &Overrides::set(sets)).unwrap();
        let run_dir = folder.path().join("run");
        let mut log = StepLog::default();
        let plan = RunPlan::settle(&recipe[0]).unwrap();
        train(&plan, &run_dir, ResumePolicy::Fresh, 2, &mut log).unwrap();
        let lines = lines(&run_dir);
        let hinted = lines.iter().filter(|it| it.part > 0);
        assert_eq!(log.of("growth/helped"), hinted.clone().count() as f64, "{method}");
        assert!(hinted.clone().count() > 0, "{method}");
        assert!(hinted.clone().all(|it| it.context_tokens.len() > it.prompt_tokens.len()));
        assert!(method == "ghpo" || hinted.clone().all(|it| it.step == 2), "after the warm-up");
        let trained = lines.iter().filter(|it| it.step == 2 && it.role != Role::Discarded);
        assert!(trained.count() >= 48, "{method}");
        assert_eq!(log.of("sampler/logprob_gap_max"), 0.0, "{method}");
        replays(&run_dir);
    }
}
