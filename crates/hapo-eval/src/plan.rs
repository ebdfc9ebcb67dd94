//! Which completions are wanted, and how they are sampled and graded.

use hapo_core::{Refusal, Truncated};
use hapo_data::task::{self, Split};
use hapo_data::{Dataset, Example};
use hapo_kernels::{Compute, NumberFormat};
use hapo_sampler::{Decoding, KvMemory, Truncation};
use hapo_verify::{Extracting, Grader};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::benchmark::{Benchmark, SUITES, benchmark};

/// Completions of each problem where neither the caller nor the benchmark names a number.
const COMPLETIONS: usize = 2;
/// Longest completion in tokens where neither the caller nor a suite names one.
const MAX_TOKENS: usize = 96;

#[derive(Clone, Debug)]
pub struct ProblemSet {
    pub name: String,
    pub dataset: Dataset,
    /// k: completions of each problem.
    pub completions: usize,
    /// Key of a local model's draws beside the seed: by the name of a benchmark, so that two of them share none whatever
    /// else is evaluated; 0 for a file, whose name is the user's.
    pub draws: u64,
}

/// Key of the draws of a benchmark or level of that name.
pub fn draws_of(name: &str) -> u64 {
    let digest = Sha256::digest(name.as_bytes());
    let head = digest.first_chunk().expect("a SHA-256 digest has 32 bytes");
    u64::from_be_bytes(*head)
}

#[derive(Clone, Debug)]
pub struct ProblemSets {
    pub sets: Vec<ProblemSet>,
    pub max_tokens: usize,
}

/// Which sets to evaluate on; the benchmark or its suite supplies the defaults.
#[derive(Clone, Copy, Debug)]
pub struct SetChoice<'a> {
    /// Names of suites and benchmarks, or `family:level` of the built-in task, separated by commas.
    pub names: &'a str,
    /// The folder of the benchmarks that are read from files.
    pub folder: Option<&'a std::path::Path>,
    /// Problems of each benchmark of the built-in task.
    pub problems: usize,
    /// The first of each file's problems alone.
    pub first: Option<usize>,
    pub split: Split,
    pub completions: Option<usize>,
    pub max_tokens: Option<usize>,
}

impl ProblemSets {
    pub fn of_file(
        name: String,
        mut dataset: Dataset,
        first: Option<usize>,
        completions: Option<usize>,
        max_tokens: Option<usize>,
    ) -> Self {
        let completions = completions.unwrap_or(COMPLETIONS);
        dataset.examples.truncate(first.unwrap_or(usize::MAX));
        let set = ProblemSet { name, dataset, completions, draws: 0 };
        Self { sets: vec![set], max_tokens: max_tokens.unwrap_or(MAX_TOKENS) }
    }

    pub fn choose(choice: SetChoice<'_>) -> Result<Self, Refusal> {
        let (mut sets, mut max_tokens) = (Vec::new(), None);
        for name in choice.names.split(',') {
            let all =
                SUITES.iter().flat_map(|suite| suite.benchmarks.iter().map(move |it| (suite, it)));
            let mut members = all.filter(|it| it.0.name == name || it.1.name == name).peekable();
            if members.peek().is_none() {
                sets.push(choice.set(name, level(name, choice)?, None));
            }
            for (suite, member) in members {
                if sets.iter().any(|set: &ProblemSet| set.name == member.name) {
                    continue;
                }
                max_tokens = max_tokens.max(suite.max_tokens);
                let problems = problems_of(member, choice)?;
                sets.push(choice.set(member.name, problems, member.completions));
            }
        }
        let max_tokens = choice.max_tokens.or(max_tokens).unwrap_or(MAX_TOKENS);
        Ok(Self { sets, max_tokens })
    }
}

impl SetChoice<'_> {
    fn set(&self, name: &str, dataset: Dataset, completions: Option<usize>) -> ProblemSet {
        let completions = self.completions.or(completions).unwrap_or(COMPLETIONS);
        ProblemSet { name: name.to_owned(), dataset, completions, draws: draws_of(name) }
    }
}

fn problems_of(benchmark: &Benchmark, choice: SetChoice<'_>) -> Result<Dataset, Refusal> {
    let Some(folder) = choice.folder.filter(|_| benchmark.is_file()) else {
        return benchmark.problems(choice.problems);
    };
    let mut all = benchmark.read(folder)?;
    all.examples.truncate(choice.first.unwrap_or(usize::MAX));
    Ok(all)
}

