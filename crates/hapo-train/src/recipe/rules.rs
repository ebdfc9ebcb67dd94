//! Rules of a recipe beyond the types of its keys: ranges, and keys that belong together.

use std::fmt::Display;

use hapo_core::{
    Annealing, AnnealingMode, Clip, GateSettings, HapoGate, INJECTIONS, ImportanceRatioLevel, Kl,
    Loss, METHODS, Method, MethodSettings, Needs, Normaliser, Refusal, Schedule, Scored, SlotRule,
    TeacherPick, Threshold, check_slot_rule,
};
use hapo_data::task::{FAMILIES, find_family};
use hapo_run::{REWARD_PARTS, metrics};
use hapo_sampler::{Decoding, Truncation};
use toml::{Table, Value};

use super::sections::{
    EvalSection, HapoSection, InitSection, Settings, path_of, sections_and_keys,
};
use super::text::{find, refused};
use super::values::{AUTO, DataSource, registered};
use super::words::{did_you_mean, explain};
use super::{ModelSource, StageCheckpoint};

type Checked<T = ()> = Result<T, Refusal>;

/// Checks every key's range and every rule between keys that makes no value of its own.
pub(super) fn check(it: &Settings) -> Checked {
    let settings = Table::try_from(it).expect("a recipe is plain data");
    for (section, key) in sections_and_keys() {
        let Some(taken) = key.range.map(|range| range()) else { continue };
        let path = path_of(section, key.name);
        let numbers = find(&settings, &path).map(numbers).unwrap_or_default();
        if let Some(number) = numbers.into_iter().find(|number| !taken.takes(*number)) {
            return range(&path, false, &taken.to_string(), number);
        }
    }
    check_reward(it)?;
    check_sampling(it)?;
    check_rollouts(it)?;
    check_data(it)?;
    check_names(it)?;
    it.eval.as_ref().map_or(Ok(()), check_eval)?;
    it.model.init.as_ref().map_or(Ok(()), check_init)
}

fn range(key: &str, valid: bool, expected: &str, got: impl Display) -> Checked {
    let what = format!("expected {expected}, got {got}");
    refuse_if(!valid, key, what, "`hapo recipe` lists every key")
}

fn refuse_if(is_bad: bool, key: &str, what: impl Into<String>, hint: &str) -> Checked {
    if is_bad { Err(refused(key, what.into(), hint.to_owned())) } else { Ok(()) }
}

fn check_reward(it: &Settings) -> Checked {
    let (success_at, wrong) = (it.reward.success_at, it.reward.wrong);
    if hapo_net::reward::is_own(&it.data.grader) {
        range("reward.success_at", success_at.is_finite(), "a finite reward", success_at)?;
        let below = wrong.is_finite() && wrong < success_at;
        range("reward.wrong", below, "a finite reward below reward.success_at", wrong)
    } else {
        let reachable = success_at > 0.0 && success_at <= 1.0;
        range("reward.success_at", reachable, "a reward in (0, 1]", success_at)?;
        let below = wrong.is_finite() && wrong <= 0.0;
        range("reward.wrong", below, "at most 0, the reward of a wrong answer", wrong)
    }
}

fn check_sampling(it: &Settings) -> Checked {
    it.sampling.decoding().check().map_err(|it| {
        let what = format!("expected {}, got {}", it.expected, it.got);
        refused(&format!("sampling.{}", it.field), what, "`hapo recipe` lists every key")
    })?;
    let stops = !it.sampling.stop.iter().any(String::is_empty);
    range("sampling.stop", stops, "strings of at least one character", "an empty one")
}

