//! Hashes of a run's inputs besides its recipe: a resume with other inputs would not be the run that was begun.
//!
//! Data are hashed as they were read and weights as the numbers that they are, so a file that says the same in
//! another way is the same input. The price is one pass over the weights at every start.

use std::collections::BTreeMap;

use hapo_core::{TeacherTrajectory, hex};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Each input by its key in files and its name in messages.
const NAMED: [(&str, &str); 14] = [
    ("prompts", "the rendered prompts (data.train)"),
    ("answers", "the gold answers (data.train)"),
    ("teachers", "the teachers (data.train)"),
    ("evaluation", "the problems of the evaluation (eval)"),
    ("config", "the configuration (model)"),
    ("tokenizer", "the tokenizer (model)"),
    ("template", "the chat template (data.template)"),
    (WEIGHTS, "the base weights (model)"),
    (PUBLISHED_WEIGHTS, "the base weights (model)"),
    (INVARIANT, "whether rows of products are independent (--device)"),
    ("reference", "the second model (reference)"),
    ("record", "the recorded injections (hapo.record)"),
    ("method", "the file of the method's code (method)"),
    ("arithmetic", "the arithmetic of the processor (hapo itself)"),
];

/// The weights in the order that they are held in, read back from the device: a CPU's runs.
pub(crate) const WEIGHTS: &str = "weights";

/// The weights tensor by tensor as they were read: a GPU's runs.
pub(crate) const PUBLISHED_WEIGHTS: &str = "weights.v2";

/// On a GPU: whether a row of a product has the same bits alone and among others.
pub(crate) const INVARIANT: &str = "sampler/invariant";

/// SHA-256 of each thing that a run reads, by its name; the arithmetic by its own name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Inputs(BTreeMap<String, String>);

impl Inputs {
    /// The inputs that both have and that differ from `now`.
    pub fn differences(&self, now: &Self) -> Vec<String> {
        let differs = |it: &(&String, &String)| now.0.get(it.0).is_some_and(|hash| hash != it.1);
        let named = |(name, _): (&String, &String)| {
            NAMED.iter().find(|it| it.0 == name).map_or(name.as_str(), |it| it.1).to_owned()
        };
        self.0.iter().filter(differs).map(named).collect()
    }

    /// True if the rows are those of `other`, so that their numbers name the same prompts.
    pub(crate) fn has_rows_of(&self, other: &Self) -> bool {
        ["prompts", "answers", "teachers"].iter().all(|it| self.0.get(*it) == other.0.get(*it))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(crate) fn set(&mut self, name: &str, hash: String) {
        self.0.insert(name.to_owned(), hash);
    }

    pub(crate) fn of_evaluation<'a>(sets: impl Iterator<Item = &'a Self>) -> Self {
        let (mut inputs, mut hash) = (Self::default(), Sha256::new());
        for it in sets.flat_map(|it| &it.0) {
            hash.update(it.0);
            hash.update(it.1);
        }
        inputs.set("evaluation", hex(hash.finalize()));
        inputs
    }

    pub(crate) fn and(mut self, other: &Self) -> Self {
        self.0.extend(other.0.clone());
        self
    }
}

#[derive(Default)]
pub(crate) struct RowHashes {
    prompts: Sha256,
    answers: Sha256,
    teachers: Sha256,
}

impl RowHashes {
    pub(crate) fn add<'a>(
        &mut self,
        prompt: &[u32],
        golds: impl Iterator<Item = &'a str>,
        teachers: &[TeacherTrajectory],
        hints: &[Vec<u32>],
    ) {
        for it in [prompt].into_iter().chain(hints.iter().map(Vec::as_slice)) {
            add_tokens(&mut self.prompts, Some(it));
        }
        let golds: Vec<&str> = golds.collect();
        self.answers.update((golds.len() as u64).to_le_bytes());
        for it in golds {
            self.answers.update((it.len() as u64).to_le_bytes());
            self.answers.update(it);
        }
        // The first or none, as where one is read at most, and the others.
        add_tokens(&mut self.teachers, teachers.first().map(TeacherTrajectory::tokens));
        for it in teachers.iter().skip(1) {
            add_tokens(&mut self.teachers, Some(it.tokens()));
        }
    }

    pub(crate) fn finish(self) -> Inputs {
        let mut inputs = Inputs::default();
        inputs.set("prompts", hex(self.prompts.finalize()));
        inputs.set("answers", hex(self.answers.finalize()));
        inputs.set("teachers", hex(self.teachers.finalize()));
        inputs
    }
}

fn add_tokens(hash: &mut Sha256, tokens: Option<&[u32]>) {
    // No tokens at all are told from none.
    hash.update(tokens.map_or(u64::MAX, |it| it.len() as u64).to_le_bytes());
    for it in tokens.unwrap_or_default() {
        hash.update(it.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named_and_what_one_does_not_know_is_not() {
        let inputs = |pairs: &[(&str, &str)]| {
            let mut it = Inputs::default();
            for (name, hash) in pairs {
                it.set(name, (*hash).to_owned());
            }
            it
        };
        let before = inputs(&[("answers", "a"), ("weights", "w"), ("old", "o")]);
        let now = inputs(&[("answers", "b"), ("weights", "w"), ("new", "n")]);
        assert_eq!(before.differences(&now), ["the gold answers (data.train)"]);
        assert!(before.differences(&before).is_empty());
    }

    #[test]
    fn rows_are_told_apart_where_their_joined_texts_are_not() {
        let row = |golds: &[&[&str]]| {
            let mut it = RowHashes::default();
            for golds in golds {
                it.add(&[1, 2], golds.iter().copied(), &[], &[]);
            }
            it.finish()
        };
        let one = row(&[&["1", "23"]]);
        for other in [row(&[&["12", "3"]]), row(&[&["1"], &["23"]])] {
            assert!(!one.differences(&other).is_empty());
        }
    }
}
