//! Prompts ready for training: rendered, tokenised, with a gold answer that the grader can read and,
//! where any is admissible, teacher trajectories.

use std::path::{Path, PathBuf};
use std::{collections::HashSet, fmt::Display};

use hapo_core::{
    Context, CounterRng, PromptId, Refusal, RngCounter, RngStream, TeacherTrajectory, Verdict,
    counted,
};
use hapo_data::{
    AdmissionRule, Dataset, Example, Loaded, NamedColumns, PromptTemplate, Reading, Unread,
};
use hapo_sampler::ChatFormat;
use hapo_verify::{Gold, Grader, in_order};

use crate::Result;
use crate::grading::{gold_of, graded};
use crate::problems::inputs::{Inputs, RowHashes};
use crate::recipe::{HintSource, Overlong, did_you_mean};

#[derive(Clone, Debug)]
pub struct Prompt {
    /// Its number in the data set: part of the key of every draw.
    pub id: PromptId,
    pub name: String,
    /// The problem as written; of a dialogue its last turn.
    pub problem: String,
    /// True if the prompt is the problem alone, behind which a hint may be put.
    pub is_problem: bool,
    /// The system text of its file.
    pub system: Option<String>,
    pub answer: String,
    /// The gold answer as the grader reads it; there wherever rollouts are graded (D38).
    pub gold: Option<Gold>,
    pub tokens: Vec<u32>,
    /// The admissible trajectories of teachers, in the order of the data (D9).
    pub teachers: Vec<TeacherTrajectory>,
    /// The prompt rendered with each of its hints, the weakest first (D36).
    pub hints: Vec<Vec<u32>>,
}

impl Prompt {
    pub fn teacher(&self) -> Option<&TeacherTrajectory> {
        self.teachers.first()
    }

    /// The prompt with a response of the group as a solution, of which the first tokens are left out if the whole would
    /// be longer than `limit` (D36).
    pub(crate) fn with_solution(
        &self,
        response: &[u32],
        chat_format: &ChatFormat,
        limit: usize,
    ) -> Result<Vec<u32>> {
        if !self.is_problem {
            let name = &self.name;
            let problem =
                format!("row {name}: expected a problem to put a solution behind, got a prompt");
            let hint = "take a method that shows no responses, or rows of problems";
            return Err(Refusal::input(problem).hint(hint));
        }
        let mut shown = response;
        loop {
            let text = hapo_data::with_hint(&self.problem, &chat_format.text(shown)?);
            let system = self.system.clone();
            let problem = Example { problem: text, system, ..Example::default() };
            let tokens = chat_format.prompt_of(&problem)?;
            let over = tokens.len().saturating_sub(limit);
            if over == 0 || shown.is_empty() {
                return Ok(tokens);
            }
            shown = &shown[over.min(shown.len())..];
        }
    }
}

