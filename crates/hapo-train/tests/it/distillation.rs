//! D38: on-policy distillation from a second model, and the KL term to it.

use std::path::Path;

use hapo_train::replay_run::replay_run;
use hapo_train::{
    Metrics, Observer, Overrides, Recipe, ResumePolicy, Run, RunPlan, Sources, train,
};

/// A teacher by imitation, and a student that is distilled from it.
const RECIPE: &str = r#"
    model.path = "builtin:base"
    data = { train = "builtin", prompts = 64, levels = ["multiply:6"], teacher_coverage = 1.0, max_prompt_tokens = 32 }
    sampling = { group_size = 2, prompts_per_step = 8, max_new_tokens = 64 }
    metrics.preflight = 4
    [[stage]]
    name = "teacher"
    method = "sft"
    steps = 12
    optim.lr = 5e-4
    [[stage]]
    name = "student"
    method = "opd"
    steps = 14
    reference.path = "stage:teacher"
    loss.normaliser = "token-mean"
    optim.lr = 5e-4
    checkpoint.every = 2
"#;

const KL: &str = "policy/kl_to_reference";

#[derive(Default)]
struct Logged(Vec<Metrics>);

impl Observer for Logged {
    fn step(&mut self, _: u64, metrics: &Metrics) {
        self.0.push(metrics.clone());
    }

    fn wants_preflight(&self) -> bool {
        true
    }
}

impl Logged {
    fn values(&self, name: &str) -> Vec<f64> {
        self.0.iter().filter_map(|it| it.get(name)).collect()
    }
}

fn stages(set: &[&str]) -> Vec<Recipe> {
    Recipe::parse_stages(RECIPE, "test", "test", &Overrides::set(set.iter().copied())).unwrap()
}

/// Trains a stage in a folder.
fn run(recipe: &Recipe, folder: &Path, policy: ResumePolicy) -> Result<Logged, String> {
    let run_dir = folder.join(recipe.stage().unwrap());
    let plan = RunPlan::settle_in(&run_dir, recipe, Sources::default()).unwrap();
    let mut logged = Logged::default();
    train(&plan, &run_dir, policy, 2, &mut logged).map_err(|it| it.to_string())?;
    Ok(logged)
}

#[test]
fn d38_distillation_halves_the_gap_to_the_teacher_and_is_replayed_bit_for_bit() {
    if hapo_testing::slow() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let all = stages(&[]);
    run(&all[0], folder.path(), ResumePolicy::Fresh).unwrap();
    let student = run(&all[1], folder.path(), ResumePolicy::Fresh).unwrap();
    let kl = student.values(KL);
    assert_eq!(kl.len(), 14);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (first, last) = (mean(&kl[..2]), mean(&kl[12..]));
    // A divergence, so above 0 but for the noise of sampling: other scores than the teacher's give another sign.
    assert!(first > 0.1 && last.abs() < 0.5 * first, "mean log π − log π_T: {kl:?}");

    let replayed = replay_run(&folder.path().join("student"), 5, 1).unwrap();
    assert!(replayed.agrees(), "{replayed:?}");

    // Another teacher in the same place is another run.
    std::fs::remove_dir_all(folder.path().join("teacher")).unwrap();
    run(&stages(&["stage.teacher.steps=3"])[0], folder.path(), ResumePolicy::Fresh).unwrap();
    std::fs::remove_dir_all(folder.path().join("student/checkpoints/step-000014")).unwrap();
    let problem = run(&all[1], folder.path(), ResumePolicy::Resume).err().unwrap();
    assert!(problem.contains("the second model (reference)"), "{problem}");
}

/// The first step is at the reference itself, where k3 has no slope; after it the term moves the weights.
#[test]
fn d18_a_kl_term_is_in_the_loss_once_the_weights_have_left_the_reference() {
    let losses = |more: &str| {
        let text = format!(
            r#"
            method = "grpo"
            steps = 3
            model.path = "builtin:base"
            data = {{ train = "builtin", prompts = 16, levels = ["multiply:2"], max_prompt_tokens = 32 }}
            sampling = {{ group_size = 4, prompts_per_step = 8, max_new_tokens = 48 }}
            optim.lr = 1e-3
            reference.path = "builtin:base"
            {more}
            "#
        );
        let recipe = Recipe::parse(&text, "test", &Overrides::default()).unwrap();
        let mut run = Run::new(&RunPlan::settle(&recipe).unwrap(), 2).unwrap();
        let steps: Vec<Metrics> = (0..3).map(|_| run.step().unwrap()).collect();
        assert_eq!(steps[0].get(KL).map(|it| it.abs() < 1e-5), Some(true), "the same weights");
        steps.iter().map(|it| it.get("loss").unwrap()).collect::<Vec<_>>()
    };
    let (without, with) = (losses("loss.kl_coef = 1e-9"), losses("loss.kl_coef = 2.0"));
    assert!((without[0] - with[0]).abs() < 1e-6, "{without:?} {with:?}");
    assert!((without[1] - with[1]).abs() > 1e-4, "{without:?} {with:?}");
}