/// The server's address and folder, and what a correction cannot go with (D41).
fn check_rollouts(it: &Settings) -> Checked {
    let (rollouts, sampling) = (&it.rollouts, &it.sampling);
    if let Some(server) = &rollouts.server {
        let rest = server.strip_prefix("https://").or_else(|| server.strip_prefix("http://"));
        let is_address = rest.is_some_and(|it| !it.is_empty());
        let address = "an address such as http://127.0.0.1:8000";
        range("rollouts.server", is_address, address, format!("`{server}`"))?;
        let folder = "a folder that the server can read, such as /dev/shm/hapo";
        range("rollouts.weights", !rollouts.weights.is_empty(), folder, "none")?;
    }
    let Some(correction) = rollouts.correction() else { return Ok(()) };
    let is_truncated = sampling.top_p < 1.0 || sampling.top_k > 0 || sampling.min_p > 0.0;
    let what = "a truncated distribution has no ratio to the trainer's: it lacks tokens";
    let hint = "leave out sampling.top_p, top_k and min_p, or sample in this process";
    refuse_if(is_truncated, "rollouts.correction", what, hint)?;
    let by_sequence = it.loss.importance_ratio_level == ImportanceRatioLevel::Sequence;
    let what = "a ratio of a sequence has one weight, not one for each token";
    let hint = "use correction = \"sequence-truncate\" or \"sequence-mask\"";
    refuse_if(by_sequence && correction.kind.is_by_token(), "rollouts.correction", what, hint)
}

fn check_data(it: &Settings) -> Checked {
    let data = &it.data;
    let names = |it: &dyn Display, key: &str, list: &str| {
        refused(key, it.to_string(), format!("`hapo list {list}` names them"))
    };
    if data.template != AUTO {
        let template = data.template_choice().check();
        template.map_err(|it| names(&it, "data.template", "templates"))?;
    }
    if hapo_net::reward::is_own(&data.grader) {
        hapo_net::reward::check(&data.grader).map_err(|it| it.at("data.grader"))?;
    } else {
        hapo_verify::grader(&data.grader).map_err(|it| names(&it, "data.grader", "graders"))?;
    }
    levels(&data.levels).map(drop)
}

fn check_names(it: &Settings) -> Checked {
    let name = it.name.as_deref().unwrap_or("run");
    let plain = !name.is_empty()
        && !name.starts_with('.')
        && !name.contains(|it: char| it == '/' || it == '\\' || it.is_control());
    let folder = "a name for a folder, without slashes and no dot first";
    range("name", plain, folder, format!("`{}`", name.escape_debug()))?;
    let (best, _) = it.best_metric();
    let refuse = |is_bad, what: String, hint| refuse_if(is_bad, "checkpoint.best", what, hint);
    let is_missing = best.starts_with("eval/") && it.eval.is_none();
    let what = format!("`{best}` is only measured with [eval]");
    refuse(is_missing, what, "write [eval] with data or suite")?;
    let is_missing = best == "policy/kl_to_initial" && it.metrics.kl_every == 0;
    let what = format!("`{best}` is only measured with metrics.kl_every");
    refuse(is_missing, what, "set metrics.kl_every")?;
    let known: Vec<&str> = metrics().collect();
    let is_one = best.is_empty() || known.contains(&best) || best.starts_with(REWARD_PARTS);
    let hint = did_you_mean(best, &known, "", "docs/metrics.md lists them");
    refuse(!is_one, format!("expected the name of a metric, got `{best}`"), &hint)
}

fn check_eval(it: &EvalSection) -> Checked {
    range("eval", it.data.is_some() || it.suite.is_some(), "`data` or `suite`", "neither")?;
    Decoding::at_temperature(it.temperature as f32, Truncation::NONE).map_err(|it| {
        let what = format!("expected {}, got {}", it.expected, it.got);
        refused("eval.temperature", what, "0 takes the most likely token")
    })?;
    let differ = it.temperature > 0.0 || it.k == 1;
    range("eval.k", differ, "1 with eval.temperature = 0, which draws nothing", it.k)
}

/// Families and levels of the built-in task; none given means the hard ones of every family.
pub(super) fn levels(names: &[String]) -> Checked<Vec<(String, u32)>> {
    if names.is_empty() {
        let hard = FAMILIES
            .iter()
            .flat_map(|family| family.hard_levels.map(|it| (family.name.to_owned(), it)));
        return Ok(hard.collect());
    }
    let bad = |what: String| refused("data.levels", what, "for example \"multiply:6\"");
    let parse = |name: &String| {
        let parts = name.split_once(':');
        let parts = parts.and_then(|(family, level)| Some((family, level.parse().ok()?)));
        let (family, level) =
            parts.ok_or_else(|| bad(format!("expected family:level, got `{name}`")))?;
        let known = find_family(family).and_then(|it| it.check_level(level));
        known.map_err(|it| bad(it.to_string()))?;
        Ok((family.to_owned(), level))
    };
    names.iter().map(parse).collect()
}

