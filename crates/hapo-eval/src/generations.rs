//! Completions as they are, with their tokens, one a line: the output of `hapo generate`, which is its own journal.

use std::{collections::BTreeSet, path::Path};

use hapo_core::{Refusal, RngStream};
use hapo_data::Example;
use hapo_run::{Journal, JournalFormat, OpenMode, Span};
use serde_json::{Value, json};

use crate::completions::{Completions, OTHER_DATA, OTHER_SETTINGS, Piece, Progress, Summarise};
use crate::grading::{Judge, RawCompletion};
use crate::{plan::Plan, scores::Scores};

pub struct Generations<'a> {
    examples: &'a [Example],
    /// Of each problem, the numbers of its completions.
    done: Vec<BTreeSet<u32>>,
    each: &'a mut dyn FnMut(&Value),
}

impl Summarise for Generations<'_> {
    type Line = Value;
    const FORMAT: JournalFormat = JournalFormat {
        name: "hapo_generate",
        version: 1,
        settings: "settings",
        first_line: "the settings of hapo generate",
        line: "a completion",
        if_other: "name a file that `hapo generate --out` wrote, or a new one for --out",
        if_changed: OTHER_SETTINGS,
    };
    const STREAM: RngStream = RngStream::Generate;
    const TAKES_FAILURES: bool = false;
    const GRADES: bool = false;

    fn settings(plan: &Plan) -> Value {
        let mut settings = Scores::settings(plan);
        let fields = settings.as_object_mut().expect("settings are an object");
        fields.retain(|key, _| !["grader", "extraction", "truncated"].contains(&&**key));
        let cut = plan.local.truncation;
        fields.insert("top_k".to_owned(), json!(cut.top_k));
        fields.insert("min_p".to_owned(), json!(cut.min_p));
        fields.insert("stop".to_owned(), json!(plan.local.stop));
        settings
    }

    fn read(&mut self, _: &[Judge<'_>], line: Value, _: Span) -> Result<(), Refusal> {
        let mut problems = self.examples.iter();
        let found = problems.position(|it| line["row"] == it.row && line["problem"] == *it.problem);
        let Some((problem, index)) = found.zip(line["index"].as_u64()) else {
            let other = format!("a completion of another problem in row {}", line["row"]);
            return Err(Refusal::input(other).hint(OTHER_DATA));
        };
        self.done[problem].insert(index as u32);
        Ok(())
    }

    fn missing(&self, plan: &Plan) -> Vec<Piece> {
        let count = plan.sets[0].completions as u32;
        let problems = self.done.iter().enumerate().filter(|it| it.1.len() < count as usize);
        problems.map(|(problem, _)| Piece { set: 0, problem, first: 0, count }).collect()
    }

    fn progress(&self) -> Progress {
        let completions = self.done.iter().map(BTreeSet::len).sum();
        Progress { completions, ..Progress::default() }
    }

    fn add(
        &mut self,
        _: &[Judge<'_>],
        mut journal: Option<&mut Journal>,
        piece: Piece,
        completions: Vec<RawCompletion>,
    ) -> Result<(Progress, Option<Piece>), Refusal> {
        let example = &self.examples[piece.problem];
        let mut added = Progress::default();
        for (index, completion) in (piece.first..).zip(completions) {
            // One that is there belongs to a group that the file has a part of.
            if !self.done[piece.problem].insert(index) {
                continue;
            }
            let (rollout, details) = completion.drawn.unwrap_or_default();
            let line = json!({
                "id": example.id, "index": index, "row": example.row, "problem": example.problem,
                "completion": completion.text, "tokens": rollout.tokens, "logprobs": rollout.log_probs,
                "logprobs_t1": details.log_probs_t1, "ended": rollout.ended, "finish": details.finish.name(),
            });
            if let Some(journal) = &mut journal {
                journal.append(&line)?;
            }
            (self.each)(&line);
            added.completions += 1;
        }
        Ok((added, None))
    }
}

impl<'a> Completions<'a, Generations<'a>> {
    /// The completions of the plan's one set, without those in `out`; `each` hears of every new line.
    pub fn of_generation(
        plan: &'a Plan,
        out: Option<&Path>,
        each: &'a mut dyn FnMut(&Value),
    ) -> Result<Self, Refusal> {
        let examples = &plan.sets[0].dataset.examples[..];
        let done = vec![BTreeSet::new(); examples.len()];
        let out = out.map(|path| (path, OpenMode::ResumeOrStart));
        Self::begin(plan, Generations { examples, done, each }, out)
    }
}
