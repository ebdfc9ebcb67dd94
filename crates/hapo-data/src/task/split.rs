//! Which problems may be seen when.
//!
//! Purpose: pretraining, training, development and held-out problems are disjoint by construction: a keyed hash of the
//! problem's text, and nothing else, decides where it belongs. No seed, level or order of generation can move it, so a
//! base model published once has never seen a held-out problem of any later run, nor a training problem. Price: one
//! problem in five is lost to pretraining, the shortest multiplication facts included; they still occur as columns of
//! longer ones.

use super::{Family, Problem, TeacherSteps, find_family, keyed_hash};
use crate::{dataset::Dataset, example::Example};
use hapo_core::{CounterRng, Refusal, RngCounter, RngStream};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// Documents the base model is trained on: 80 % of all problems.
    Pretrain,
    /// Prompts of reinforcement learning and of imitation: 10 %.
    Train,
    /// Prompts that learning rates and the like are chosen on: 5 %.
    Development,
    /// Prompts that results are reported on: 5 %.
    HeldOut,
}

impl Split {
    pub fn name(self) -> &'static str {
        match self {
            Split::Pretrain => "pretrain",
            Split::Train => "train",
            Split::Development => "development",
            Split::HeldOut => "held-out",
        }
    }
}

/// The split of a problem, from the SHA-256 of its prompt under a fixed key.
pub fn split_of(prompt: &str) -> Split {
    match keyed_hash("hapo built-in task: split", prompt) % 100 {
        0..80 => Split::Pretrain,
        80..90 => Split::Train,
        90..95 => Split::Development,
        _ => Split::HeldOut,
    }
}

/// Where the problems of sets are drawn, apart from the documents of the corpus.
const SETS: u64 = 2;

/// `count` distinct problems of one level and split, in the order in which the seed draws them: a
/// smaller count gives the beginning of a larger one. Fails when the level does not hold that many.
pub fn problems(
    seed: u64,
    family: &Family,
    level: u32,
    split: Split,
    count: usize,
) -> Result<Vec<Problem>, Refusal> {
    family.check_level(level)?;
    let too_few = |found: usize| {
        let (family, split) = (family.name, split.name());
        let wanted = format!("expected {count} distinct {split} problems, found {found}");
        Refusal::input(format!("family `{family}` level {level}: {wanted}"))
    };
    let mut rng = CounterRng::new(
        seed,
        RngStream::Task,
        RngCounter {
            step: SETS,
            prompt: keyed_hash("hapo built-in task: family", family.name),
            rollout: u64::from(level),
            position: split as u64,
        },
    );
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    // The rarest split is one in twenty. This many draws without a new one say that the level is
    // used up: one that still held a thousandth of a split would be missed once in 10^8 times.
    let mut patience = 0;
    while found.len() < count {
        let problem = (family.problem)(level, &mut rng);
        patience += 1;
        if split_of(&problem.prompt) == split && seen.insert(problem.prompt.clone()) {
            found.push(problem);
            patience = 0;
        } else if patience == 400_000 {
            return Err(too_few(found.len()));
        }
    }
    Ok(found)
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskSet {
    /// Seed of the problems and of the choice of those with a teacher.
    pub seed: u64,
    /// Families and levels; each pair has the same share of the problems, the first ones one more where it is uneven.
    pub levels: Vec<(String, u32)>,
    pub split: Split,
    pub count: usize,
    /// Share of the problems of each level that have a teacher's solution, in [0, 1]. The number is exact up to
    /// rounding; a keyed hash of the problem chooses which, and a larger share keeps the solutions of a smaller one.
    pub teacher_coverage: f64,
    /// How the teacher writes. A problem without such a trace has none, and another one has it instead.
    #[serde(default)]
    pub teacher_steps: TeacherSteps,
}

/// Makes the set. Levels take turns in the order of the examples. Ids are
/// `family-level-split-number`, `source` is the family and `level` the level.
pub fn make_set(set: &TaskSet) -> Result<Dataset, Refusal> {
    if !(0.0..=1.0).contains(&set.teacher_coverage) {
        let got = set.teacher_coverage;
        return Err(Refusal::input(format!("teacher_coverage: expected 0 to 1, got {got}")));
    }
    let mut columns = Vec::with_capacity(set.levels.len());
    for (place, (family, level)) in set.levels.iter().enumerate() {
        let count =
            set.count / set.levels.len() + usize::from(place < set.count % set.levels.len());
        let family = find_family(family)?;
        let problems = problems(set.seed, family, *level, set.split, count)?;
        let trace = |it: &Problem| set.teacher_steps.trace(family, it, set.seed);
        let mut traces = covered(&problems, set, trace);
        let examples = problems.iter().enumerate().map(|(number, problem)| Example {
            id: format!("{}-{level}-{}-{number:05}", family.name, set.split.name()),
            problem: problem.prompt.clone(),
            answer: problem.answer.clone(),
            teachers: traces.remove(&number).map_or(Vec::new(), |first| {
                let second =
                    (set.teacher_steps == TeacherSteps::Two).then(|| family.concise(problem));
                std::iter::once(first).chain(second).collect()
            }),
            source: Some(family.name.to_owned()),
            level: Some(level.to_string()),
            subject: Some("arithmetic".to_owned()),
            ..Example::default()
        });
        columns.push(examples.collect::<Vec<_>>().into_iter());
    }
    let mut examples = Vec::with_capacity(set.count);
    while examples.len() < set.count && !columns.is_empty() {
        examples.extend(columns.iter_mut().filter_map(Iterator::next));
    }
    Ok(Dataset { examples })
}

/// The traces by the numbers of their problems.
fn covered(
    problems: &[Problem],
    set: &TaskSet,
    trace: impl Fn(&Problem) -> Option<String>,
) -> HashMap<usize, String> {
    let key = format!("hapo built-in task: teacher {}", set.seed);
    let mut order: Vec<usize> = (0..problems.len()).collect();
    order.sort_by_cached_key(|number| keyed_hash(&key, &problems[*number].prompt));
    let wanted = (set.teacher_coverage * problems.len() as f64).round() as usize;
    let traced = order.into_iter().filter_map(|it| Some((it, trace(&problems[it])?)));
    traced.take(wanted).collect()
}

/// One of the six benchmarks of the built-in task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldOutSet {
    pub name: &'static str,
    pub family: &'static str,
    pub level: u32,
}

/// `mini6`: of every family the level that recipes train on, and the one below it, which none trains on.
pub const MINI6: &[HeldOutSet] = &[
    HeldOutSet { name: "multiply-5", family: "multiply", level: 5 },
    HeldOutSet { name: "multiply-6", family: "multiply", level: 6 },
    HeldOutSet { name: "add-4", family: "add", level: 4 },
    HeldOutSet { name: "add-5", family: "add", level: 5 },
    HeldOutSet { name: "linear-3", family: "linear", level: 3 },
    HeldOutSet { name: "linear-4", family: "linear", level: 4 },
];

/// The problems of a level in a split that is not trained on: the same for every run, whatever its seed.
pub fn set_of(family: &str, level: u32, split: Split, count: usize) -> Result<Dataset, Refusal> {
    make_set(&TaskSet {
        seed: 0,
        levels: vec![(family.to_owned(), level)],
        split,
        count,
        teacher_coverage: 0.0,
        teacher_steps: TeacherSteps::Exact,
    })
}
