//! Gold answers that were read once, and the grading of completions against them.

use crate::{Completion, GoldError, Grader, Judgement, PreparedGold, Problem};
use rayon::prelude::*;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A gold answer, or several of which any counts, read once for any number of completions.
#[derive(Clone, Debug)]
pub struct Gold {
    first: Arc<dyn PreparedGold>,
    others: Vec<Arc<dyn PreparedGold>>,
}

impl From<Box<dyn PreparedGold>> for Gold {
    fn from(gold: Box<dyn PreparedGold>) -> Gold {
        Gold { first: Arc::from(gold), others: Vec::new() }
    }
}

impl Gold {
    /// Reads a gold answer for `grader`; an error where it is empty or cannot be read.
    pub fn new(grader: &dyn Grader, gold: &str) -> Result<Gold, GoldError> {
        grader.prepare(gold).map(Gold::from)
    }

    /// As [`Gold::any`], of a row of a data set: its gold answers, and whatever else the grader is shown.
    pub fn of(grader: &dyn Grader, problem: &Problem<'_>) -> Result<Gold, GoldError> {
        match grader.prepare_problem(problem) {
            Some(it) => it.map(Gold::from),
            None => Gold::any(grader, problem.golds.iter().copied()),
        }
    }

    /// Reads several gold answers for `grader`: a completion is correct if it matches any of them, as in OAT's and
    /// Math-Verify's lists. Gold answers that cannot be read are skipped as long as one can be read; where none can,
    /// the error is that of the first.
    pub fn any<'a>(
        grader: &dyn Grader,
        gold_answers: impl IntoIterator<Item = &'a str>,
    ) -> Result<Gold, GoldError> {
        let read = gold_answers.into_iter().map(|gold| grader.prepare(gold).map(Arc::from));
        let (read, unread): (Vec<_>, Vec<_>) = read.partition(Result::is_ok);
        let mut read = read.into_iter().flatten();
        match (read.next(), unread.into_iter().find_map(Result::err)) {
            (Some(first), _) => Ok(Gold { first, others: read.collect() }),
            (None, error) => Err(error.unwrap_or(GoldError::Empty)),
        }
    }

    /// Judges one completion: by the first of several gold answers that it matches, or else by the first.
    pub fn judge(&self, completion: &str) -> Judgement {
        self.judge_completion(completion.into())
    }

    /// As [`Gold::judge`], of a completion of which more is known than its text.
    pub fn judge_completion(&self, completion: Completion<'_>) -> Judgement {
        let first = self.first.judge_completion(completion);
        if first.verdict.is_correct() {
            return first;
        }
        let mut others = self.others.iter().map(|it| it.judge_completion(completion));
        let correct = others.find(|it| it.verdict.is_correct());
        correct.unwrap_or(first)
    }
}

/// Judges `completion` against `gold`. One that cannot be read gives [`crate::Reason::Gold`]; [`check_gold`] finds it.
pub fn grade(grader: &dyn Grader, gold: &str, completion: &str) -> Judgement {
    Gold::new(grader, gold).map_or_else(|error| error.judgement(), |gold| gold.judge(completion))
}

/// Checks that `gold` can be compared with at all. Loading data checks every gold answer with this.
pub fn check_gold(grader: &dyn Grader, gold: &str) -> Result<(), GoldError> {
    grader.prepare(gold).map(|_| ())
}

/// Judges every `(gold, completion)` on all cores, in the order of the input. Equal gold answers are read once.
pub fn grade_batch(grader: &dyn Grader, pairs: &[(&str, &str)]) -> Vec<Judgement> {
    let texts: HashSet<&str> = pairs.iter().map(|(gold, _)| *gold).collect();
    let golds: HashMap<&str, Result<Gold, GoldError>> =
        texts.into_par_iter().map(|gold| (gold, Gold::new(grader, gold))).collect();
    let judge = |(gold, completion): &(&str, &str)| match &golds[gold] {
        Ok(gold) => gold.judge(completion),
        Err(error) => error.judgement(),
    };
    pairs.par_iter().map(judge).collect()
}
