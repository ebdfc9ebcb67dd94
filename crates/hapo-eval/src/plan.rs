//! Which problems an evaluation samples completions for, and how.

use std::path::Path;

use hapo_core::Refusal;
use hapo_data::Dataset;
use hapo_data::task::{Split, TaskSet, TeacherSteps, make_set};
use hapo_kernels::{Compute, NumberFormat};
use hapo_sampler::{Decoding, KvMemory, Truncation};
use hapo_verify::{Extracting, Grader};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::benchmark::{Benchmark, SUITES, benchmark, suite, text_checksum};
use crate::graded::Truncated;

/// Completions of each problem where neither the caller nor the benchmark names a number.
const COMPLETIONS: usize = 2;
/// Longest completion in tokens where neither the caller nor a suite names one.
const MAX_TOKENS: usize = 96;

/// A named set of problems.
#[derive(Clone, Debug)]
pub struct EvalSet {
    /// Its name in tables and records.
    pub name: String,
    /// The problems.
    pub dataset: Dataset,
    /// k: completions of each problem.
    pub completions: usize,
    /// The set is the user's file, not a benchmark.
    pub is_file: bool,
}

impl EvalSet {
    /// Key of the set's draws: by its name, so that two benchmarks share none whatever else is evaluated; 0 for a file,
    /// whose name is the user's.
    pub(crate) fn draws(&self) -> u64 {
        if self.is_file { 0 } else { draws_of(&self.name) }
    }

    fn has_dialogues(&self) -> bool {
        self.dataset.examples.iter().any(|it| !it.messages.is_empty())
    }
}

/// Key of the draws of a benchmark or level of that name.
pub fn draws_of(name: &str) -> u64 {
    let digest = Sha256::digest(name.as_bytes());
    let head = digest.first_chunk().expect("a SHA-256 digest has 32 bytes");
    u64::from_be_bytes(*head)
}

/// Several sets, and the longest completion in tokens.
#[derive(Clone, Debug)]
pub struct EvalSets {
    /// The sets, each name once.
    pub sets: Vec<EvalSet>,
    /// Longest completion in tokens.
    pub max_tokens: usize,
}

/// Which sets to evaluate on; the benchmark or its suite supplies the defaults.
#[derive(Clone, Copy, Debug)]
pub struct SetChoice<'a> {
    /// Names of suites and benchmarks, or `family:level` of the built-in task, separated by commas.
    pub names: &'a str,
    /// The folder of the benchmarks that are read from files.
    pub folder: Option<&'a Path>,
    /// Problems of each benchmark of the built-in task.
    pub problems: usize,
    /// The first of each file's problems alone.
    pub first: Option<usize>,
    /// The split of `family:level`.
    pub split: Split,
    /// k.
    pub completions: Option<usize>,
    /// Longest completion in tokens.
    pub max_tokens: Option<usize>,
}

impl EvalSets {
    /// The problems of a file as one set.
    pub fn of_file(
        name: String,
        mut dataset: Dataset,
        first: Option<usize>,
        completions: Option<usize>,
        max_tokens: Option<usize>,
    ) -> Self {
        let completions = completions.unwrap_or(COMPLETIONS);
        dataset.examples.truncate(first.unwrap_or(usize::MAX));
        let set = EvalSet { name, dataset, completions, is_file: true };
        Self { sets: vec![set], max_tokens: max_tokens.unwrap_or(MAX_TOKENS) }
    }

    /// The sets that `choice` names.
    pub fn choose(choice: SetChoice<'_>) -> Result<Self, Refusal> {
        let (mut sets, mut max_tokens) = (Vec::new(), None);
        for name in choice.names.split(',') {
            let members: Vec<&Benchmark> = match (suite(name), benchmark(name)) {
                (Some(it), _) => it.benchmarks.iter().collect(),
                (None, Some(it)) => vec![it],
                (None, None) => {
                    sets.push(EvalSet {
                        name: name.to_owned(),
                        dataset: level(name, choice)?,
                        completions: choice.completions.unwrap_or(COMPLETIONS),
                        is_file: false,
                    });
                    continue;
                }
            };
            for member in members {
                if sets.iter().any(|set: &EvalSet| set.name == member.name) {
                    continue;
                }
                max_tokens = max_tokens.max(suite_max_tokens(member));
                sets.push(set_of(member, choice)?);
            }
        }
        let max_tokens = choice.max_tokens.or(max_tokens).unwrap_or(MAX_TOKENS);
        Ok(Self { sets, max_tokens })
    }
}

/// The longest completion that the benchmark's suite defines.
fn suite_max_tokens(benchmark: &Benchmark) -> Option<usize> {
    let has = |it: &Benchmark| it.name == benchmark.name;
    let suite = SUITES.iter().find(|it| it.benchmarks.iter().any(has));
    suite.and_then(|it| it.max_tokens)
}

fn set_of(benchmark: &Benchmark, choice: SetChoice<'_>) -> Result<EvalSet, Refusal> {
    let dataset = match choice.folder {
        Some(folder) if benchmark.is_file() => {
            let mut all = benchmark.read(folder)?;
            all.examples.truncate(choice.first.unwrap_or(usize::MAX));
            all
        }
        _ => benchmark.problems(choice.problems)?,
    };
    let completions = choice.completions.or(benchmark.completions);
    Ok(EvalSet {
        name: benchmark.name.to_owned(),
        dataset,
        completions: completions.unwrap_or(COMPLETIONS),
        is_file: false,
    })
}

