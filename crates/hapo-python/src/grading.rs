//! Verdicts, one or many.

use std::collections::HashMap;
use std::sync::Mutex;

use hapo_verify::{Extracting, Extraction, Gold, GoldError, Grader, Reason};
use pyo3::prelude::*;

use crate::arguments::{same, sequence, text, texts, unknown, value_error, word};

/// Gold answers that a thread remembers.
const MOST_GOLDS: usize = 4096;

/// Rows that a thread takes at a time.
const CHUNK: usize = 64;

/// What a grader says of a completion. True where it is correct.
#[pyclass(frozen, eq, hash, module = "hapo", from_py_object)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Verdict(hapo_verify::Verdict);

#[pymethods]
impl Verdict {
    #[new]
    #[pyo3(signature = (name, reason=None))]
    fn new(name: &str, reason: Option<&str>) -> PyResult<Self> {
        let verdict = match (name, reason) {
            ("correct", None) => hapo_verify::Verdict::Correct,
            ("wrong", None) => hapo_verify::Verdict::Wrong,
            ("unparsable", Some(reason)) => hapo_verify::Verdict::Unparsable(
                Reason::ALL.into_iter().find(|it| it.text() == reason).ok_or_else(|| {
                    unknown("reason", reason, Reason::ALL.into_iter().map(Reason::text))
                })?,
            ),
            _ => return Err(unknown("name", name, ["correct", "wrong", "unparsable"].into_iter())),
        };
        Ok(Self(verdict))
    }

    /// "correct", "wrong" or "unparsable".
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name()
    }

    /// Why there is no answer to judge; None where there is one.
    #[getter]
    fn reason(&self) -> Option<&'static str> {
        self.0.reason().map(Reason::text)
    }

    /// 1.0 where it is correct, else 0.0.
    #[getter]
    fn reward(&self) -> f64 {
        self.0.reward()
    }

    fn __bool__(&self) -> bool {
        self.0.is_correct()
    }

    fn __repr__(&self) -> String {
        match self.reason() {
            None => format!("Verdict('{}')", self.name()),
            Some(reason) => format!("Verdict('{}', '{reason}')", self.name()),
        }
    }

    fn __getnewargs__(&self) -> (&'static str, Option<&'static str>) {
        (self.name(), self.reason())
    }
}

/// A verdict with what led to it.
#[pyclass(frozen, get_all, module = "hapo")]
pub(crate) struct Judgement {
    /// The verdict.
    verdict: Verdict,
    /// The part of the completion that was taken for the answer; None if there was none.
    extracted: Option<String>,
    /// The gold answer as it was read.
    gold_read: String,
    /// The answer as it was read; empty if it was not.
    answer_read: String,
    /// The rule that decided, in words.
    reason: String,
}

#[pymethods]
impl Judgement {
    fn __bool__(&self) -> bool {
        self.verdict.__bool__()
    }

    fn __repr__(&self) -> String {
        let Self { verdict, gold_read, answer_read, reason, .. } = self;
        let verdict = verdict.__repr__();
        format!("Judgement({verdict}, {answer_read:?} for {gold_read:?}: {reason})")
    }
}

/// The judgement against one gold answer or any of several, both as they came from Python.
fn judged(
    py: Python<'_>,
    (gold, completion): (&Bound<'_, PyAny>, &Bound<'_, PyAny>),
    grader: &str,
    extraction: &str,
) -> PyResult<hapo_verify::Judgement> {
    let (gold, completion) = (texts("gold", gold)?, text("completion", completion)?);
    let grader = grader_of(grader, extraction)?;
    Ok(py.detach(|| match Gold::any(&grader, gold.iter().map(String::as_str)) {
        Ok(gold) => gold.judge(&completion),
        Err(error) => unreadable(&error),
    }))
}

fn unreadable(error: &GoldError) -> hapo_verify::Judgement {
    let nothing = hapo_verify::Judgement::unparsable(Reason::Gold, String::new());
    hapo_verify::Judgement { reason: error.to_string().into(), ..nothing }
}

/// The grader of that name, shown what that rule takes for an answer.
fn grader_of(name: &str, extraction: &str) -> PyResult<Extracting<'static>> {
    let extraction = word::<Extraction>("extraction", extraction)?;
    let grader = hapo_verify::grader(name).map_err(|problem| value_error("grader", problem))?;
    Ok(Extracting::new(grader, extraction))
}

/// Judges a completion against a gold answer, or against several of which any counts.
#[pyfunction]
#[pyo3(signature = (gold, completion, grader="math", *, extraction="any"))]
pub(crate) fn grade(
    py: Python<'_>,
    gold: &Bound<'_, PyAny>,
    completion: &Bound<'_, PyAny>,
    grader: &str,
    extraction: &str,
) -> PyResult<Verdict> {
    judged(py, (gold, completion), grader, extraction).map(|it| Verdict(it.verdict))
}