fn check_init(init: &InitSection) -> Checked {
    let parameters = init.layers as u128
        * init.hidden as u128
        * (4 * init.hidden as u128 + 3 * init.ffn as u128);
    let size = "a decoder of at most 10^11 parameters";
    range("model.init", parameters <= 100_000_000_000, size, parameters)?;
    let fits =
        init.hidden.is_multiple_of(init.heads) && (init.hidden / init.heads).is_multiple_of(2);
    let even = "a divisor of hidden that leaves an even head width";
    range("model.init.heads", fits, even, init.heads)?;
    let shared = init.heads.is_multiple_of(init.kv_heads);
    range("model.init.kv_heads", shared, "a divisor of heads", init.kv_heads)
}

pub(super) fn model_of(it: &Settings) -> Checked<ModelSource> {
    match (&it.model.path, &it.model.init) {
        (Some(path), None) => Ok(source_of(path)),
        (None, Some(init)) => Ok(ModelSource::Init(init.clone())),
        _ => {
            let hint = "name a model folder with model.path, or a shape with [model.init]";
            Err(refused("model", "expected exactly one of `path` and `init`", hint))
        }
    }
}

pub(super) fn method_of(it: &Settings, own: &Table) -> Checked<Method> {
    let method = built_method(it, own)?;
    let is_empty = it.data.train == DataSource::Files(Vec::new());
    let hint = "name a file, a folder or a pattern";
    refuse_if(is_empty, "data.train", "expected at least one name, got none", hint)?;
    let grades = needs_of(it, &method).grades;
    if let Some(Err(error)) = it.data.columns.as_ref().map(|columns| columns.check(grades)) {
        let hint =
            "as in { problem = \"question\", answer = \"final_answer\", teacher = [\"solution\"] }";
        return Err(refused("data.columns", error.to_string(), hint));
    }
    let has_no_answers = it.data.train == DataSource::Corpus && method.samples();
    let hint = "use data.train = \"builtin\", or method = \"sft\"";
    refuse_if(has_no_answers, "data.train", "the corpus has no answers to reward", hint)?;
    Ok(method)
}

fn built_method(it: &Settings, own: &Table) -> Checked<Method> {
    let Some(entry) = it.method.entry() else {
        let registered = registered(it.method.name());
        let (name, build) = registered.expect("the recipe's method is known");
        return build(name, own).map_err(|(key, problem)| {
            let key = if key.is_empty() { name.to_owned() } else { format!("{name}.{key}") };
            refused(&key, problem, "the method's own settings are those it was registered with")
        });
    };
    let is_unknown = entry.own_keys.is_empty() && !own.is_empty();
    let what = format!("method = \"{}\" has no table", entry.name);
    refuse_if(is_unknown, entry.name, what, "leave it out")?;
    let mut tables = Table::new();
    if !own.is_empty() {
        tables.insert(entry.name.to_owned(), Value::Table(own.clone()));
    }
    let read = serde_path_to_error::deserialize(Value::Table(tables));
    let mut settings: MethodSettings = read.map_err(|it| {
        let (what, hint) = explain(it.inner().message());
        refused(&it.path().to_string(), what, hint)
    })?;
    settings.group_size = it.sampling.group_size;
    settings.advantage = it.advantage;
    settings.teacher = it.teacher;
    let hint = "`hapo recipe` has the tables of single methods";
    entry.build(&settings).map_err(|it| it.hint(hint))
}

/// A run's requirements: the injection's with HAPO, or the bare method's.
pub(super) fn needs_of(it: &Settings, method: &Method) -> Needs {
    let injected = it.hapo.as_ref().map(|it| (it.injection.help)().needs);
    let needs = injected.unwrap_or_else(|| method.needs());
    match it.teacher.pick {
        TeacherPick::First => needs,
        TeacherPick::Random | TeacherPick::Shortest => Needs { traces: usize::MAX, ..needs },
        TeacherPick::Likeliest => Needs { traces: usize::MAX, scored: Scored::Responses, ..needs },
    }
}