/// The prompts of a run and what loading them met.
#[derive(Clone, Debug)]
pub struct PromptTable {
    pub prompts: Vec<Prompt>,
    /// Teacher trajectories that were not admitted, with the reason (D9).
    pub refused_teachers: Vec<String>,
    /// Solutions that no step uses, behind those of a prompt that the run takes.
    pub unused_solutions: usize,
    /// Prompts that are left out as they are too long, with the row.
    pub overlong: Vec<String>,
    pub unread: Unread,
    /// Problems that have no solution at all.
    pub without_teacher: usize,
    /// Prompts with a system text of their file, where it is not used.
    pub unused_systems: usize,
    /// Rows of the file that are copies of a prompt; an epoch visits each prompt once.
    pub copies: u64,
    /// Hashes of all rows, in their order.
    pub inputs: Inputs,
    /// Longest rendered prompt that is allowed, in tokens.
    pub prompt_limit: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct PromptLimits {
    pub prompt_tokens: usize,
    pub response_tokens: usize,
    /// Smallest reward for which a teacher trajectory is admitted (D28).
    pub success_at: f64,
    pub overlong: Overlong,
    pub hints: Option<HintSource>,
    /// Most verified solutions of a prompt.
    pub traces: usize,
    pub grades: bool,
}

impl PromptTable {
    /// Renders, tokenises and checks every example. `origin` names the data in messages.
    pub fn new(
        dataset: &Dataset,
        origin: &str,
        chat_format: &ChatFormat,
        grader: &dyn Grader,
        limits: PromptLimits,
    ) -> Result<Self> {
        let dataset = &*dataset.under(&chat_format.template)?;
        let admission = admit_teachers(dataset, chat_format, grader, limits)?;
        let refused = admission.refused.iter();
        let refused_teachers =
            refused.map(|it| with_row(dataset, it.example, origin, &it.why)).collect();
        let replaces = match &chat_format.template {
            PromptTemplate::Named(_) => true,
            PromptTemplate::Chat(chat) => chat.system.is_some(),
        };
        let systems = dataset.examples.iter().filter(|it| it.system.is_some()).count();
        let mut prompts = Vec::with_capacity(dataset.examples.len());
        let mut hashes = RowHashes::default();
        let mut overlong = Vec::new();
        for (number, teachers) in admission.teachers.into_iter().enumerate() {
            let example = &dataset.examples[number];
            let bad_row = |problem: String, hint: &'static str| {
                Refusal::input(with_row(dataset, number, origin, &problem)).hint(hint)
            };
            let is_graded = limits.grades || !example.answer.is_empty();
            let gold = is_graded.then(|| gold_of(grader, example)).transpose();
            let gold = gold.map_err(|reason| {
                let answer = &example.answer;
                let problem =
                    format!("the grader cannot read the gold answer `{answer}`: {reason}");
                let reads_texts = grader.name() == "exact" || !grader.reads_answers();
                bad_row(problem, if reads_texts { CORRECT } else { CORRECT_OR_COMPARE })
            })?;
            let tokens = chat_format.prompt_of(example).map_err(|error| error.at(origin))?;
            if tokens.is_empty() || tokens.len() > limits.prompt_tokens {
                let (limit, n) = (limits.prompt_tokens, tokens.len());
                let problem = format!("expected a prompt of 1 to {limit} tokens, got {n}");
                if n > 0 && limits.overlong == Overlong::Drop {
                    overlong.push(with_row(dataset, number, origin, &problem));
                    continue;
                }
                let hint =
                    "raise data.max_prompt_tokens, set data.overlong = \"drop\", or remove the row";
                return Err(bad_row(problem, hint));
            }
            let hints = hints_of(example, teachers.first(), chat_format, limits)?;
            let hint = "raise data.max_prompt_tokens, shorten the hint, or remove the row";
            let hints = hints.map_err(|problem| bad_row(problem, hint))?;
            let prompt = Prompt {
                id: PromptId(number as u64),
                name: example.id.clone(),
                problem: example.problem.clone(),
                is_problem: is_problem(example),
                system: example.system.clone(),
                answer: example.answer.clone(),
                gold,
                tokens,
                teachers,
                hints,
            };
            hashes.add(&prompt.tokens, example.golds(), &prompt.teachers, &prompt.hints);
            prompts.push(prompt);
        }
        Ok(Self {
            prompts,
            refused_teachers,
            unused_solutions: admission.unused,
            without_teacher: admission.without_teacher,
            unused_systems: if replaces { systems } else { 0 },
            overlong,
            unread: Unread::default(),
            copies: dataset.examples.iter().map(|it| u64::from(it.copies)).sum(),
            inputs: hashes.finish(),
            prompt_limit: limits.prompt_tokens,
        })
    }

    pub fn at(&self, indices: &[PromptIndex]) -> Vec<&Prompt> {
        indices.iter().map(|it| &self.prompts[it.0]).collect()
    }

    /// The prompt of that id. Panics where the table does not have it.
    pub fn prompt(&self, id: PromptId) -> &Prompt {
        self.find(id).expect("groups are made of the table's prompts")
    }

    pub fn find(&self, id: PromptId) -> Option<&Prompt> {
        // Ids are rows, in order; a table without some of the rows has gaps.
        let index = self.prompts.binary_search_by_key(&id, |it| it.id).ok()?;
        Some(&self.prompts[index])
    }

    pub(crate) fn is_graded(&self) -> bool {
        self.prompts.iter().all(|it| it.gold.is_some())
    }
}

/// True if an example is a problem, not a rendered prompt or a dialogue.
fn is_problem(example: &Example) -> bool {
    example.rendered.is_none() && example.messages.is_empty()
}

