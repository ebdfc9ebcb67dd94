//! The extension module `hapo_verify._native`: judgements as plain tuples, which `hapo_verify` makes into verdicts.
//!
//! The package `hapo` has the same functions. The interpreter's lock is released while anything is judged. Threads live
//! for one call, so that a process may fork.

#![allow(clippy::needless_pass_by_value, reason = "PyO3 takes arguments by value")]
#![allow(clippy::missing_errors_doc, reason = "functions of Python")]

pub mod arguments;
mod math_verify;

use arguments::{same, sequence, text, texts, value_error};
use hapo_verify::{
    AnswerForm, BENCHMARK, Extracting, Extraction, Gold, GoldError, Math, MathOptions, Search,
    Targets, find_answer, in_order,
};
pub use math_verify::{Request, read_answer, same_answer};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::LazyLock;

/// Rows that a thread takes at a time.
const CHUNK: usize = 64;

/// The number that a text ends with, and nothing else.
static LAST_NUMBER: LazyLock<Math> = LazyLock::new(|| {
    let targets = Targets { latex: Search::Off, boxed_priority: None, ..Targets::DEFAULT };
    Math::new(MathOptions { targets, ..MathOptions::DEFAULT })
});

/// The name of a grader, and of a rule for what it takes for an answer.
#[derive(FromPyObject)]
pub struct Policy {
    grader: String,
    extraction: String,
}

impl Policy {
    fn grader(&self) -> PyResult<Extracting<'static>> {
        let Policy { grader, extraction } = self;
        let rule = Extraction::named(extraction).ok_or_else(|| {
            let known: Vec<&str> = Extraction::ALL.iter().map(|(rule, _)| *rule).collect();
            let problem = format!("expected one of {}, got {extraction:?}", known.join(", "));
            value_error("extraction", problem)
        })?;
        let grader = match grader.as_str() {
            "last-number" => &*LAST_NUMBER,
            name => hapo_verify::grader(name).map_err(|problem| value_error("grader", problem))?,
        };
        Ok(Extracting::new(grader, rule))
    }
}

/// Correct, the verdict's name, the reason, both sides as they were read, and where the answer stands in characters.
type Row = (bool, &'static str, String, String, String, Option<(usize, usize)>);

fn judged(gold: &Result<Gold, GoldError>, answer: &str) -> Row {
    let it = match gold {
        Ok(gold) => gold.judge(answer),
        Err(error) => error.judgement(),
    };
    let span = it.extracted.as_deref().and_then(|extracted| span_of(answer, extracted));
    let (verdict, reason) = (it.verdict, it.reason.into_owned());
    (verdict.is_correct(), verdict.name(), reason, it.gold_read, it.answer_read, span)
}

/// Where the extracted answer stands: its last occurrence, as it is written.
fn span_of(text: &str, extracted: &str) -> Option<(usize, usize)> {
    let at = text.rfind(extracted).filter(|_| !extracted.is_empty())?;
    let start = text[..at].chars().count();
    Some((start, start + extracted.chars().count()))
}

/// Judges each completion against its gold answers, of which any counts, on several threads; rows come in order.
#[pyfunction]
pub fn judge_all(
    py: Python<'_>,
    golds: &Bound<'_, PyAny>,
    completions: &Bound<'_, PyAny>,
    policy: Policy,
    threads: Option<usize>,
) -> PyResult<Vec<Row>> {
    let grader = policy.grader()?;
    if let Some(it) = threads.filter(|it| !(1..=1024).contains(it)) {
        return Err(value_error("threads", format!("expected a number from 1 to 1024, got {it}")));
    }
    let golds = sequence("golds", golds)?;
    let completions = sequence("completions", completions)?;
    same("completions", &completions.len(), "golds", &golds.len())?;
    let golds = golds.iter().map(|it| texts("gold", it)).collect::<PyResult<Vec<_>>>()?;
    let completions: Vec<String> =
        completions.iter().map(|it| text("completion", it)).collect::<PyResult<_>>()?;
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = threads.unwrap_or_else(cores);
    let (at_once, mut judged) = (threads * CHUNK, Vec::with_capacity(golds.len()));
    for (golds, completions) in golds.chunks(at_once).zip(completions.chunks(at_once)) {
        judged.extend(py.detach(|| rows(&grader, golds, completions, threads)));
        // Ctrl-C does not wait for all of them.
        py.check_signals()?;
    }
    Ok(judged)
}

fn rows(
    grader: &Extracting<'_>,
    golds: &[Vec<String>],
    completions: &[String],
    threads: usize,
) -> Vec<Row> {
    let chunks: Vec<_> = golds.chunks(CHUNK).zip(completions.chunks(CHUNK)).collect();
    let all = in_order(Some(threads), &chunks, |(golds, completions)| {
        // A gold answer is read once for its rollouts.
        let mut read: HashMap<&[String], Result<Gold, GoldError>> = HashMap::new();
        let rows = golds.iter().zip(*completions).map(|(gold, completion)| {
            let any = || Gold::any(grader, gold.iter().map(String::as_str));
            judged(read.entry(gold).or_insert_with(any), completion)
        });
        Ok::<Vec<Row>, Infallible>(rows.collect())
    });
    all.unwrap_or_default().concat()
}

/// The normal form of the answer of a text, the answer as it is written, and how it was found.
#[pyfunction]
pub fn parse_one(
    py: Python<'_>,
    completion: &Bound<'_, PyAny>,
) -> PyResult<Option<(String, String, &'static str)>> {
    let completion = text("text", completion)?;
    Ok(py.detach(|| {
        let (answer, how) = match find_answer(&completion, Extraction::Announced) {
            Ok(it) if it.form == AnswerForm::Boxed => (it.answer.into_owned(), "boxed"),
            Ok(it) => (it.answer.into_owned(), "announced"),
            Err(_) => (completion.trim().to_owned(), "whole"),
        };
        let gold = Gold::new(&BENCHMARK, &answer).ok()?;
        Some((gold.judge("").gold_read, answer, how))
    }))
}

/// The contents of the package `hapo_verify`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::{judge_all, parse_one, read_answer, same_answer};

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "a name of Python's")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