pub(super) fn check_method(it: &Settings, method: &Method) -> Checked {
    let is_bad = !method.takes_negative_rewards && it.reward.wrong < 0.0;
    let what = format!("`{}` cannot learn from rewards below 0", method.name);
    refuse_if(is_bad, "reward.wrong", what, "write 0, or take method = \"grpo\"")?;
    let is_early = it.teacher.pick == TeacherPick::Likeliest && needs_of(it, method).prefixes;
    let what = "a prefix is shown before the weights of the step could score whole trajectories";
    refuse_if(is_early, "teacher.pick", what, "use pick = \"random\" or \"shortest\"")
}

/// The folder of the second model, which is required where something reads it (D38).
pub(super) fn reference_of(it: &Settings, method: &Method) -> Checked<Option<ModelSource>> {
    let needs = needs_of(it, method);
    if !needs.reference && it.loss.kl_coef == 0.0 {
        return Ok(None);
    }
    if let Some(section) = it.reference.as_ref().filter(|it| !it.path.is_empty()) {
        return Ok(Some(source_of(&section.path)));
    }
    let what = match (needs.reference, &it.hapo) {
        (true, Some(it)) => {
            format!("hapo.injection = \"{}\" needs a second model", it.injection.name)
        }
        (true, None) => format!("method = \"{}\" needs a second model", method.name),
        (false, _) => "loss.kl_coef needs the model that the KL is taken to".to_owned(),
    };
    Err(refused("reference.path", what, "name its folder with reference.path"))
}

fn source_of(path: &str) -> ModelSource {
    let Some(stage) = path.strip_prefix("stage:") else {
        return ModelSource::Folder(path.to_owned());
    };
    let which = [("@last", StageCheckpoint::Last), ("@best", StageCheckpoint::Best)];
    let named = which.iter().find_map(|(word, which)| Some((stage.strip_suffix(word)?, *which)));
    let (name, which) = named.unwrap_or((stage, StageCheckpoint::Settled));
    ModelSource::Stage(name.to_owned(), which)
}

pub(super) fn gate_of(it: &Settings, method: &Method) -> Checked<Option<HapoGate>> {
    let Some(hapo) = &it.hapo else { return Ok(None) };
    if !method.plan.can_be_gated && !method.is_plain_host() {
        return Err(not_gateable(method));
    }
    let (rule, injection) = (hapo.gate, hapo.injection);
    let is_annealed = rule.reads.contains(&"annealing");
    let annealing = match (hapo.annealing, hapo.turn_off_epoch) {
        (AnnealingMode::Sigmoid, Some(turn_off_epoch)) if is_annealed => {
            Annealing::Sigmoid { turn_off_epoch, steepness: hapo.steepness }
        }
        (AnnealingMode::Sigmoid, None) if is_annealed => {
            let what = "annealing needs the epoch at which the teacher leaves";
            let hint = "the paper never states it; its presets here use turn_off_epoch = 1.5";
            return Err(refused("hapo.turn_off_epoch", what, hint));
        }
        _ => Annealing::Off,
    };
    let gate = (rule.table)(threshold_of(hapo)?, annealing);
    check_gate_settings(it, hapo)?;
    let may_be_empty = hapo.slot == SlotRule::Fixed && injection.name != INJECTIONS[0].name;
    let what = format!("hapo.injection = \"{}\" may leave a fixed slot empty", injection.name);
    refuse_if(may_be_empty, "hapo.slot", what, "use slot = \"lowest-reward\"")?;
    let by_sequence = it.loss.importance_ratio_level == ImportanceRatioLevel::Sequence;
    let is_bad = by_sequence && (injection.help)().needs.reference;
    let what =
        "a ratio of a sequence has no token to be weighted, as hapo.injection = \"distill\" does";
    let hint = "use importance_ratio_level = \"token\"";
    refuse_if(is_bad, "loss.importance_ratio_level", what, hint)?;
    let hint = "use slot = \"lowest-reward\" with a gate that may be closed";
    check_slot_rule(&gate, hapo.slot).map_err(|it| it.at("hapo.slot").hint(hint))?;
    // The schedule is built when the data are known; what it would refuse is refused here.
    let hint = "`hapo recipe hapo` lists the gate's keys";
    Schedule::new(&gate, it.sampling.group_size, 1).map_err(|it| it.at("hapo").hint(hint))?;
    let settings = GateSettings {
        discount: hapo.discount,
        exposures: hapo.exposures,
        steps: it.steps,
        ..GateSettings::default()
    };
    let takes_trace = !method.plan.can_be_gated && (injection.help)().takes_trace();
    let (what, host, slot) = (injection.name, method.name, hapo.slot);
    let what = format!("hapo.injection = \"{what}\" needs it: `{host}` has no term for a teacher");
    let hint = "write teacher.operator = \"luffy\", or another of `hapo list operators`";
    refuse_if(takes_trace && it.teacher.operator.is_none(), "teacher.operator", what, hint)?;
    Ok(Some(HapoGate { rule, gate, settings, slot, injection, teacher: it.teacher }))
}