const CORRECT: &str = "correct or remove the row";
const CORRECT_OR_COMPARE: &str =
    "correct or remove the row, or compare texts: data.grader = \"exact\"";

/// Shares of the teacher's solution that are shown as hints, in percent.
const SHOWN_PERCENT: [usize; 3] = [25, 50, 75];

/// The prompt with each of its hints, or why one cannot be shown (D36).
fn hints_of(
    example: &Example,
    teacher: Option<&TeacherTrajectory>,
    chat_format: &ChatFormat,
    limits: PromptLimits,
) -> Result<Result<Vec<Vec<u32>>, String>> {
    let texts = match (limits.hints, teacher) {
        (None, _) | (Some(HintSource::Solution), None) => Vec::new(),
        (Some(HintSource::Column), _) => example.hints.clone(),
        (Some(HintSource::Answer), _) => vec![example.answer.clone()],
        (Some(HintSource::Solution), Some(teacher)) => {
            let tokens = teacher.tokens();
            let parts = SHOWN_PERCENT.map(|it| &tokens[..tokens.len() * it / 100]);
            parts.iter().map(|it| chat_format.text(it)).collect::<Result<Vec<_>, _>>()?
        }
    };
    if texts.len() > Context::MOST_HINTS {
        let (most, n) = (Context::MOST_HINTS, texts.len());
        return Ok(Err(format!("expected at most {most} hints, got {n}")));
    }
    if !texts.is_empty() && !is_problem(example) {
        return Ok(Err("expected a problem to put a hint behind, got a prompt".to_owned()));
    }
    let mut hints = Vec::with_capacity(texts.len());
    for text in texts {
        let problem = hapo_data::with_hint(&example.problem, &text);
        let shown = Example { problem, system: example.system.clone(), ..Example::default() };
        let tokens = chat_format.prompt_of(&shown)?;
        let (limit, n) = (limits.prompt_tokens, tokens.len());
        if n > limit {
            let expected = "expected a prompt with its hint of at most";
            return Ok(Err(format!("{expected} {limit} tokens, got {n}")));
        }
        hints.push(tokens);
    }
    Ok(Ok(hints))
}

/// The teacher trajectories that are verified and fit (D9).
fn admit_teachers(
    dataset: &Dataset,
    chat_format: &ChatFormat,
    grader: &dyn Grader,
    limits: PromptLimits,
) -> Result<hapo_data::Admission> {
    let judged = |example: &Example, teacher: usize| match gold_of(grader, example) {
        Ok(gold) => graded(&gold.judge(&example.teachers[teacher])),
        // It is reported with its row, later.
        Err(_) => Ok((0.0, Verdict::Wrong)),
    };
    // The first solutions, which are nearly all there are, are judged together.
    let first = |it: &Example| it.teachers.first().map(|_| judged(it, 0)).transpose();
    let first = in_order(grader.workers(), &dataset.examples, first)?;
    let grade = |example: usize, teacher: usize| match (teacher, &first[example]) {
        (0, Some(it)) => Ok(it.clone()),
        _ => judged(&dataset.examples[example], teacher),
    };
    let rule = AdmissionRule {
        success_at: limits.success_at,
        stop: &chat_format.stop,
        response_limit: limits.response_tokens,
        most: limits.traces,
    };
    hapo_data::admit(dataset, rule, grade, |text| chat_format.tokenizer.encode(text))
}

fn with_row(dataset: &Dataset, number: usize, origin: &str, what: &impl Display) -> String {
    let Example { row, id, .. } = &dataset.examples[number];
    let row = if *row == 0 { number as u64 + 1 } else { *row };
    format!("{what} (row {row}, id {id}, {origin})")
}

/// Position of a prompt in its table, which is not its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PromptIndex(pub usize);

/// The order in which a run visits its prompts: a fresh permutation each epoch, the remainder that
/// does not fill a step left out.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    pub seed: u64,
    pub prompts: usize,
    pub per_step: usize,
}

impl Order {
    /// `T_epoch`: whole steps in one pass over the prompts; at least 1 where there are enough prompts.
    pub fn steps_per_epoch(self) -> u64 {
        (self.prompts / self.per_step) as u64
    }

