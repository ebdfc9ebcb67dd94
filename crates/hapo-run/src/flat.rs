//! Why a reward is flat: a few shares, and the key to change.

use serde::{Deserialize, Serialize};

use crate::columns::Columns;

/// Properties of responses and groups, as shares from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResponseShares {
    pub truncated: f64,
    pub boxed: f64,
    /// Responses without one that announce an answer.
    pub announced: f64,
    /// Responses with an answer that counts and can be read.
    #[serde(rename = "format")]
    pub read: f64,
    /// Groups that cannot move the weights: their rewards are equal.
    #[serde(rename = "equal_rewards")]
    pub without_signal: f64,
    pub all_solved: f64,
    /// Prompts with an admissible teacher; `None` where no teacher is to enter, or where nothing is known of it.
    #[serde(skip)]
    pub with_teacher: Option<f64>,
    /// The grader looks for a boxed or announced answer.
    pub seeks_answers: bool,
    #[serde(skip)]
    pub solutions_fit: bool,
    pub limit: usize,
}

/// Why a run cannot learn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub name: &'static str,
    /// With the key to change.
    pub text: String,
}

impl ResponseShares {
    /// Those of the last tenth of a run's steps, as far as its metrics have them.
    pub fn of_last_steps(columns: &Columns, limit: usize, seeks_answers: bool) -> Option<Self> {
        let last = |name: &str| columns.last_tenth(name);
        let responses =
            last("verify/correct")? + last("verify/wrong")? + last("verify/unparsable")?;
        let groups = last("groups/all_fail")?
            + last("groups/all_solved")?
            + last("groups/partially_solved")?;
        let of_responses = |it: f64| it / responses.max(1.0);
        let of_groups = |it: f64| it / groups.max(1.0);
        let injected = last("gate/beta").unwrap_or(0.0) * groups;
        let untaught = last("gate/open_no_teacher").unwrap_or(0.0);
        Some(Self {
            truncated: last("response_length/truncated")?,
            boxed: of_responses(last("verify/boxed")?),
            announced: of_responses(last("verify/announced")?),
            read: 1.0 - of_responses(last("verify/unparsable")?),
            without_signal: of_groups(last("groups/without_signal").unwrap_or(0.0)),
            all_solved: of_groups(last("groups/all_solved")?),
            // A gate that is closed asks for none.
            with_teacher: (injected + untaught > 0.0).then(|| injected / (injected + untaught)),
            seeks_answers,
            solutions_fit: columns.get("gate/beta").is_some_and(|it| it.iter().any(|it| *it > 0.0)),
            limit,
        })
    }

    /// Why a run cannot learn, or only by luck; the first cause explains the later ones.
    pub fn causes(&self) -> Vec<Cause> {
        let mut all: Vec<Cause> = self.cut_off().into_iter().chain(self.unread()).collect();
        let mut add = |name, text: &str| all.push(Cause { name, text: text.to_owned() });
        if self.with_teacher == Some(0.0) {
            add(
                "no-teacher",
                "No prompt has an admissible teacher, so the method is plain GRPO here. `hapo data check` says why; \
                 sampling.max_new_tokens must hold a solution.",
            );
        }
        if self.without_signal == 1.0 && self.all_solved == 1.0 {
            add("all-solved", "Every group is solved: there is nothing left to learn.");
        } else if self.without_signal == 1.0 && self.with_teacher.is_none_or(|it| it == 0.0) {
            add(
                "no-signal",
                "The rewards of each group are equal and no teacher helps: there is no signal to learn from. Take easier \
                 problems, add solutions, raise sampling.group_size, or give partial rewards.",
            );
        }
        all
    }

    fn cut_off(&self) -> Option<Cause> {
        if self.truncated <= 0.5 {
            return None;
        }
        let (cut, limit) = (percent(self.truncated), self.limit);
        let so = if self.solutions_fit {
            "The data's solutions fit: the model does not stop yet"
        } else {
            "Raise it"
        };
        let text = format!(
            "{cut} of the responses are cut off at sampling.max_new_tokens = {limit}. {so}. Cut-off answers count as \
             wrong (data.truncated)."
        );
        Some(Cause { name: "cut-off", text })
    }

    fn unread(&self) -> Option<Cause> {
        let answered = self.boxed + self.announced;
        // Cut responses explain missing answers, unless many end and have none either.
        if self.truncated > 0.5 && (self.truncated > 0.75 || answered > 0.0) {
            return None;
        }
        if !self.seeks_answers {
            let text = "The grader reads no answer in any response.".to_owned();
            return Some(Cause { name: "unread", text }).filter(|_| self.read == 0.0);
        }
        if answered < 0.5 {
            let why = if self.solutions_fit {
                "The data's solutions do: the model does not yet."
            } else {
                "Is data.template the model's own, and does it ask for a box?"
            };
            let text = format!(
                "{} of the responses neither box nor announce an answer. {why} data.extraction says what counts.",
                percent(1.0 - answered)
            );
            return Some(Cause { name: "no-answer", text });
        }
        // Responses that are cut give no answer that counts, boxed or not.
        let lost = answered - self.read - self.truncated;
        (self.read == 0.0 || lost > 0.25).then(|| {
            let text = format!(
                "{} of the responses give an answer that does not count or cannot be read. Do data.extraction and \
                 data.grader fit what the model writes?",
                percent(if self.read == 0.0 { 1.0 } else { lost })
            );
            Cause { name: "unread", text }
        })
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
