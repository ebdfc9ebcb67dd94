//! Keys that a recipe does not read. A key that is written where nothing reads it is refused: whoever wrote it expects
//! something of it. The recipe that a run folder keeps leaves it out.

use hapo_core::{AnnealingMode, GATES, Gate, GateRule, Method, Needs};

use super::rules::needs_of;
use super::sections::{SECTIONS, Scope, Settings, path_of};
use super::values::{DataSource, method_names};

/// A key, or the table of a method, that a recipe does not read.
#[derive(Clone, Debug)]
pub(super) struct Idle {
    pub(super) key: String,
    pub(super) because: String,
}

pub(super) fn idle_keys(it: &Settings, method: &Method) -> Vec<Idle> {
    let does_not_read = |path: &str| {
        let unread = method.unread_keys.iter().any(|key| {
            path.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        unread.then(|| format!("method = \"{}\" does not read it", method.name))
    };
    let gate = it.hapo.as_ref().map_or(&GATES[0], |hapo| hapo.gate);
    let gate_does_not_read = |path: &str| {
        let key = path.strip_prefix("hapo.")?;
        let reads = |rule: &GateRule| rule.reads.contains(&key);
        let unread = GATES.iter().any(&reads) && !reads(gate);
        unread.then(|| format!("hapo.gate = \"{}\" does not read it", gate.name))
    };
    let all =
        SECTIONS.iter().flat_map(|(section, keys)| keys.iter().map(move |key| (*section, key)));
    let keys = all.filter_map(|(section, key)| {
        let (key, scope) = (path_of(section, key.name), key.scope);
        let because = refusal(scope, it, method)
            .or_else(|| gate_does_not_read(&key))
            .or_else(|| does_not_read(&key))?;
        Some(Idle { key, because })
    });
    let others = method_names().into_iter().filter(|other| *other != method.name);
    let tables = others.map(|other| Idle {
        key: other.to_owned(),
        because: format!("the section is for method = \"{other}\""),
    });
    keys.chain(tables).collect()
}

/// Why a recipe does not read the keys of this scope; `None` if it does.
fn refusal(scope: Scope, it: &Settings, method: &Method) -> Option<String> {
    let refused = |applies: bool, because: &str| applies.then(|| because.to_owned());
    let of_method =
        |applies: bool, what: &str| applies.then(|| format!("method = \"{}\" {what}", method.name));
    let of_data = |applies: bool, what: &str| {
        applies.then(|| format!("data.train = \"{}\" {what}", it.data.train.name()))
    };
    let of_grader = |applies: bool, what: &str| {
        applies.then(|| format!("data.grader = \"{}\" {what}", it.data.grader))
    };
    let not = |scope| refusal(scope, it, method);
    let source = &it.data.train;
    match scope {
        Scope::Every => None,
        Scope::Rollouts => of_method(!method.samples(), "samples no rollouts"),
        Scope::Samples => of_method(!method.samples() && it.eval.is_none(), "samples no rollouts"),
        Scope::Teacher => {
            let Needs { prefixes, hints, .. } = method.needs();
            let alone = it.hapo.is_none() || !method.is_plain_host();
            let alone = alone && method.plan.gate == Gate::Never && !prefixes && !hints;
            of_method(!method.samples() || alone, "lets no teacher into a group").or_else(|| {
                let never = it.hapo.as_ref().is_some_and(|hapo| hapo.gate.name == "never");
                refused(never, "hapo.gate = \"never\" lets no teacher in")
            })
        }
        Scope::Trace => not(Scope::Teacher).or_else(|| {
            let injection = it.hapo.as_ref().map(|hapo| hapo.injection);
            let other = injection.filter(|it| !(it.help)().takes_trace())?;
            Some(format!("hapo.injection = \"{}\" lets no trajectory in", other.name))
        }),
        Scope::Operator => not(Scope::Trace)
            .or_else(|| of_method(!method.is_plain_host(), "has an operator of its own")),
        Scope::MixedGroups => not(Scope::Rollouts).or_else(|| not(Scope::Teacher)),
        Scope::Hints => of_method(!needs_of(it, method).hints, "shows no hints"),
        Scope::Slot => not(Scope::Teacher).or_else(|| {
            let distills = it.hapo.is_some() && needs_of(it, method).reference;
            refused(distills, "hapo.injection = \"distill\" takes no slot")
        }),
        Scope::Memory => refused(
            !needs_of(it, method).memory,
            "nothing is remembered between steps, as hapo.injection = \"replay\" does",
        ),
        Scope::Annealed => not(Scope::Teacher).or_else(|| {
            let off = it.hapo.as_ref().is_some_and(|hapo| hapo.annealing == AnnealingMode::Off);
            refused(off, "hapo.annealing = \"off\" keeps the gate as it is")
        }),
        Scope::Task => {
            of_data(*source != DataSource::Builtin, "draws no prompts of the built-in task")
        }
        Scope::Files => of_data(!matches!(source, DataSource::Files(_)), "is no file"),
        Scope::Corpus => of_data(*source != DataSource::Corpus, "is not the built-in corpus"),
        Scope::Rendered => {
            let corpus_alone = *source == DataSource::Corpus && it.eval.is_none();
            of_data(corpus_alone, "is rendered already and not graded")
        }
        Scope::Answers => not(Scope::Rendered).or_else(|| {
            let whole = hapo_verify::grader(&it.data.grader);
            of_grader(whole.is_ok_and(|it| !it.reads_answers()), "looks at whole responses")
        }),
        Scope::Verdicts => not(Scope::Rollouts).or_else(|| {
            let custom = hapo_net::reward::is_own(&it.data.grader);
            refused(custom, "a custom reward has no verdicts to flip")
        }),
        Scope::CustomReward => {
            of_grader(!hapo_net::reward::is_own(&it.data.grader), "is no custom reward")
        }
        Scope::Reference => not(Scope::Rollouts).or_else(|| {
            let unasked = !needs_of(it, method).reference && it.loss.kl_coef == 0.0;
            of_method(unasked, "asks for no reference, and loss.kl_coef is 0")
        }),
        Scope::Entropy => not(Scope::Rollouts)
            .or_else(|| refused(it.loss.entropy_coef == 0.0, "loss.entropy_coef is 0")),
        Scope::Kl => {
            not(Scope::Rollouts).or_else(|| refused(it.loss.kl_coef == 0.0, "loss.kl_coef is 0"))
        }
        Scope::Served => not(Scope::Rollouts)
            .or_else(|| refused(it.rollouts.server.is_none(), "rollouts.server names no server")),
        Scope::Corrected => not(Scope::Rollouts).or_else(|| {
            let uncorrected = it.rollouts.correction().is_none();
            refused(uncorrected, "nothing is corrected without rollouts.correction")
        }),
        Scope::AllWeights => {
            refused(it.lora.is_some(), "[lora] writes adapters, whose numbers are f32")
        }
    }
}
