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
    /// Groups without a success.
    pub all_fail: f64,
    /// Groups of successes alone.
    pub all_solved: f64,
    /// Prompts with an admissible teacher; `None` where no teacher is to enter, or where nothing is known of it.
    pub with_teacher: Option<f64>,
    pub limit: usize,
}

impl ResponseShares {
    /// Why a run cannot learn, or only by luck, each with the key to change; the first cause explains the later ones.
    pub fn causes(&self) -> Vec<String> {
        let mut all = Vec::new();
        all.extend(self.unread());
        if self.with_teacher == Some(0.0) {
            all.push(
                "no prompt has an admissible teacher, and the method is plain GRPO here: `hapo data check` says why, \
                 sampling.max_new_tokens must hold it"
                    .to_owned(),
            );
        }
        if self.all_fail == 1.0 && self.with_teacher.is_none_or(|it| it == 0.0) {
            all.push(
                "every group fails and no teacher helps: there is no signal to learn from; take easier problems, \
                 raise sampling.group_size or add teachers"
                    .to_owned(),
            );
        }
        if self.all_solved == 1.0 {
            all.push("every group is solved: there is nothing left to learn".to_owned());
        }
        all
    }

    /// Why answers do not count.
    fn unread(&self) -> Option<String> {
        let answered = self.boxed + self.announced;
        if self.truncated > 0.5 {
            return Some(format!(
                "{:.0} % of the responses are cut at sampling.max_new_tokens = {}: raise it; data.truncated says what \
                 they are worth",
                self.truncated * 100.0,
                self.limit
            ));
        }
        if answered < 0.5 {
            return Some(format!(
                "{:.0} % of the responses neither box nor announce an answer: is data.template the model's own, and \
                 does it ask for a box? data.extraction says what counts",
                (1.0 - answered) * 100.0
            ));
        }
        if self.read == 0.0 {
            return Some(
                "no answer that counts could be read from any response: do data.extraction and data.grader fit what \
                 the model writes?"
                    .to_owned(),
            );
        }
        // Responses that are cut give no answer that counts, boxed or not.
        let lost = answered - self.read - self.truncated;
        (lost > 0.25).then(|| {
            format!(
                "{:.0} % of the responses give an answer that does not count or cannot be read: do data.extraction \
                 and data.grader fit what the model writes?",
                lost * 100.0
            )
        })
    }
}