/// The verdict with what was extracted, how both sides were read, and the rule that decided.
#[pyfunction]
#[pyo3(signature = (gold, completion, grader="math", *, extraction="any"))]
pub(crate) fn explain(
    py: Python<'_>,
    gold: &Bound<'_, PyAny>,
    completion: &Bound<'_, PyAny>,
    grader: &str,
    extraction: &str,
) -> PyResult<Judgement> {
    let it = judged(py, (gold, completion), grader, extraction)?;
    Ok(Judgement {
        verdict: Verdict(it.verdict),
        extracted: it.extracted,
        gold_read: it.gold_read,
        answer_read: it.answer_read,
        reason: it.reason.into_owned(),
    })
}

/// Judges many completions on several threads; verdicts come in their order. Each gold answer is a str, or a list of
/// those of which any counts.
#[pyfunction]
#[pyo3(signature = (golds, completions, grader="math", *, extraction="any", threads=None))]
pub(crate) fn grade_many(
    py: Python<'_>,
    golds: &Bound<'_, PyAny>,
    completions: &Bound<'_, PyAny>,
    grader: &str,
    extraction: &str,
    threads: Option<usize>,
) -> PyResult<Vec<Py<Verdict>>> {
    let grader = grader_of(grader, extraction)?;
    if threads == Some(0) {
        return Err(value_error("threads", "expected at least 1, got 0"));
    }
    let golds = sequence("golds", golds)?;
    let completions = sequence("completions", completions)?;
    same("completions", &completions.len(), "golds", &golds.len())?;
    let golds: Vec<Vec<String>> =
        golds.iter().map(|it| texts("golds", it)).collect::<PyResult<_>>()?;
    let completions: Vec<String> =
        completions.iter().map(|it| text("completions", it)).collect::<PyResult<_>>()?;
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let verdicts =
        py.detach(|| judge_all(&grader, &golds, &completions, threads.unwrap_or_else(cores)));
    let mut shared = Shared::default();
    verdicts.into_iter().map(|it| shared.object(py, it)).collect()
}

/// Threads live for one call, so that a process that forks afterwards lacks none.
fn judge_all(
    grader: &dyn Grader,
    golds: &[Vec<String>],
    completions: &[String],
    threads: usize,
) -> Vec<hapo_verify::Verdict> {
    let mut verdicts = vec![hapo_verify::Verdict::Wrong; completions.len()];
    let chunks = completions.len().div_ceil(CHUNK);
    let rows = Mutex::new(
        golds.chunks(CHUNK).zip(completions.chunks(CHUNK)).zip(verdicts.chunks_mut(CHUNK)),
    );
    let work = || {
        // A gold answer is read once by each thread, however its rollouts are strewn.
        let mut read: HashMap<&[String], Result<Gold, GoldError>> = HashMap::new();
        loop {
            let Some(((golds, completions), verdicts)) =
                rows.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next()
            else {
                return;
            };
            for ((gold, completion), verdict) in golds.iter().zip(completions).zip(verdicts) {
                if read.len() >= MOST_GOLDS {
                    read.clear();
                }
                let gold = read
                    .entry(gold)
                    .or_insert_with(|| Gold::any(grader, gold.iter().map(String::as_str)));
                *verdict = match gold {
                    Ok(gold) => gold.judge(completion).verdict,
                    Err(_) => hapo_verify::Verdict::Unparsable(Reason::Gold),
                };
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(chunks) {
            scope.spawn(work);
        }
        work();
    });
    verdicts
}

/// One object for each verdict there is.
#[derive(Default)]
struct Shared([Option<Py<Verdict>>; 2 + Reason::ALL.len()]);

impl Shared {
    fn object(&mut self, py: Python<'_>, verdict: hapo_verify::Verdict) -> PyResult<Py<Verdict>> {
        let at = match verdict {
            hapo_verify::Verdict::Correct => 0,
            hapo_verify::Verdict::Wrong => 1,
            hapo_verify::Verdict::Unparsable(reason) => {
                let at = Reason::ALL.iter().position(|it| *it == reason);
                2 + at.expect("every reason is in the list")
            }
        };
        if let Some(it) = &self.0[at] {
            return Ok(it.clone_ref(py));
        }
        let made = Py::new(py, Verdict(verdict))?;
        self.0[at] = Some(made.clone_ref(py));
        Ok(made)
    }
}

/// Raises `ValueError` where a gold answer cannot be read, and says why.
#[pyfunction]
#[pyo3(signature = (gold, grader="math"))]
pub(crate) fn check_gold(gold: &Bound<'_, PyAny>, grader: &str) -> PyResult<()> {
    let gold = text("gold", gold)?;
    let checked = hapo_verify::check_gold(&grader_of(grader, "any")?, &gold);
    checked.map_err(|problem| value_error("gold", problem))
}

/// The graders there are: name and one line.
#[pyfunction]
pub(crate) fn graders() -> Vec<(&'static str, &'static str)> {
    hapo_verify::GRADERS.iter().map(|it| (it.name(), it.summary())).collect()
}
