//! The training data of a run: prompts in an order, or documents of the built-in corpus.

use std::{collections::BTreeMap, path::PathBuf};

use hapo_core::{Refusal, Step, counted, demonstration as imitated};
use hapo_data::task::{Corpus, Document, Split, TaskSet, make_set, recommended_mixture};
use hapo_data::{Dataset, Reading, Unread};
use hapo_sampler::ChatFormat;
use hapo_verify::Grader;

use crate::pack::{Sequence, TokenGroup};
use crate::problems::prompts::{Order, Prompt, PromptLimits, PromptTable, load_files};
use crate::recipe::{DataSource, Recipe, levels};
use crate::{Result, problems::duplicates::Texts};

pub(crate) enum Source {
    Prompts {
        table: Box<PromptTable>,
        order: Order,
        /// True if their demonstrations are imitated, and nothing is sampled.
        imitates: bool,
    },
    /// Documents that are made as they are needed, `per_step` of them in a step.
    Corpus { corpus: Corpus, per_step: u64 },
}

impl Source {
    /// The prompts and their order, sampled or not. Is `None` for the corpus.
    pub(crate) fn prompts(&self) -> Option<(&PromptTable, Order)> {
        let Self::Prompts { table, order, .. } = self else { return None };
        Some((table, *order))
    }

    /// Steps in one pass over the prompts. Is `None` for the corpus, which has no end.
    pub(crate) fn steps_per_epoch(&self) -> Option<u64> {
        Some(self.prompts()?.1.steps_per_epoch())
    }

    /// Tokens of the longest prompt; 0 for the corpus.
    pub(crate) fn longest_prompt(&self) -> usize {
        let prompts = self.prompts().map(|it| it.0.prompts.as_slice());
        prompts.unwrap_or_default().iter().map(|it| it.tokens.len()).max().unwrap_or(0)
    }

    /// The demonstrations of a step. Is `None` where responses are sampled.
    pub(crate) fn demonstrations(
        &self,
        chat_format: &ChatFormat,
        step: Step,
    ) -> Result<Option<Vec<TokenGroup>>> {
        match self {
            Self::Prompts { imitates: false, .. } => Ok(None),
            Self::Prompts { table, order, .. } => {
                Ok(Some(table.at(&order.of_step(step.0)).into_iter().map(demonstration).collect()))
            }
            Self::Corpus { corpus, per_step } => {
                let first = (step.0 - 1) * per_step;
                let documents = first..first + per_step;
                let documents = documents.map(|it| document(&corpus.document(it), chat_format));
                documents.collect::<Result<_>>().map(Some)
            }
        }
    }

    pub(crate) fn warnings(&self, wants_teacher: bool) -> Vec<String> {
        let Some((table, _)) = self.prompts() else { return Vec::new() };
        let (refused, copies) = (&table.refused_teachers, table.copies);
        let mut all = Vec::new();
        let uses_teachers = wants_teacher || matches!(self, Self::Prompts { imitates: true, .. });
        all.extend(table.unread.not_whole("the data").map(|it| match it.how_to_mend() {
            Some(hint) => format!("{it}: {hint}"),
            None => it.to_string(),
        }));
        for (name, rows) in table.unread.unread_solutions.iter().filter(|_| uses_teachers) {
            all.push(format!(
                "`{name}` looks like solutions ({} of the data) and is not read; data.columns = {{ problem = \"…\", answer = \"…\", teacher = [\"{name}\"] }} reads it",
                counted(*rows, "row", "rows")
            ));
        }
        if table.unused_systems > 0 {
            let n = counted(table.unused_systems, "system text", "system texts");
            all.push(format!("{n} of the data not used: the run's template has its own"));
        }
        if let Some(first) = refused.first().filter(|_| uses_teachers) {
            let n = counted(refused.len(), "teacher trajectory is", "teacher trajectories are");
            all.push(format!("{n} not admitted: data.grader with data.extraction must find each correct. The first: {first}"));
        }
        if uses_teachers && table.unused_solutions > 0 {
            all.push(format!(
                "{} not used: a run takes the first of a prompt that is verified, teacher.pick another",
                counted(table.unused_solutions, "solution is", "solutions are")
            ));
        }
        if let Some(first) = table.overlong.first() {
            let n = table.overlong.len();
            all.push(format!("prompts left out as they are too long: {n}, the first: {first}"));
        }
        if copies > 0 {
            let n = table.prompts.len();
            let (one, many) =
                ("row of the data is a copy of another", "rows of the data are copies of others");
            let copied = counted(copies, one, many);
            all.push(format!("{copied}; an epoch visits each of the {n} prompts once"));
        }
        let texts = Texts::of(table);
        // Dialogues may end alike.
        let same = |it: &Prompt, known: &Prompt| it.is_problem || it.tokens == known.tokens;
        let agree = |it: &Prompt, known: &Prompt| same(it, known) && it.answer == known.answer;
        let differ = |it: &Prompt, known: &Prompt| same(it, known) && it.answer != known.answer;
        if let Some((n, name, before)) = texts.shared(table, agree) {
            all.push(match n {
                1 => format!("{name} and {before} are the same problem"),
                n => format!(
                    "{n} problems of the data are there twice, the first: {name} and {before}"
                ),
            });
        }
        if let Some((n, name, before)) = texts.shared(table, differ) {
            let n = counted(n, "problem has", "problems have");
            all.push(format!(
                "{n} different answers in different rows, the first: {name} and {before}"
            ));
        }
        all
    }
}