fn level(name: &str, choice: SetChoice<'_>) -> Result<Dataset, Refusal> {
    let parsed = name.split_once(':').and_then(|it| Some((it.0, it.1.parse().ok()?)));
    let Some((family, level)) = parsed else {
        return Err(Refusal::input(format!("unknown benchmark `{name}`")).hint(
            "`hapo list benchmarks` names them; for a dataset: --data FILE or hf://datasets/ORG/NAME",
        ));
    };
    task::set_of(family, level, choice.split, choice.problems)
}

/// A local model by its contents: other weights may come to lie under the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprints {
    /// Name of its weights, the adapter's among them.
    pub weights: String,
    pub template: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptForm {
    /// By a local model's template of this name.
    Template(String),
    /// With this text behind it; a dialogue whole, with the text behind the user's last turn.
    Instruction(String),
    /// With its gold answer (the paper, appendix C).
    Conditioned,
    /// With the request to put the final answer within `\boxed{}`.
    Plain,
    /// Alone, for a model whose own template asks for the rest.
    Bare,
}

impl PromptForm {
    pub fn name(&self) -> &str {
        match self {
            Self::Template(name) | Self::Instruction(name) => name,
            Self::Conditioned => "conditioned",
            Self::Plain => "plain",
            Self::Bare => "bare",
        }
    }

