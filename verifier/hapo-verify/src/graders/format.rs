//! The grader `format`: whether the completion has the required shape, whatever its answer. The gold answer names the
//! shape: `boxed`, `tags` (`<think>…</think>` and then `<answer>…</answer>`), or `one of: A, B, C`.

use crate::normalise::last_box;
use crate::{GoldError, Grader, Judgement, PreparedGold, Verdict};

/// The right shape.
pub static FORMAT: Format = Format;

/// The grader of [`FORMAT`].
#[derive(Clone, Copy, Debug)]
pub struct Format;

impl Grader for Format {
    fn name(&self) -> &'static str {
        "format"
    }

    fn summary(&self) -> &'static str {
        "the completion has the shape that the gold answer names: boxed, tags, or one of a list"
    }

    fn reads_answers(&self) -> bool {
        false
    }

    fn prepare(&self, gold: &str) -> Result<Box<dyn PreparedGold>, GoldError> {
        let gold = gold.trim();
        let shape = match gold {
            "" => return Err(GoldError::Empty),
            "boxed" => Shape::Boxed,
            "tags" => Shape::Tags,
            _ => Shape::OneOf(options(gold)),
        };
        if shape == Shape::OneOf(Vec::new()) {
            let expected = "`boxed`, `tags` or `one of: A, B, …`";
            return Err(GoldError::unreadable(gold, self.name(), expected));
        }
        Ok(Box::new(shape))
    }
}

fn options(gold: &str) -> Vec<String> {
    let list = gold.strip_prefix("one of:").unwrap_or_default();
    list.split(',').map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()).collect()
}

#[derive(Debug, PartialEq, Eq)]
enum Shape {
    Boxed,
    Tags,
    OneOf(Vec<String>),
}

impl PreparedGold for Shape {
    fn judge(&self, completion: &str) -> Judgement {
        let found = self.find(completion).map(str::trim);
        let (verdict, reason) = match found {
            Some(_) => (Verdict::Correct, "has the shape"),
            None => (Verdict::Wrong, "lacks the shape"),
        };
        Judgement {
            extracted: found.map(str::to_owned),
            ..Judgement::new(verdict, found.unwrap_or_default(), format!("{self:?}"), reason)
        }
    }
}

impl Shape {
    /// The part of the completion that has the shape.
    fn find<'a>(&self, completion: &'a str) -> Option<&'a str> {
        match self {
            Shape::Boxed => last_box(completion).ok().filter(|it| !it.trim().is_empty()),
            Shape::Tags => tagged(completion),
            Shape::OneOf(options) => {
                let last_line = || completion.trim().lines().next_back().unwrap_or_default();
                let answer = last_box(completion).unwrap_or_else(|_| last_line());
                let known = options.iter().any(|it| it == answer.trim());
                known.then_some(answer)
            }
        }
    }
}

/// The content of `<answer>` after a closed `<think>`; each tag exactly once.
fn tagged(text: &str) -> Option<&str> {
    let tags = ["<think>", "</think>", "<answer>", "</answer>"];
    tags.iter().all(|tag| text.matches(tag).count() == 1).then_some(())?;
    let (thought, rest) = text.split_once("</think>")?;
    thought.trim_start().starts_with("<think>").then_some(())?;
    let answer = rest.trim_start().strip_prefix("<answer>")?;
    let (answer, after) = answer.split_once("</answer>")?;
    after.trim().is_empty().then_some(answer)
}
