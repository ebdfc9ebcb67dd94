//! The grader `exact`: the last box, or else the last line that is not empty, equals the gold answer once white space
//! is trimmed. No meaning is read; the price is that `1/2` is not `0.5`.

use crate::normalise::last_box;
use crate::{FoundAnswer, GoldError, Grader, Judgement, PreparedGold, Reason, Verdict};

/// Equal text.
pub static EXACT: Exact = Exact;

/// The grader of [`EXACT`].
#[derive(Clone, Copy, Debug)]
pub struct Exact;

impl Grader for Exact {
    fn name(&self) -> &'static str {
        "exact"
    }

    fn summary(&self) -> &'static str {
        "the last box, or the last line, is the gold answer's text"
    }

    fn prepare(&self, gold: &str) -> Result<Box<dyn PreparedGold>, GoldError> {
        match gold.trim() {
            "" => Err(GoldError::Empty),
            gold => Ok(Box::new(Text(gold.to_owned()))),
        }
    }
}

#[derive(Debug)]
struct Text(String);

impl PreparedGold for Text {
    fn judge(&self, completion: &str) -> Judgement {
        match last_box(completion) {
            Ok(answer) => self.compare(answer),
            Err(why @ Reason::UnclosedBox) => Judgement::unparsable(why, self.0.clone()),
            Err(_) => match completion.trim().lines().next_back() {
                Some(line) => self.compare(line),
                None => Judgement::unparsable(Reason::NoAnswer, self.0.clone()),
            },
        }
    }

    fn judge_answer(&self, found: &FoundAnswer<'_>) -> Judgement {
        self.compare(&found.answer)
    }
}

impl Text {
    fn compare(&self, answer: &str) -> Judgement {
        let answer = answer.trim();
        let (verdict, reason) = if answer == self.0 {
            (Verdict::Correct, "the same text")
        } else {
            (Verdict::Wrong, "different text")
        };
        Judgement::new(verdict, answer, self.0.clone(), reason)
    }
}