    /// The user's turn: `problem`, and around it what the form asks for.
    fn render(&self, problem: &str, answer: &str) -> String {
        const BOXED: &str =
            "\nPlease reason step by step, and put your final answer within \\boxed{}.";
        let instruction = match self {
            Self::Conditioned => return hapo_data::teacher_prompt(problem, answer),
            Self::Instruction(text) => text,
            Self::Plain => BOXED,
            Self::Template(_) | Self::Bare => "",
        };
        match instruction {
            "" => problem.to_owned(),
            instruction => format!("{problem}\n{instruction}"),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Sampling {
    /// The model's folder, or its name at the server.
    pub model: String,
    /// The server's address; `None` for a local model.
    pub endpoint: Option<String>,
    pub prompt: PromptForm,
    pub system: Option<String>,
    /// 0 takes the most likely token.
    pub temperature: f64,
    pub top_p: f64,
    /// Longest completion in tokens; the server's own limit if `None`.
    pub max_tokens: Option<usize>,
    pub seed: u64,
    /// Fields that are added to a server's request or replace others; null removes one.
    pub extra: Map<String, Value>,
}

impl Sampling {
    /// Of a local model at temperature 0.6.
    pub fn new(model: impl Into<String>, prompt: PromptForm) -> Self {
        Self {
            model: model.into(),
            endpoint: None,
            prompt,
            system: None,
            temperature: 0.6,
            top_p: 1.0,
            max_tokens: None,
            seed: 0,
            extra: Map::new(),
        }
    }

    /// A field of every request to a server as it is sent, null where it is left out; of a local model, its value.
    pub(crate) fn sent(&self, field: &str) -> Value {
        self.request(&Example::default(), self.seed).get(field).cloned().unwrap_or_default()
    }

    /// The body of a request to a server. A dialogue is sent with all of its turns, and a system text of the file, unless
    /// there is one of the command's.
    pub(crate) fn request(&self, example: &Example, seed: u64) -> Value {
        let mut messages = example.turns(self.system.as_deref());
        if let Some(last) = messages.iter_mut().rev().find(|turn| turn.role == "user") {
            last.content = self.prompt.render(&last.content, &example.answer);
        }
        let mut body = json!({
            "model": self.model, "messages": messages, "temperature": decimal(self.temperature),
            "top_p": decimal(self.top_p), "seed": seed,
        });
        if let Some(tokens) = self.max_tokens {
            body["max_tokens"] = json!(tokens);
        }
        for (field, value) in &self.extra {
            match value {
                Value::Null => {
                    body.as_object_mut().expect("it was made as an object").remove(field);
                }
                _ => body[field] = value.clone(),
            }
        }
        body
    }
}

/// The shortest decimal of a number as a model computes with it: 0.6, not 0.6000000238418579.
fn decimal(value: f64) -> f64 {
    (value as f32).to_string().parse().expect("the decimal of a number is a number")
}

#[derive(Clone, Debug)]
pub struct LocalSampling {
    /// `None` until the model is open.
    pub fingerprints: Option<Fingerprints>,
    pub max_sequences: usize,
    pub kv_memory: KvMemory,
    pub kv_dtype: NumberFormat,
    /// The rounding of products' factors.
    pub compute: Compute,
    /// Tokens that are drawn from; its `top_p` is that of [`Sampling`].
    pub truncation: Truncation,
    pub stop: Vec<String>,
}

impl Default for LocalSampling {
    fn default() -> Self {
        Self {
            fingerprints: None,
            max_sequences: 256,
            kv_memory: KvMemory::Auto,
            kv_dtype: NumberFormat::F32,
            compute: Compute::F32,
            truncation: Truncation::NONE,
            stop: Vec::new(),
        }
    }
}

impl LocalSampling {
    /// Puts what a local model's completions depend on into the settings of a record. One without formats is of f32.
    pub(crate) fn record_in(&self, settings: &mut Value) {
        if let Some(fingerprints) = &self.fingerprints {
            settings["weights"] = json!(fingerprints.weights);
            settings["template"] = json!(fingerprints.template);
        }
        if self.compute != Compute::F32 {
            settings["compute"] = json!(self.compute);
        }
        if self.kv_dtype != NumberFormat::F32 {
            settings["kv_dtype"] = json!(self.kv_dtype);
        }
    }
}

/// The grader that is compared with `grader`: `oat` for `math` and the reverse.
pub fn counterpart(grader: &Extracting<'static>) -> Option<Extracting<'static>> {
    let other = hapo_verify::grader(grader.counterpart()?).expect("a counterpart is in the table");
    Some(Extracting::new(other, grader.extraction()))
}

#[derive(Clone)]
pub struct Plan {
    pub sets: Vec<ProblemSet>,
    pub sampling: Sampling,
    pub local: LocalSampling,
    /// k, where one was chosen for all sets.
    pub completions: Option<usize>,
    pub grader: Extracting<'static>,
    /// Another one, whose verdicts an evaluation puts beside the grader's.
    pub other: Option<Extracting<'static>>,
    pub truncated: Truncated,
}

impl Plan {
    /// A completion that is cut off is wrong.
    pub fn new(sets: Vec<ProblemSet>, sampling: Sampling, grader: Extracting<'static>) -> Self {
        let (local, truncated) = (LocalSampling::default(), Truncated::Wrong);
        Self { sets, sampling, local, completions: None, grader, other: None, truncated }
    }

    pub(crate) fn decoding(&self) -> Result<Decoding, Refusal> {
        let Sampling { temperature, top_p, .. } = self.sampling;
        let truncation = Truncation { top_p: top_p as f32, ..self.local.truncation };
        Ok(Decoding::at_temperature(temperature as f32, truncation)?)
    }

    pub fn max_tokens(&self) -> usize {
        self.sampling.max_tokens.unwrap_or(MAX_TOKENS)
    }

    /// Warnings about the problems' texts before a score is compared with a published one.
    pub fn text_warnings(&self) -> Vec<String> {
        let warning = |set: &ProblemSet| benchmark(&set.name)?.other_text(&set.dataset);
        self.sets.iter().filter_map(warning).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapo_data::Message;

    fn sampling(prompt: PromptForm) -> Sampling {
        let of = Sampling::new("m", prompt);
        Sampling { temperature: 0.7, top_p: 0.9, max_tokens: Some(5), ..of }
    }

    #[test]
    fn a_dialogue_is_sent_whole_and_a_problem_by_itself() {
        let messages =
            [("system", "Be brief."), ("user", "1+1?"), ("assistant", "2"), ("user", "+3?")];
        let messages = messages.map(|(role, text)| Message::new(role, text)).to_vec();
        let mut example = Example { problem: "+3?".to_owned(), messages, ..Example::default() };
        let sampling = sampling(PromptForm::Instruction("Box it.".into()));
        assert_eq!(
            sampling.request(&example, 1)["messages"],
            json!([
                { "role": "system", "content": "Be brief." },
                { "role": "user", "content": "1+1?" },
                { "role": "assistant", "content": "2" },
                { "role": "user", "content": "+3?\nBox it." },
            ])
        );
        example.messages.clear();
        let alone = json!([{ "role": "user", "content": "+3?\nBox it." }]);
        assert_eq!(sampling.request(&example, 1)["messages"], alone);
    }

    #[test]
    fn extra_fields_add_replace_and_remove() {
        let extra = json!({ "seed": null, "max_tokens": null, "max_completion_tokens": 9, "temperature": 0.1 });
        let sampling = Sampling {
            system: Some("s".into()),
            extra: extra.as_object().unwrap().clone(),
            ..sampling(PromptForm::Bare)
        };
        let expected = json!({
            "model": "m", "temperature": 0.1, "top_p": 0.9, "max_completion_tokens": 9,
            "messages": [{ "role": "system", "content": "s" }, { "role": "user", "content": "u" }],
        });
        let example = Example { problem: "u".into(), ..Example::default() };
        assert_eq!(sampling.request(&example, 3), expected);
        assert_eq!(sampling.sent("temperature"), 0.1);
        let all = Sampling { top_p: 1.0, extra: Map::new(), ..sampling };
        assert_eq!(all.request(&example, 3)["top_p"], 1.0);
    }
}