    /// The prompts of step `step`, counted from 1.
    pub fn of_step(self, step: u64) -> Vec<PromptIndex> {
        let (epoch, within) =
            ((step - 1) / self.steps_per_epoch(), (step - 1) % self.steps_per_epoch());
        let mut order: Vec<PromptIndex> = (0..self.prompts).map(PromptIndex).collect();
        let counter = RngCounter { step: epoch, prompt: 0, rollout: 0, position: 0 };
        CounterRng::new(self.seed, RngStream::Shuffle, counter).shuffle(&mut order);
        let first = within as usize * self.per_step;
        order[first..first + self.per_step].to_vec()
    }

    /// Up to `count` prompts that replace those of step `step` without signal, for round `round` of dynamic sampling, from
    /// 1: a draw of its own, without those that the step has `visited`.
    pub fn replacements(
        self,
        step: u64,
        round: u64,
        count: usize,
        visited: &[PromptIndex],
    ) -> Vec<PromptIndex> {
        let visited: HashSet<PromptIndex> = visited.iter().copied().collect();
        let all = (0..self.prompts).map(PromptIndex);
        let mut fresh: Vec<PromptIndex> = all.filter(|it| !visited.contains(it)).collect();
        let counter = RngCounter { step, prompt: 0, rollout: round, position: 0 };
        CounterRng::new(self.seed, RngStream::Shuffle, counter).shuffle(&mut fresh);
        fresh.truncate(count);
        fresh
    }
}

/// Reads a data set; bad rows are errors that name the first of them, and so is a part of the question that is not read.
pub fn load_file(path: &Path, reading: &Reading) -> Result<Dataset> {
    let loaded = load_files(std::slice::from_ref(&path.to_owned()), reading)?;
    loaded.unread.not_whole(&path.display().to_string()).map_or(Ok(loaded.dataset), Err)
}

pub(crate) fn load_files(paths: &[PathBuf], reading: &Reading) -> Result<Loaded> {
    let loaded = hapo_data::load_rows(hapo_data::open_all(paths, reading)?)?;
    let files: Vec<String> = paths.iter().map(|it| it.display().to_string()).collect();
    check_columns(&files.join(", "), &loaded.named_columns)?;
    if let Some(bad) = loaded.bad_rows.first() {
        let all = counted(loaded.bad_row_count, "bad row", "bad rows");
        let hint = format!(
            "`hapo data check {} --drop-bad -o OUT` names them and writes the others",
            bad.file
        );
        return Err(Refusal::input(format!("{bad} ({all} in all)")).hint(hint));
    }
    Ok(loaded)
}

/// Refuses the name of a column that no row has.
pub fn check_columns(file: &str, named: &NamedColumns) -> Result<()> {
    let present: Vec<&str> = named.present.iter().map(String::as_str).collect();
    let missing = named.missing.first().filter(|_| !present.is_empty());
    let Some(missing) = missing else { return Ok(()) };
    let there = present.join(", ");
    let problem = format!("{file}: no row has the column `{missing}`; there are {there}");
    Err(Refusal::input(problem).hint(did_you_mean(missing, &present, "", "name one of these")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacements_are_prompts_that_the_step_has_not_visited() {
        let order = Order { seed: 3, prompts: 12, per_step: 5 };
        let visited = order.of_step(2);
        let fresh = order.replacements(2, 1, 4, &visited);
        assert_eq!(fresh.len(), 4);
        assert!(fresh.iter().all(|it| !visited.contains(it)));
        assert_eq!(fresh, order.replacements(2, 1, 4, &visited));
        assert_ne!(fresh, order.replacements(2, 2, 4, &visited));
        // Seven are left; more cannot be had.
        assert_eq!(order.replacements(2, 1, 50, &visited).len(), 7);
    }

    #[test]
    fn every_epoch_visits_each_prompt_at_most_once_in_its_own_order() {
        let order = Order { seed: 3, prompts: 22, per_step: 5 };
        assert_eq!(order.steps_per_epoch(), 4);
        let epoch = |first: u64| -> Vec<PromptIndex> {
            (first..first + 4).flat_map(|it| order.of_step(it)).collect()
        };
        let (a, b) = (epoch(1), epoch(5));
        for it in [&a, &b] {
            let mut sorted = it.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), 20);
        }
        assert_ne!(a, b);
        assert_eq!(a, epoch(1));
    }
}
