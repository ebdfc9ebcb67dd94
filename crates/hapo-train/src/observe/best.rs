//! Which checkpoint is the best, which evaluation is the best so far, the one of the start included, and early stopping,
//! which ends a run after a number of evaluations in a row that are no better.
//!
//! All look at logged numbers only, so a resumed run decides as the unbroken one does.

use serde_json::Value;

use super::logged;
use crate::recipe::Recipe;

#[derive(Debug)]
pub(crate) struct EarlyStopping<'a> {
    metric: &'a str,
    /// 1 where higher is better.
    sign: f64,
    /// Evaluations to wait for a better one; 0 = the run goes to its end.
    limit: u64,
    best: Option<f64>,
    since: u64,
}

impl<'a> EarlyStopping<'a> {
    /// The rule of a recipe, after its start and the steps of `history`. `None` for a run without evaluations.
    pub(crate) fn of(recipe: &'a Recipe, start: Option<&Value>, history: &[Value]) -> Option<Self> {
        let limit = recipe.eval.as_ref()?.patience;
        let best = Some(recipe.best_metric()).filter(|it| it.0.starts_with("eval/"));
        let (metric, sign) = best.unwrap_or(("eval/avg@k", 1.0));
        let mut it = Self { metric, sign, limit, best: None, since: 0 };
        for line in start.into_iter().chain(history) {
            it.add(&logged(line));
        }
        Some(it)
    }

    /// Looks at the numbers of a step; whether it was evaluated as the best so far.
    pub(crate) fn add(&mut self, number: &impl Fn(&str) -> Option<f64>) -> bool {
        let Some(value) = number(self.metric).map(|it| it * self.sign) else { return false };
        if self.best.is_none_or(|best| value > best) {
            (self.best, self.since) = (Some(value), 0);
        } else {
            self.since += 1;
        }
        self.since == 0
    }

    /// Why the run ends, once it has waited long enough.
    pub(crate) fn ended(&self) -> Option<String> {
        let best = self.best.filter(|_| self.limit > 0 && self.since >= self.limit)? * self.sign;
        let (metric, since) = (self.metric, self.since);
        Some(format!("{metric} has not been better than {best:.4} for {since} evaluations"))
    }
}

/// Mean of one metric since the last checkpoint, or the evaluation after the last step: what `checkpoint.best` compares.
pub(crate) struct Score<'a> {
    metric: &'a str,
    sign: f64,
    sum: f64,
    steps: u32,
}

impl<'a> Score<'a> {
    /// Of a metric, with its sign: 1 where higher is better, −1 where lower is.
    pub(crate) fn new((metric, sign): (&'a str, f64)) -> Self {
        Self { metric, sign, sum: 0.0, steps: 0 }
    }

    pub(crate) fn add(&mut self, number: &impl Fn(&str) -> Option<f64>) {
        // An evaluation is of weights, a step's metric of what was sampled on the way to them.
        if self.metric.starts_with("eval/") {
            (self.sum, self.steps) = (0.0, 0);
        }
        if let Some(it) = number(self.metric) {
            self.sum += it * self.sign;
            self.steps += 1;
        }
    }

    pub(crate) fn take(&mut self) -> Option<f64> {
        let mean = (self.steps > 0).then(|| self.sum / f64::from(self.steps));
        (self.sum, self.steps) = (0.0, 0);
        mean
    }
}

#[cfg(test)]
mod tests {
    use hapo_run::Metrics;
    use serde_json::json;

    use super::*;

    /// Evaluations after each of which the run would end.
    fn ends(best: &str, patience: u64, start: Option<f64>, values: &[Option<f64>]) -> Vec<usize> {
        let text = format!(
            "method = \"grpo\"\nmodel.path = \"builtin:base\"\ncheckpoint.best = \"{best}\"\n\
             eval = {{ suite = \"mini6\", patience = {patience} }}"
        );
        let recipe = Recipe::parse(&text, "r", &crate::Overrides::default()).unwrap();
        let metrics = |value: &Option<f64>| {
            let mut it = Metrics::default();
            if let Some(value) = value {
                it.set("eval/avg@k", *value);
            }
            it
        };
        let start = start.map(|value| json!({ "eval/avg@k": value }));
        let start = start.as_ref();
        let mut it = EarlyStopping::of(&recipe, start, &[]).unwrap();
        let mut found = Vec::new();
        let mut history = Vec::new();
        for (index, value) in values.iter().enumerate() {
            it.add(&|name| metrics(value).get(name));
            history.push(serde_json::from_str(&metrics(value).to_json()).unwrap());
            let resumed = EarlyStopping::of(&recipe, start, &history).unwrap();
            assert_eq!(resumed.ended(), it.ended(), "after {index}");
            found.extend(it.ended().map(|_| index));
        }
        found
    }

    #[test]
    fn a_run_ends_after_evaluations_that_are_no_better() {
        let values = [Some(0.1), None, Some(0.3), Some(0.3), None, Some(0.2), Some(0.4)];
        assert_eq!(ends("eval/avg@k", 2, None, &values), [5]);
        assert_eq!(ends("reward/policy_only", 1, None, &values), [3, 4, 5]);
        assert_eq!(ends("-eval/avg@k", 2, None, &values), [3, 4, 5, 6]);
        assert!(ends("eval/avg@k", 3, None, &values).is_empty());
        assert!(ends("eval/avg@k", 0, None, &values).is_empty());
        // The start counts, and a tie is no better.
        assert_eq!(ends("eval/avg@k", 2, Some(0.3), &values), [2, 3, 4, 5]);
        assert_eq!(ends("auto", 2, Some(0.05), &values), [5]);
    }

    #[test]
    fn a_score_is_the_mean_since_the_last_checkpoint() {
        let metrics = |value: f64| {
            let mut it = Metrics::default();
            it.set("loss", value);
            it
        };
        let mut score = Score::new(("loss", -1.0));
        score.add(&|name| metrics(1.0).get(name));
        score.add(&|name| metrics(2.0).get(name));
        assert_eq!(score.take(), Some(-1.5));
        assert_eq!(score.take(), None);
        let mut last = Score::new(("eval/avg@k", 1.0));
        for value in [0.5, 0.25] {
            let mut it = Metrics::default();
            it.set("eval/avg@k", value);
            last.add(&|name| it.get(name));
        }
        assert_eq!(last.take(), Some(0.25));
        // The weights of a later step are not those that were evaluated.
        let mut evaluated = Metrics::default();
        evaluated.set("eval/avg@k", 0.75);
        last.add(&|name| evaluated.get(name));
        last.add(&|name| metrics(1.0).get(name));
        assert_eq!(last.take(), None);
        let mut other = Score::new(("reward/policy_only", 1.0));
        other.add(&|name| metrics(1.0).get(name));
        assert_eq!(other.take(), None);
    }
}
