//! Why a reward is flat: a few shares, and the key to change.

/// Properties of responses and groups, as shares from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResponseShares {
    /// Responses cut at the limit.
    pub truncated: f64,
    /// Responses with an answer in a closed box.
    pub boxed: f64,
    /// Responses without one that announce an answer.
    pub announced: f64,
    /// Responses with an answer that counts and can be read.
    pub read: f64,
    /// Groups that cannot move the weights: their rewards are equal.
    pub without_signal: f64,
    /// Groups of successes alone.
    pub all_solved: f64,
    /// Prompts with an admissible teacher; `None` where no teacher is to enter, or where nothing is known of it.
    pub with_teacher: Option<f64>,
    /// The grader looks for a boxed or announced answer.
    pub seeks_answers: bool,
    /// Solutions of the data fit into the limit.
    pub solutions_fit: bool,
    pub limit: usize,
}

impl ResponseShares {
    /// Why a run cannot learn, or only by luck, each with the key to change; the first cause explains the later ones.
    pub fn causes(&self) -> Vec<String> {
        let mut all = Vec::new();
        all.extend(self.unread());
        if self.with_teacher == Some(0.0) {
            all.push(
                "No prompt has an admissible teacher, so the method is plain GRPO here. `hapo data check` says why; \
                 sampling.max_new_tokens must hold a solution."
                    .to_owned(),
            );
        }
        if self.without_signal == 1.0 && self.all_solved == 1.0 {
            all.push("Every group is solved: there is nothing left to learn.".to_owned());
        } else if self.without_signal == 1.0 && self.with_teacher.is_none_or(|it| it == 0.0) {
            all.push(
                "The rewards of each group are equal and no teacher helps: there is no signal to learn from. Take easier \
                 problems, add solutions, raise sampling.group_size, or give partial rewards."
                    .to_owned(),
            );
        }
        all
    }

    /// Why answers do not count.
    fn unread(&self) -> Option<String> {
        let percent = |it: f64| format!("{:.0} %", it * 100.0);
        let answered = self.boxed + self.announced;
        if self.truncated > 0.5 {
            let (cut, limit) = (percent(self.truncated), self.limit);
            let so = if self.solutions_fit {
                "The data's solutions fit: the model does not stop yet"
            } else {
                "Raise it"
            };
            return Some(format!(
                "{cut} of the responses are cut off at sampling.max_new_tokens = {limit}. {so}. Cut-off answers count as \
                 wrong (data.truncated)."
            ));
        }
        if !self.seeks_answers {
            return (self.read == 0.0)
                .then(|| "The grader reads no answer in any response.".to_owned());
        }
        if answered < 0.5 {
            return Some(format!(
                "{} of the responses neither box nor announce an answer. Is data.template the model's own, and does it \
                 ask for a box? data.extraction says what counts.",
                percent(1.0 - answered)
            ));
        }
        // Responses that are cut give no answer that counts, boxed or not.
        let lost = answered - self.read - self.truncated;
        (self.read == 0.0 || lost > 0.25).then(|| {
            format!(
                "{} of the responses give an answer that does not count or cannot be read. Do data.extraction and \
                 data.grader fit what the model writes?",
                percent(if self.read == 0.0 { 1.0 } else { lost })
            )
        })
    }
}
