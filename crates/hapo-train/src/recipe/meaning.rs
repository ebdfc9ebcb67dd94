//! Keys that the rest of a recipe makes meaningless. Written, they are refused: whoever wrote one expects
//! something of it. The recipe that a run folder keeps leaves them out.

use hapo_core::{AnnealingMode, GateMode, GroupPlan, METHODS, Method};

use super::rules::imitates;
use super::sections::{DataSource, Settings};

/// Keys, or whole sections, and why they mean nothing.
pub(super) struct Meaningless {
    pub(super) keys: Vec<String>,
    pub(super) because: String,
}

/// Every key that means nothing in a recipe.
pub(super) fn meaningless(it: &Settings, method: &dyn Method) -> Vec<Meaningless> {
    let mut all = Vec::new();
    let mut add = |applies: bool, keys: &[&str], because: &str| {
        if applies {
            all.push(Meaningless {
                keys: keys.iter().map(|it| (*it).to_owned()).collect(),
                because: because.to_owned(),
            });
        }
    };
    of_method(it, method, &mut add);
    of_gate(it, &mut add);
    of_data(it, &mut add);
    let adapter = "[lora] writes adapters, whose numbers are f32";
    add(it.lora.is_some(), &["model.dtype"], adapter);
    all
}

fn of_method(it: &Settings, method: &dyn Method, add: &mut impl FnMut(bool, &[&str], &str)) {
    let with = |what: &str| format!("method = \"{}\" {what}", method.name());
    let sampled = [
        "sampling.group_size",
        "sampling.temperature",
        "sampling.top_p",
        "sampling.top_k",
        "sampling.min_p",
        "sampling.dynamic_sampling",
        "data.truncated",
        "data.verdict_noise",
        "metrics.kl_every",
        "metrics.gap_every",
        "metrics.rollouts_every",
        "metrics.preflight",
        "loss",
        "advantage",
        "guard",
    ];
    add(imitates(method), &sampled, &with("samples no rollouts"));
    // An evaluation samples.
    let of_any_sample = ["sampling.stop", "sampling.max_sequences", "sampling.kv_memory"];
    let none = imitates(method) && it.eval.is_none();
    add(none, &of_any_sample, &with("samples no rollouts"));
    let teacher = ["teacher", "advantage.group", "guard.beta_rise"];
    let rollouts_only = method.sampling() == GroupPlan::Full && !method.can_be_gated();
    let no_teacher = imitates(method) || rollouts_only;
    add(no_teacher, &teacher, &with("lets no teacher into a group"));
    add(true, method.unread_keys(), &with("does not read it"));
    for other in METHODS.iter().filter(|it| it.name != method.name()) {
        let because = format!("the section is for method = \"{}\"", other.name);
        add(true, &[other.name], &because);
    }
}

fn of_gate(it: &Settings, add: &mut impl FnMut(bool, &[&str], &str)) {
    const THRESHOLD: &[&str] = &["hapo.success_limit", "hapo.gamma0", "hapo.annealing"];
    const ANNEALING: &[&str] = &["hapo.turn_off_epoch", "hapo.steepness"];
    let Some(hapo) = &it.hapo else {
        return;
    };
    let (always, never) = (hapo.gate == GateMode::Always, hapo.gate == GateMode::Never);
    for keys in [THRESHOLD, ANNEALING] {
        add(always, keys, "hapo.gate = \"always\" asks for no confidence");
        add(never, keys, "hapo.gate = \"never\" lets no teacher in");
    }
    let of_teacher = ["hapo.slot", "teacher", "advantage.group", "guard.beta_rise"];
    add(never, &of_teacher, "hapo.gate = \"never\" lets no teacher in");
    let off = hapo.annealing == AnnealingMode::Off;
    add(off, ANNEALING, "hapo.annealing = \"off\" keeps the gate as it is");
}

fn of_data(it: &Settings, add: &mut impl FnMut(bool, &[&str], &str)) {
    let source = &it.data.train;
    let because = format!("data.train = \"{}\"", source.name());
    let drawn =
        ["data.prompts", "data.seed", "data.levels", "data.teacher_coverage", "data.teacher_steps"];
    let not_drawn = format!("{because} draws no prompts of the built-in task");
    add(*source != DataSource::Builtin, &drawn, &not_drawn);
    let made = !matches!(source, DataSource::Files(_));
    add(made, &["data.columns"], &format!("{because} is no file"));
    let corpus = *source == DataSource::Corpus;
    let no_documents = format!("{because} is not the built-in corpus");
    add(!corpus, &["data.mixture"], &no_documents);
    let rendered = [
        "data.template",
        "data.template_system",
        "data.template_suffix",
        "data.overlong",
        "data.grader",
        "data.extraction",
    ];
    let as_they_are = format!("{because} is rendered already and not graded");
    add(corpus && it.eval.is_none(), &rendered, &as_they_are);
    let own = hapo_reward::is_own(&it.data.grader);
    let because = format!("data.grader = \"{}\" is none of one's own", it.data.grader);
    let of_own =
        ["reward.timeout", "reward.start_timeout", "reward.workers", "reward.on_failure"];
    add(!own, &of_own, &because);
    add(own, &["data.verdict_noise"], "a reward of one's own has no verdicts to flip");
    let grader = hapo_verify::grader(&it.data.grader);
    let shape = grader.is_ok_and(|it| !it.reads_answers());
    let because = format!("data.grader = \"{}\" looks at whole responses", it.data.grader);
    add(shape, &["data.extraction"], &because);
}
