//! The grader `oat`: OAT's `boxed_reward_fn(completion, gold, fast = False)`. The last `\boxed{…}` counts and nothing
//! else. It is correct if one of three comparisons says so: Hendrycks' string normalisation; a plain-text flattening
//! compared element by element; or Math-Verify. The first two are forgiving in ways that are plainly wrong at times
//! (roots lose their index, fractions their brackets); they are followed because rewards are compared with published
//! runs. Its unlimited evaluation of what a model wrote is not.

mod flatten;
mod hendrycks;

use super::math::MathGold;
use crate::normalise::last_box;
use crate::numeric;
use crate::verdict::reported;
use crate::{Fallback, GoldError, Grader, Judgement, MathOptions, PreparedGold, Reason, Verdict};
use flatten::{flat_equal, flatten};
use hendrycks::hendrycks;

/// Longest answer that is flattened; a longer one only meets the other comparisons.
const MAX_ANSWER: usize = 8_192;

/// The OAT grader's judgement.
pub static OAT: Oat = Oat;

/// The grader of [`OAT`].
#[derive(Clone, Copy, Debug)]
pub struct Oat;

impl Grader for Oat {
    fn name(&self) -> &'static str {
        "oat"
    }

    fn summary(&self) -> &'static str {
        "the OAT grader's judgement: the last closed box, by its three comparisons"
    }

    fn prepare(&self, gold: &str) -> Result<Box<dyn PreparedGold>, GoldError> {
        let text = last_box(gold).unwrap_or(gold);
        if text.trim().is_empty() {
            return Err(GoldError::Empty);
        }
        let mut options = MathOptions { fallback: Fallback::Nothing, ..MathOptions::DEFAULT };
        options.targets.boxed_priority = Some(0);
        options.gold_targets.boxed_priority = Some(0);
        Ok(Box::new(OatGold {
            hendrycks: hendrycks(text),
            flat: flatten(text),
            text: text.to_owned(),
            math: MathGold::read(&in_dollars(text), text, &options).ok(),
        }))
    }

    fn counterpart(&self) -> Option<&'static str> {
        Some("math")
    }
}

#[derive(Debug)]
struct OatGold {
    hendrycks: String,
    flat: String,
    text: String,
    math: Option<MathGold>,
}

impl PreparedGold for OatGold {
    fn judge(&self, completion: &str) -> Judgement {
        numeric::refuel();
        let answer = match last_box(completion) {
            Ok(it) => it,
            Err(why) => return Judgement::unparsable(why, self.text.clone()),
        };
        let judgement = |verdict, read: String, reason| Judgement {
            extracted: Some(reported(answer.to_owned())),
            answer_read: read,
            ..Judgement::new(verdict, "", self.text.clone(), reason)
        };
        if answer.len() <= MAX_ANSWER {
            let normal = hendrycks(answer);
            if normal == self.hendrycks {
                let rule = "equal once normalised (MATH rules)";
                return judgement(Verdict::Correct, normal, rule);
            }
            let flat = flatten(answer);
            if let Some(rule) = flat_equal(&self.flat, &flat) {
                return judgement(Verdict::Correct, flat, rule);
            }
        }
        let Some(math) = &self.math else {
            return judgement(Verdict::Wrong, String::new(), "different");
        };
        let mut by_math = math.judge(&in_dollars(answer));
        by_math.extracted = Some(reported(answer.to_owned()));
        if let Verdict::Unparsable(Reason::NoAnswer) = by_math.verdict {
            by_math.verdict = Verdict::Unparsable(Reason::Unreadable);
        }
        by_math
    }
}

fn in_dollars(text: &str) -> String {
    if text.contains('$') { text.to_owned() } else { format!("${text}$") }
}

/// The content of a text that is `\text{…}` from end to end.
fn whole_text(text: &str) -> Option<&str> {
    text.strip_prefix("\\text{")?.strip_suffix('}').filter(|it| !it.is_empty())
}
