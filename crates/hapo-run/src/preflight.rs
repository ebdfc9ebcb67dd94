//! The measurements of a dry run on the first prompts, what to expect of the run, and why a reward is flat: a few shares,
//! and the key to change.

use serde::{Deserialize, Serialize};

use hapo_core::counted;

use crate::columns::Columns;

/// The measurements. Rates are shares of the responses unless they say otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preflight {
    pub prompts: usize,
    pub group_size: usize,
    pub success: f64,
    /// Groups without a correct response, of all groups.
    pub all_fail: f64,
    /// Mean reward, where one other than 0 and 1 occurred.
    pub mean_reward: Option<f64>,
    #[serde(flatten)]
    pub shares: ResponseShares,
    pub ended: f64,
    pub response_tokens: f64,
    /// Prompts of the run with an admissible teacher, of all prompts.
    pub teacher_coverage: f64,
    /// Mean and largest length of the teacher's trajectories in tokens.
    pub teacher_tokens: (f64, usize),
    pub step_seconds: f64,
    pub steps: u64,
    /// Bytes of weights, gradients, moments and the copy for the KL.
    pub state_bytes: u64,
    /// Bytes that the process holds after one sampling and one gradient; 0 where the system does not say.
    pub resident_bytes: u64,
    pub wants_teacher: bool,
}

impl Preflight {
    pub fn lines(&self) -> Vec<String> {
        let shares = &self.shares;
        let percent = |it: f64| format!("{:.1} %", it * 100.0);
        let (mean, longest) = self.teacher_tokens;
        let success = percent(self.success);
        let groups = if let Some(mean) = self.mean_reward {
            let equal = percent(shares.without_signal);
            format!("mean reward {mean:.3}, success {success}, groups of equal rewards {equal}")
        } else {
            let [fail, solved] = [self.all_fail, shares.all_solved].map(percent);
            format!("success {success}, all-fail groups {fail}, all-solved {solved}")
        };
        let mut answers = String::new();
        if shares.seeks_answers {
            let [boxed, announced] = [shares.boxed, shares.announced].map(percent);
            answers = format!("boxed {boxed}, announced {announced}, ");
        }
        let mut lines = vec![
            format!("pre-flight  {} prompts × {}: {groups}", self.prompts, self.group_size),
            format!(
                "            answers: {answers}readable {}; cut off at {} tokens {} (mean {:.0} tokens)",
                percent(shares.read),
                shares.limit,
                percent(shares.truncated),
                self.response_tokens,
            ),
        ];
        if self.wants_teacher {
            lines.push(format!(
                "            teacher for {} of the prompts, {mean:.0} tokens on average, {longest} at most",
                percent(self.teacher_coverage),
            ));
        }
        lines.push(format!(
                "            about {} a step, {} for {}; weights and moments {:.2} GB, {:.2} GB held now",
                duration(self.step_seconds),
                duration(self.step_seconds * self.steps as f64),
                counted(self.steps, "step", "steps"),
                self.state_bytes as f64 / 1e9,
                self.resident_bytes as f64 / 1e9,
            ));
        lines
    }

    pub fn warnings(&self) -> Vec<String> {
        let shares = ResponseShares {
            solutions_fit: self.teacher_coverage > 0.0,
            with_teacher: self.wants_teacher.then_some(self.teacher_coverage),
            ..self.shares
        };
        shares.causes().into_iter().map(|it| it.text).collect()
    }
}

