//! Which recipes read which keys. A key that is written where nothing reads it is refused: whoever wrote it expects
//! something of it. The recipe that a run folder keeps leaves it out.

use hapo_core::{AnnealingMode, GateMode, GroupPlan, METHODS, Method};

use super::rules::imitates;
use super::sections::{DataSource, SECTIONS, Settings};

/// The recipes that read a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Every,
    /// Those that train on rollouts.
    Rollouts,
    /// Those that sample, if only for an evaluation.
    Samples,
    /// Those with a teacher in their groups.
    Teacher,
    /// Those that train on groups with a teacher among the rollouts.
    MixedGroups,
    /// Those whose gate looks at confidence.
    Confidence,
    /// Those whose gate closes over the run.
    Annealed,
    /// Those that draw prompts from the built-in task.
    Task,
    /// Those that read data files.
    Files,
    /// Those that train on the built-in corpus.
    Corpus,
    /// Those that render problems and grade answers.
    Rendered,
    /// Those whose grader looks for an answer.
    Answers,
    /// Those whose rewards are verdicts on rollouts.
    Verdicts,
    /// Those with a custom reward.
    CustomReward,
    /// Those that train all weights.
    AllWeights,
}

impl Scope {
    /// Why a recipe does not read the keys of this scope; `None` if it does.
    fn refusal(self, it: &Settings, method: &dyn Method) -> Option<String> {
        let refused = |applies: bool, because: &str| applies.then(|| because.to_owned());
        let of_method = |applies: bool, what: &str| {
            applies.then(|| format!("method = \"{}\" {what}", method.name()))
        };
        let of_data = |applies: bool, what: &str| {
            applies.then(|| format!("data.train = \"{}\" {what}", it.data.train.name()))
        };
        let of_grader = |applies: bool, what: &str| {
            applies.then(|| format!("data.grader = \"{}\" {what}", it.data.grader))
        };
        let is_gate = |mode| it.hapo.as_ref().is_some_and(|hapo| hapo.gate == mode);
        let not = |scope: Self| scope.refusal(it, method);
        let source = &it.data.train;
        match self {
            Self::Every => None,
            Self::Rollouts => of_method(imitates(method), "samples no rollouts"),
            Self::Samples => {
                of_method(imitates(method) && it.eval.is_none(), "samples no rollouts")
            }
            Self::Teacher => {
                let alone = method.sampling() == GroupPlan::Full && !method.can_be_gated();
                of_method(imitates(method) || alone, "lets no teacher into a group").or_else(|| {
                    refused(is_gate(GateMode::Never), "hapo.gate = \"never\" lets no teacher in")
                })
            }
            Self::MixedGroups => not(Self::Rollouts).or_else(|| not(Self::Teacher)),
            Self::Confidence if is_gate(GateMode::Never) => not(Self::Teacher),
            Self::Confidence => {
                refused(is_gate(GateMode::Always), "hapo.gate = \"always\" asks for no confidence")
            }
            Self::Annealed => not(Self::Confidence).or_else(|| {
                let off = |annealing| annealing == AnnealingMode::Off;
                let off = it.hapo.as_ref().is_some_and(|hapo| off(hapo.annealing));
                refused(off, "hapo.annealing = \"off\" keeps the gate as it is")
            }),
            Self::Task => {
                of_data(*source != DataSource::Builtin, "draws no prompts of the built-in task")
            }
            Self::Files => of_data(!matches!(source, DataSource::Files(_)), "is no file"),
            Self::Corpus => of_data(*source != DataSource::Corpus, "is not the built-in corpus"),
            Self::Rendered => {
                let corpus_alone = *source == DataSource::Corpus && it.eval.is_none();
                of_data(corpus_alone, "is rendered already and not graded")
            }
            Self::Answers => not(Self::Rendered).or_else(|| {
                let whole = hapo_verify::grader(&it.data.grader);
                of_grader(whole.is_ok_and(|it| !it.reads_answers()), "looks at whole responses")
            }),
            Self::Verdicts => not(Self::Rollouts).or_else(|| {
                let custom = hapo_reward::is_own(&it.data.grader);
                refused(custom, "a custom reward has no verdicts to flip")
            }),
            Self::CustomReward => {
                of_grader(!hapo_reward::is_own(&it.data.grader), "is no custom reward")
            }
            Self::AllWeights => {
                refused(it.lora.is_some(), "[lora] writes adapters, whose numbers are f32")
            }
        }
    }
}

/// A key, or the table of a method, that a recipe does not read.
#[derive(Clone, Debug)]
pub(super) struct Idle {
    pub(super) key: String,
    pub(super) because: String,
}

/// Every key that a recipe does not read.
pub(super) fn idle_keys(it: &Settings, method: &dyn Method) -> Vec<Idle> {
    let does_not_read = |path: &str| {
        let unread = method.unread_keys().iter().any(|key| {
            path.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        unread.then(|| format!("method = \"{}\" does not read it", method.name()))
    };
    let keys = SECTIONS.iter().flat_map(|(section, keys)| {
        keys.iter().map(move |key| match *section {
            "" => (key.name.to_owned(), key.scope),
            section => (format!("{section}.{}", key.name), key.scope),
        })
    });
    let keys = keys.filter_map(|(key, scope)| {
        let because = scope.refusal(it, method).or_else(|| does_not_read(&key))?;
        Some(Idle { key, because })
    });
    let others = METHODS.iter().filter(|other| other.name != method.name());
    let tables = others.map(|other| Idle {
        key: other.name.to_owned(),
        because: format!("the section is for method = \"{}\"", other.name),
    });
    keys.chain(tables).collect()
}