fn check_gate_settings(it: &Settings, hapo: &HapoSection) -> Checked {
    let rule = hapo.gate;
    let missing = |key: &str, is_missing: bool, hint: &'static str| {
        let what = format!("hapo.gate = \"{}\" needs it", rule.name);
        refuse_if(is_missing && rule.reads.iter().any(|it| key.ends_with(it)), key, what, hint)
    };
    let hint = "write how many groups of the run something may enter";
    missing("hapo.exposures", hapo.exposures == 0, hint)?;
    missing("hapo.record", hapo.record.is_empty(), "name the folder of a finished run")?;
    let replaces = rule.chooses && it.sampling.dynamic_sampling > 0;
    let what = format!("hapo.gate = \"{}\" chooses among all groups of a step", rule.name);
    refuse_if(replaces, "sampling.dynamic_sampling", what, "use dynamic_sampling = 0")
}

fn not_gateable(method: &Method) -> Refusal {
    let gateable = METHODS.iter().filter(|it| {
        let built = it.build(&MethodSettings::default());
        built.is_ok_and(|it| it.plan.can_be_gated || it.is_plain_host())
    });
    let names: Vec<&str> = gateable.map(|it| it.name).collect();
    let hint = format!("HAPO wraps {}", names.join(", "));
    let (name, needs) = (method.name, method.needs());
    let what = if !needs.samples() {
        format!("`{name}` samples no rollouts for the gate to look at")
    } else if needs.prefixes {
        "the prefixes decide when the teacher helps, which leaves nothing to the gate".to_owned()
    } else if needs.hints {
        format!("`{name}` shows hints by its own rule, which leaves nothing to the gate")
    } else if needs.reference || needs.scores_members {
        format!("`{name}` reads scores of its rollouts, which what enters does not have")
    } else {
        format!("`{name}` decides by itself what enters, which leaves nothing to the gate")
    };
    refused("hapo", what, hint)
}

fn threshold_of(hapo: &HapoSection) -> Checked<Threshold> {
    match (hapo.success_limit, hapo.gamma0) {
        (Some(_), Some(_)) => {
            let what = "expected one of `success_limit` and `gamma0`, got both";
            Err(refused("hapo", what, "m and γ0 say the same thing twice: keep one"))
        }
        (limit, None) => Ok(Threshold::Derived { success_limit: limit.unwrap_or(0) }),
        (None, Some(gamma0)) => Ok(Threshold::Manual { gamma0 }),
    }
}

pub(super) fn loss_of(it: &Settings, method: &Method) -> Loss {
    let loss = &it.loss;
    Loss {
        clip: Clip { low: loss.clip_low, high: loss.clip_high },
        importance_ratio_level: loss.importance_ratio_level,
        // Plain imitation is a mean over tokens (the table of methods); it has no constant form.
        normaliser: if method.samples() {
            loss.normaliser.of(it.sampling.max_new_tokens)
        } else {
            Normaliser::TOKEN_MEAN
        },
        entropy_coef: loss.entropy_coef,
        entropy_over: loss.entropy_over,
        teacher_apart: method.plan.teacher_apart,
        kl: (loss.kl_coef > 0.0).then_some(Kl { coef: loss.kl_coef, estimator: loss.kl_estimator }),
    }
}

fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Integer(number) => vec![*number as f64],
        Value::Float(number) => vec![*number],
        Value::Array(values) => values.iter().flat_map(numbers).collect(),
        _ => Vec::new(),
    }
}