/// Nothing is graded, so problems need no answer, and what is counted of answers is not there.
#[test]
fn d38_problems_without_a_gold_answer_are_distilled_and_not_graded() {
    let folder = tempfile::tempdir().unwrap();
    let rows = folder.path().join("rows.jsonl");
    let row = |it: u32| format!("{{\"q\": \"12*{it}=?\"}}\n");
    std::fs::write(&rows, (3..11).map(row).collect::<String>()).unwrap();
    let recipe = |method: &str| {
        let text = format!(
            r#"
            method = "{method}"
            steps = 2
            model.path = "builtin:base"
            data = {{ train = {rows:?}, columns = {{ problem = "q" }}, max_prompt_tokens = 32 }}
            sampling = {{ group_size = 2, prompts_per_step = 4, max_new_tokens = 48 }}
            metrics.preflight = 4
            "#
        );
        let more = ["reference.path=\"builtin:base\""];
        let more = Overrides::set(more.into_iter().filter(|_| method == "opd"));
        let recipes = Recipe::parse_stages(&text, "test", "test", &more);
        recipes.map(|mut it| it.remove(0)).map_err(|it| it.to_string())
    };
    let run_dir = folder.path().join("run");
    let plan = RunPlan::settle(&recipe("opd").unwrap()).unwrap();
    let mut logged = Logged::default();
    train(&plan, &run_dir, ResumePolicy::Fresh, 2, &mut logged).unwrap();
    for metrics in &logged.0 {
        let of_answers = ["reward/", "verify/", "groups/all"];
        let absent = |name: &str| of_answers.iter().all(|it| !name.starts_with(it));
        assert!(metrics.iter().all(|it| absent(it.0)), "{metrics:?}");
        assert!(metrics.get(KL).is_some() && metrics.get("response_length/mean").is_some());
    }
    assert!(replay_run(&run_dir, 2, 1).unwrap().agrees());
    let graded = recipe("grpo").unwrap_err();
    assert!(graded.contains("answer or teacher"), "{graded}");
}

#[test]
fn a_reference_is_required_where_it_is_read_and_refused_elsewhere() {
    let problem = |text: &str| {
        let text = format!("model.path = \"builtin:base\"\ndata.train = \"builtin\"\n{text}");
        Recipe::parse(&text, "test", &Overrides::default()).unwrap_err().to_string()
    };
    let opd = problem("method = \"opd\"");
    assert!(opd.contains("reference.path") && opd.contains("needs a second model"), "{opd}");
    let kl = problem("method = \"grpo\"\nloss.kl_coef = 0.1");
    assert!(kl.contains("the model that the KL is taken to"), "{kl}");
    let unread = problem("method = \"grpo\"\nreference.path = \"builtin:base\"");
    assert!(unread.contains("asks for no reference"), "{unread}");
    let level = "method = \"opd\"\nreference.path = \"builtin:base\"\n";
    let level = problem(&format!("{level}loss.importance_ratio_level = \"sequence\""));
    assert!(level.contains("importance_ratio_level"), "{level}");
    let estimator = problem("method = \"grpo\"\nloss.kl_estimator = \"k2\"");
    assert!(estimator.contains("loss.kl_coef is 0"), "{estimator}");
}

/// TGOPD counts the answers of the teacher, equal ones too: of 3 in `hapo teacher`'s rows 2, 3, 1 and none are right.
#[test]
fn a_prompt_is_trusted_for_each_verified_answer_of_its_teacher() {
    let folder = tempfile::tempdir().unwrap();
    let rows = folder.path().join("traces.jsonl");
    let row = |(number, right): (u64, usize)| {
        let sum = number + 20;
        let answers = vec![format!("{number}+20={sum}\n\\boxed{{{sum}}}"); right];
        let teacher = if right > 0 { answers.into() } else { serde_json::Value::Null };
        let (id, problem) = (number.to_string(), format!("{number}+20=?"));
        let row = serde_json::json!({ "id": id, "problem": problem, "answer": sum.to_string(), "teacher": teacher });
        format!("{row}\n")
    };
    std::fs::write(&rows, (11..).zip([2, 3, 1, 0]).map(row).collect::<String>()).unwrap();
    let trusted = |traces: &str| {
        let text = format!(
            r#"
            method = "tgopd"
            steps = 2
            model.path = "builtin:base"
            reference.path = "builtin:base"
            data = {{ train = {rows:?}, grader = "math", max_prompt_tokens = 32 }}
            sampling = {{ group_size = 2, prompts_per_step = 4, max_new_tokens = 48 }}
            {traces}
            "#
        );
        let recipe = Recipe::parse(&text, "test", &Overrides::default()).unwrap();
        let mut run = Run::new(&RunPlan::settle(&recipe).unwrap(), 2).unwrap();
        let warnings = run.warnings();
        assert!(!warnings.iter().any(|it| it.contains("not used")), "{warnings:?}");
        run.step().unwrap().get("gate/beta").unwrap()
    };
    assert_eq!([trusted(""), trusted("tgopd.traces = 1")], [0.5, 0.75]);
    assert_eq!([trusted("tgopd.traces = 3"), trusted("tgopd.traces = 4")], [0.25, 0.0]);
}
