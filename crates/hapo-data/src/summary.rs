//! Counts over the rows of a file: layout, lengths, teachers, duplicates.
//!
//! The crate knows no tokenizer: token counts come from a function that the caller passes.

use crate::dataset::{Reading, Unread, open_all, question_hash};
use crate::template::{PromptTemplate, prompt_of};
use crate::{example::Example, layouts::NamedColumns, row::Row};
use hapo_core::Refusal;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

#[derive(Clone, Debug, Default, Serialize)]
pub struct FileSummary {
    pub file: String,
    pub layout: &'static str,
    pub container: &'static str,
    pub compression: Option<&'static str>,
    pub rows: u64,
    pub bad_rows: u64,
    pub first_bad_row: Option<String>,
    /// Rows that ask and answer the same count once.
    pub distinct_prompts: u64,
    /// Prompts by their number of copies in the file: k of avg@k.
    pub prompts_by_copies: BTreeMap<u64, u64>,
    /// Prompts with one text and several answers or sources.
    pub problems_with_several_answers: u64,
    /// Rows with a prompt that the file renders itself.
    pub already_rendered: u64,
    pub with_system_text: u64,
    pub several_turns: u64,
    pub with_teacher: u64,
    /// Their share of the good rows.
    pub teacher_coverage: f64,
    pub teachers: u64,
    pub without_gold: u64,
    pub several_golds: u64,
    /// Rows by their source; at most the first 100 sources.
    pub sources: BTreeMap<String, u64>,
    pub characters_of_problems: Option<Lengths>,
    /// The template of the prompts whose tokens are counted.
    pub template: Option<&'static str>,
    pub tokens_of_prompts: Option<Lengths>,
    /// Prompts that the template has no place for.
    pub not_rendered: u64,
    pub first_not_rendered: Option<String>,
    /// Lengths of the solutions in tokens, the end token included.
    pub tokens_of_teachers: Option<Lengths>,
    #[serde(flatten)]
    pub unread: Unread,
    #[serde(skip)]
    pub named_columns: NamedColumns,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Lengths {
    pub min: u32,
    pub mean: f64,
    pub median: u32,
    pub p95: u32,
    pub max: u32,
}

/// Sources that are counted by name; a file may have one per row.
const SOURCES: usize = 100;

pub struct TokenCount<'a, E> {
    pub tokens: &'a dyn Fn(&str) -> Result<usize, E>,
    pub template: &'a PromptTemplate,
}

/// Reads a dataset once and counts its rows; with `count`, tokens too.
pub fn summarise<E: From<Refusal>>(
    file: &Path,
    reading: &Reading,
    count: Option<&TokenCount<'_, E>>,
) -> Result<FileSummary, E> {
    let mut rows = open_all(&[file.to_owned()], reading)?;
    let mut counts = Counts {
        summary: FileSummary {
            file: file.display().to_string(),
            layout: rows.layout.name,
            container: rows.container.name(),
            compression: rows.compression,
            template: count.map(|it| it.template.name()),
            ..FileSummary::default()
        },
        ..Counts::default()
    };
    for row in rows.by_ref() {
        counts.summary.rows += 1;
        match row? {
            Row::Good(example) => {
                counts.add(&example);
                if let Some(it) = count {
                    counts.add_tokens(&example, it)?;
                }
            }
            Row::Bad(bad) => {
                let it = &mut counts.summary;
                it.bad_rows += 1;
                it.first_bad_row.get_or_insert_with(|| bad.to_string());
            }
        }
    }
    let mut summary = counts.finish();
    summary.unread.clone_from(&rows.unread);
    summary.named_columns.clone_from(&rows.named_columns);
    Ok(summary)
}

#[derive(Default)]
struct Counts {
    summary: FileSummary,
    copies: HashMap<u128, u64>,
    answers_of_problem: HashMap<u128, u64>,
    characters: Vec<u32>,
    prompts: Vec<u32>,
    teachers: Vec<u32>,
}

impl Counts {
    fn add(&mut self, example: &Example) {
        let copies = self.copies.entry(question_hash(example)).or_default();
        *copies += 1;
        if *copies == 1 {
            let problem = Example { problem: example.problem.clone(), ..Example::default() };
            let hash = question_hash(&problem);
            *self.answers_of_problem.entry(hash).or_default() += 1;
        }
        let it = &mut self.summary;
        it.already_rendered += u64::from(example.rendered.is_some());
        it.with_system_text += u64::from(example.system.is_some());
        it.several_turns += u64::from(!example.messages.is_empty());
        it.with_teacher += u64::from(!example.teachers.is_empty());
        it.teachers += example.teachers.len() as u64;
        it.several_golds += u64::from(!example.other_answers.is_empty());
        it.without_gold += u64::from(example.answer.is_empty());
        if let Some(source) = &example.source
            && (it.sources.len() < SOURCES || it.sources.contains_key(source))
        {
            *it.sources.entry(source.clone()).or_default() += 1;
        }
        self.characters.push(example.problem.chars().count() as u32);
    }

    fn add_tokens<E: From<Refusal>>(
        &mut self,
        example: &Example,
        count: &TokenCount<'_, E>,
    ) -> Result<(), E> {
        // A prompt that the file renders itself is counted as it stands there.
        let prompt = match &example.rendered {
            Some(it) => Ok(it.clone()),
            None => prompt_of(example, count.template),
        };
        match prompt {
            Ok(prompt) => self.prompts.push((count.tokens)(&prompt)? as u32),
            Err(refusal) => {
                self.summary.not_rendered += 1;
                self.summary.first_not_rendered.get_or_insert_with(|| refusal.to_string());
            }
        }
        for solution in &example.teachers {
            // The end token counts, as it does against the response limit.
            self.teachers.push((count.tokens)(solution)? as u32 + 1);
        }
        Ok(())
    }

    fn finish(self) -> FileSummary {
        let mut it = self.summary;
        it.distinct_prompts = self.copies.len() as u64;
        for count in self.copies.values() {
            *it.prompts_by_copies.entry(*count).or_default() += 1;
        }
        let several = self.answers_of_problem.values().filter(|it| **it > 1);
        it.problems_with_several_answers = several.count() as u64;
        it.teacher_coverage = it.with_teacher as f64 / (it.rows - it.bad_rows).max(1) as f64;
        it.characters_of_problems = lengths(self.characters);
        it.tokens_of_prompts = lengths(self.prompts);
        it.tokens_of_teachers = lengths(self.teachers);
        it
    }
}

fn lengths(mut all: Vec<u32>) -> Option<Lengths> {
    all.sort_unstable();
    let (min, max) = (*all.first()?, *all.last()?);
    let at = |share: f64| all[((all.len() - 1) as f64 * share).round() as usize];
    Some(Lengths {
        min,
        mean: all.iter().map(|it| f64::from(*it)).sum::<f64>() / all.len() as f64,
        median: at(0.5),
        p95: at(0.95),
        max,
    })
}