/// A teacher trajectory as a group of its own.
pub(crate) fn demonstration(prompt: &Prompt) -> TokenGroup {
    let teacher = prompt.teacher().expect("imitation keeps only prompts with a teacher");
    single(prompt.tokens.clone(), teacher.tokens().to_vec())
}

fn document(document: &Document, chat_format: &ChatFormat) -> Result<TokenGroup> {
    let tokenizer = &chat_format.tokenizer;
    Ok(single(tokenizer.encode_prompt(&document.prompt)?, tokenizer.encode(&document.response)?))
}

fn single(prompt: Vec<u32>, response: Vec<u32>) -> TokenGroup {
    let spans = imitated(response.len());
    let sequences = vec![Sequence::new(response, Vec::new(), spans)];
    TokenGroup { prompts: vec![prompt], sequences, has_signal: true }
}

/// The built-in task's problems with their traces, as `[data]` of a recipe has them.
pub fn builtin_prompts(recipe: &Recipe) -> Result<Dataset> {
    let data = &recipe.data;
    let set = TaskSet {
        seed: data.seed,
        levels: levels(&data.levels)?,
        split: Split::Train,
        count: data.prompts,
        teacher_coverage: data.teacher_coverage,
        teacher_steps: data.teacher_steps,
    };
    make_set(&set)
}

/// Why prompts of a table have no admissible solution, with the number of solutions for each rule.
fn without_teacher(table: &PromptTable) -> String {
    let mut rules: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for it in &table.refused_teachers {
        let rule = it.split(": expected").next().unwrap_or_default();
        rules.entry(rule).or_insert((0, it)).0 += 1;
    }
    let said = |it: &(usize, &str)| format!("; {} not admitted, the first: {}", it.0, it.1);
    let mut all: Vec<String> = rules.values().map(said).collect();
    if table.without_teacher > 0 {
        all.push(format!("; without any solution: {}", table.without_teacher));
    }
    all.concat()
}

pub(crate) fn load_source(
    recipe: &Recipe,
    files: &[PathBuf],
    chat_format: &ChatFormat,
    grader: &dyn Grader,
) -> Result<Source> {
    let mut unread = Unread::default();
    let dataset = match &recipe.data.train {
        DataSource::Corpus => {
            let mixture = recipe.data.mixture.clone().unwrap_or_else(recommended_mixture);
            let corpus = Corpus::new(recipe.seed, &mixture)?;
            let per_step = recipe.sampling.prompts_per_step as u64;
            return Ok(Source::Corpus { corpus, per_step });
        }
        DataSource::Builtin => builtin_prompts(recipe)?,
        DataSource::Files(_) => {
            let reading = Reading {
                columns: recipe.data.columns.clone(),
                drop: recipe.data.drop.clone(),
                keeps_fields: recipe.keeps_fields(),
                ..Reading::default()
            };
            let loaded = load_files(files, &reading)?;
            unread = loaded.unread;
            loaded.dataset
        }
    };
    let limits = PromptLimits {
        prompt_tokens: recipe.data.max_prompt_tokens,
        response_tokens: recipe.sampling.max_new_tokens,
        success_at: recipe.reward.success_at,
        overlong: recipe.data.overlong,
        hints: recipe.hints(),
        traces: recipe.needs().traces,
        grades: recipe.needs().grades,
    };
    let mut table =
        PromptTable::new(&dataset, &recipe.data.train.name(), chat_format, grader, limits)?;
    table.unread = unread;
    let samples = recipe.method().samples();
    let without = if samples { String::new() } else { without_teacher(&table) };
    if !samples {
        table.prompts.retain(|it| it.teacher().is_some());
    }
    let order = Order {
        seed: recipe.seed,
        prompts: table.prompts.len(),
        per_step: recipe.sampling.prompts_per_step,
    };
    if order.steps_per_epoch() == 0 {
        let left_out = match table.overlong.len() {
            0 => String::new(),
            n => format!("; left out, as longer than data.max_prompt_tokens: {n}"),
        };
        let with = if samples { "" } else { " with an admissible teacher" };
        return Err(Refusal::input(format!(
            "expected at least {}{with} for one step, got {}{left_out}{without} ({})",
            counted(order.per_step, "prompt", "prompts"),
            order.prompts,
            recipe.data.train.name()
        ))
        .hint(if order.prompts + table.overlong.len() >= order.per_step {
            "raise data.max_prompt_tokens"
        } else if !table.refused_teachers.is_empty() {
            "`hapo data check` says which solutions are correct; sampling.max_new_tokens is their longest length"
        } else {
            "lower sampling.prompts_per_step or add data"
        }));
    }
    Ok(Source::Prompts { table: Box::new(table), order, imitates: !samples })
}
