//! The extension module `hapo_verify._native`: judgements as plain tuples, which `hapo_verify` makes into verdicts.
//!
//! The interpreter's lock is released while anything is judged. Threads live for one call, so that a process may fork.

#![allow(clippy::needless_pass_by_value, reason = "PyO3 takes arguments by value")]

use hapo_verify::{
    AnswerForm, BENCHMARK, Extracting, Extraction, Gold, GoldError, Grader, Math, MathOptions, OAT,
    Policy, Reason, Search, Targets, find_answer, in_order,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::LazyLock;

/// The number that a text ends with, and nothing else.
static LAST_NUMBER: LazyLock<Math> = LazyLock::new(|| {
    let targets = Targets { latex: Search::Off, boxed_priority: None, ..Targets::DEFAULT };
    Math::new(MathOptions { targets, ..MathOptions::DEFAULT })
});

const POLICIES: [&str; 8] =
    ["training", "benchmark", "math-verify", "math", "oat", "boxed", "gsm8k", "last-number"];

/// The grader of that policy, and which part of a completion it is shown.
fn policy_named(name: &str) -> PyResult<Extracting<'static>> {
    let whole = |grader: &'static dyn Grader| Extracting::new(grader, Extraction::Any);
    Ok(match name {
        "training" => whole(Math::of(Policy::Training)),
        "benchmark" => whole(&BENCHMARK),
        "math-verify" | "math" => whole(Math::of(Policy::MathVerify)),
        "oat" => whole(&OAT),
        "boxed" => Extracting::new(&BENCHMARK, Extraction::Boxed),
        "gsm8k" => Extracting::new(&BENCHMARK, Extraction::Announced),
        "last-number" => whole(&*LAST_NUMBER),
        _ => {
            let known = POLICIES.join(", ");
            return Err(PyValueError::new_err(format!(
                "policy: expected one of {known}, got {name:?}"
            )));
        }
    })
}

/// Correct, the verdict's name, the reason, both sides as they were read, and where the answer stands in characters.
type Row = (bool, &'static str, String, String, String, Option<(usize, usize)>);

fn judged(gold: &Result<Gold, GoldError>, answer: &str) -> Row {
    let judgement = match gold {
        Ok(gold) => gold.judge(answer),
        Err(error) => {
            let nothing = hapo_verify::Judgement::unparsable(Reason::Gold, String::new());
            hapo_verify::Judgement { reason: error.to_string().into(), ..nothing }
        }
    };
    let verdict = judgement.verdict;
    let span = judgement.extracted.as_deref().and_then(|it| span_of(answer, it));
    (
        verdict.is_correct(),
        verdict.name(),
        judgement.reason.into_owned(),
        judgement.gold_read,
        judgement.answer_read,
        span,
    )
}

/// Where the extracted answer stands: its last occurrence, as it is written.
fn span_of(text: &str, extracted: &str) -> Option<(usize, usize)> {
    let at = text.rfind(extracted).filter(|_| !extracted.is_empty())?;
    let start = text[..at].chars().count();
    Some((start, start + extracted.chars().count()))
}

/// Judges every answer against its gold answers, of which any counts, on so many threads.
#[pyfunction]
fn judge_all(
    py: Python<'_>,
    golds: Vec<Vec<String>>,
    answers: Vec<String>,
    policy: &str,
    threads: usize,
) -> PyResult<Vec<Row>> {
    let grader = policy_named(policy)?;
    if golds.len() != answers.len() {
        let problem =
            format!("answers: expected {}, one for each gold, got {}", golds.len(), answers.len());
        return Err(PyValueError::new_err(problem));
    }
    Ok(py.detach(|| {
        let pairs: Vec<(&Vec<String>, &String)> = golds.iter().zip(&answers).collect();
        let judge = |(gold, answer): &(&Vec<String>, &String)| {
            let gold = Gold::any(&grader, gold.iter().map(String::as_str));
            Ok::<_, std::convert::Infallible>(judged(&gold, answer))
        };
        if threads <= 1 {
            return pairs
                .iter()
                .map(|it| judge(it).unwrap_or_else(|never| match never {}))
                .collect();
        }
        let Ok(rows) = in_order(Some(threads), &pairs, judge);
        rows
    }))
}

/// The normal form of the answer of a text, the answer as it is written, and how it was found.
#[pyfunction]
fn parse_one(py: Python<'_>, text: String) -> Option<(String, String, &'static str)> {
    py.detach(|| {
        let (answer, how) = match find_answer(&text, Extraction::Announced) {
            Ok(it) if it.form == AnswerForm::Boxed => (it.answer.into_owned(), "boxed"),
            Ok(it) => (it.answer.into_owned(), "announced"),
            Err(_) => (text.trim().to_owned(), "whole"),
        };
        let gold = Gold::new(&BENCHMARK, &answer).ok()?;
        Some((gold.judge("").gold_read, answer, how))
    })
}

/// What the package `hapo_verify` is made of.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::{judge_all, parse_one};

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "a name of Python's")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