/// Problems of one level of a family of the built-in task.
fn level(name: &str, choice: SetChoice<'_>) -> Result<Dataset, Refusal> {
    let (family, level) = name
        .split_once(':')
        .and_then(|it| Some((it.0, it.1.parse().ok()?)))
        .ok_or_else(|| {
            Refusal::input(format!("unknown benchmark `{name}`")).hint(
                "`hapo list benchmarks` names them; for a dataset: --data FILE or hf://datasets/ORG/NAME",
            )
        })?;
    Ok(make_set(&TaskSet {
        seed: 0,
        levels: vec![(family.to_owned(), level)],
        split: choice.split,
        count: choice.problems,
        teacher_coverage: 0.0,
        teacher_steps: TeacherSteps::Exact,
    })?)
}

/// A local model by its contents: other weights may come to lie under the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprints {
    /// Name of its weights, the adapter's among them.
    pub weights: String,
    /// Hash of its template's text.
    pub template: String,
}

/// An evaluation; its record is bound to all of it.
#[derive(Clone)]
pub struct EvalPlan {
    /// The problems.
    pub sets: Vec<EvalSet>,
    /// The model's folder or name.
    pub model: String,
    /// The contents of a local model; `None` until it is open, and for a server.
    pub fingerprints: Option<Fingerprints>,
    /// The server's base address; `None` for a local model.
    pub endpoint: Option<String>,
    /// The template of a local model, or the text after a problem that is sent to a server.
    pub prompt: String,
    /// k, where one was chosen for all sets.
    pub completions: Option<usize>,
    /// Sampling temperature; 0 takes the most likely token.
    pub temperature: f32,
    /// Nucleus mass.
    pub top_p: f32,
    /// Longest completion in tokens.
    pub max_tokens: usize,
    /// The grader, and the text that it sees.
    pub grader: Extracting<'static>,
    /// Grading of completions that were cut off.
    pub truncated: Truncated,
    /// Seed of the draws and of the intervals.
    pub seed: u64,
    /// Sequences that a local model decodes at once.
    pub max_sequences: usize,
    /// Memory of its keys and values.
    pub kv_memory: KvMemory,
    /// Their number format.
    pub kv_dtype: NumberFormat,
    /// The rounding of its products' factors.
    pub compute: Compute,
}

impl EvalPlan {
    /// How tokens are drawn.
    pub fn decoding(&self) -> Result<Decoding, Refusal> {
        let truncation = Truncation { top_p: self.top_p, ..Truncation::NONE };
        let decoding = Decoding::at_temperature(self.temperature, truncation);
        Ok(decoding?)
    }

    /// The grader whose verdicts appear next to the plan's: `oat` for `math` and the reverse.
    pub fn other_grader(&self) -> Option<Extracting<'static>> {
        let name = self.grader.counterpart()?;
        let other = hapo_verify::grader(name).expect("a counterpart is in the table");
        Some(Extracting::new(other, self.grader.extraction()))
    }

    /// Warnings about the problems' texts before a score is compared with a published one.
    pub fn text_warnings(&self) -> Vec<String> {
        let warning = |it: &EvalSet| benchmark(&it.name)?.other_text(&it.dataset);
        self.sets.iter().filter_map(warning).collect()
    }

    /// The settings that a record must share to be resumed.
    pub fn settings(&self) -> Value {
        let of_sets = |value: fn(&Dataset) -> Value| -> Map<String, Value> {
            self.sets.iter().map(|it| (it.name.clone(), value(&it.dataset))).collect()
        };
        let texts = of_sets(|it| text_checksum(it).into());
        let problems = of_sets(|it| it.examples.len().into());
        let mut settings = json!({
            "texts": texts, "problems": problems, "model": self.model, "endpoint": self.endpoint.as_deref().map(without_secrets),
            "k": self.completions, "temperature": decimal(self.temperature), "top_p": decimal(self.top_p),
            "max_tokens": self.max_tokens, "grader": self.grader.name(),
            "extraction": self.grader.extraction(), "truncated": self.truncated, "prompt": self.prompt, "seed": self.seed,
        });
        if let Some(it) = &self.fingerprints {
            settings["weights"] = json!(it.weights);
            settings["template"] = json!(it.template);
        }
        // A record without it has answers to the last turns of dialogues alone.
        if self.endpoint.is_some() && self.sets.iter().any(EvalSet::has_dialogues) {
            settings["turns"] = json!("all");
        }
        // A record without them is of f32.
        if self.compute != Compute::F32 {
            settings["compute"] = json!(self.compute);
        }
        if self.kv_dtype != NumberFormat::F32 {
            settings["kv_dtype"] = json!(self.kv_dtype);
        }
        settings
    }
}

/// The shortest decimal of a number: 0.6, not 0.6000000238418579.
fn decimal(value: f32) -> f64 {
    value.to_string().parse().expect("the decimal of a number is a number")
}

/// An address without user, password and query.
fn without_secrets(endpoint: &str) -> String {
    let rest = endpoint.split(['?', '#']).next().unwrap_or_default();
    match (rest.find("://"), rest.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => {
            format!("{}{}", &rest[..scheme + 3], &rest[at + 1..])
        }
        _ => rest.to_owned(),
    }
}