/// `42 s`, `3 min 5 s`, `2 h 10 min`; below a second `0.3 s` or `40 ms`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        _ if (0.0005..0.0995).contains(&seconds) => format!("{:.0} ms", seconds * 1000.0),
        _ if (0.0995..0.95).contains(&seconds) => format!("{seconds:.1} s"),
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

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
        let sum = |names: [&str; 3]| names.into_iter().map(last).sum::<Option<f64>>();
        let responses = sum(["verify/correct", "verify/wrong", "verify/unparsable"])?;
        let groups = sum(["groups/all_fail", "groups/all_solved", "groups/partially_solved"])?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_name_what_cannot_learn() {
        let shares = ResponseShares {
            without_signal: 0.7,
            seeks_answers: true,
            read: 0.9,
            boxed: 0.85,
            announced: 0.05,
            truncated: 0.05,
            limit: 96,
            ..ResponseShares::default()
        };
        let good = Preflight {
            prompts: 64,
            group_size: 8,
            success: 0.1,
            all_fail: 0.7,
            mean_reward: None,
            shares,
            ended: 0.95,
            response_tokens: 40.0,
            teacher_coverage: 0.25,
            teacher_tokens: (60.0, 80),
            step_seconds: 1.5,
            steps: 60,
            state_bytes: 20_000_000,
            resident_bytes: 100_000_000,
            wants_teacher: true,
        };
        assert!(good.warnings().is_empty());
        assert_eq!(good.lines().len(), 4);
        let seconds = Preflight { step_seconds: 0.2, steps: 4, ..good.clone() }.lines().pop();
        assert!(seconds.unwrap().contains("about 0.2 s a step, 0.8 s for 4 steps;"));
        assert_eq!(
            good.lines()[0],
            "pre-flight  64 prompts × 8: success 10.0 %, all-fail groups 70.0 %, all-solved 0.0 %"
        );
        let warned = |it: Preflight| it.warnings().join("\n");
        let with = |shares| Preflight { shares, ..good.clone() };
        let unread = warned(with(ResponseShares { read: 0.0, ..shares }));
        assert!(unread.contains("data.extraction and data.grader"), "{unread}");
        let unanswered = ResponseShares { read: 0.1, boxed: 0.1, announced: 0.1, ..shares };
        let sought = warned(with(unanswered));
        assert!(sought.starts_with("80 % of the responses neither"), "{sought}");
        assert!(sought.contains("The data's solutions do"), "{sought}");
        let alone = warned(Preflight { teacher_coverage: 0.0, ..with(unanswered) });
        assert!(alone.contains("data.template"), "{alone}");
        // A custom reward asks for no box.
        let own = with(ResponseShares { seeks_answers: false, ..unanswered });
        assert_eq!(warned(own.clone()), "");
        assert!(own.lines()[1].starts_with("            answers: readable 10.0 %; cut off at 96"));
        let lost = warned(with(ResponseShares { read: 0.2, ..shares }));
        assert!(lost.starts_with("65 % of the responses give an answer that does not"), "{lost}");
        // Cut responses come first: they explain missing answers.
        let none = ResponseShares { read: 0.0, boxed: 0.0, announced: 0.0, ..shares };
        let cut = with(ResponseShares { truncated: 0.8, ..none });
        let fits = warned(cut.clone());
        assert!(fits.starts_with("80 % of the responses are cut off at"), "{fits}");
        assert!(fits.contains("does not stop yet") && !fits.contains("data.template"), "{fits}");
        let longer = warned(Preflight { teacher_coverage: 0.0, ..cut });
        assert!(longer.contains("Raise it."), "{longer}");
        assert!(warned(Preflight { teacher_coverage: 0.0, ..good.clone() }).contains("plain GRPO"));
        let equal = ResponseShares { without_signal: 1.0, ..shares };
        let hopeless =
            Preflight { all_fail: 1.0, shares: equal, wants_teacher: false, ..good.clone() };
        assert!(warned(hopeless.clone()).contains("no signal"));
        // Every group fails, and its rewards differ.
        let unequal = ResponseShares { without_signal: 0.125, ..shares };
        let graded = Preflight { shares: unequal, mean_reward: Some(0.2), ..hopeless };
        assert_eq!(warned(graded.clone()), "");
        assert_eq!(
            graded.lines()[0],
            "pre-flight  64 prompts × 8: mean reward 0.200, success 10.0 %, groups of equal rewards 12.5 %"
        );
        assert!(warned(Preflight { all_fail: 1.0, shares: equal, ..good }).is_empty());
    }

    #[test]
    fn durations_have_two_units_at_most() {
        let all = [0.0, 59.4, 59.6, 200.0, 3600.0, 7849.0].map(duration);
        assert_eq!(all, ["0 s", "59 s", "1 min 0 s", "3 min 20 s", "1 h 0 min", "2 h 10 min"]);
    }

    #[test]
    fn durations_below_a_second_are_not_zero() {
        let all = [0.0001, 0.004, 0.0994, 0.0996, 0.34, 0.94, 0.96, 1.4].map(duration);
        assert_eq!(all, ["0 s", "4 ms", "99 ms", "0.1 s", "0.3 s", "0.9 s", "1 s", "1 s"]);
    }
}
