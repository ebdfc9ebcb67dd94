//! Early stopping: a run ends after so many evaluations in a row that are no better than the best.
//!
//! It looks at logged numbers only, so a resumed run decides as the unbroken one does.

use hapo_run::Metrics;
use serde_json::Value;

use crate::recipe::Recipe;

/// The evaluations of a run.
#[derive(Debug)]
pub(crate) struct EarlyStopping<'a> {
    metric: &'a str,
    /// 1 where higher is better.
    sign: f64,
    /// Evaluations to wait for a better one.
    limit: u64,
    best: Option<f64>,
    /// Evaluations since the best one.
    since: u64,
}

impl<'a> EarlyStopping<'a> {
    /// What a recipe says, after the steps of `history`. `None` for a run that goes to its end.
    pub(crate) fn of(recipe: &'a Recipe, history: &[Value]) -> Option<Self> {
        let limit = recipe.eval()?.patience;
        let (metric, sign) = match recipe.checkpoint().best_metric() {
            best if best.0.starts_with("eval/") => best,
            _ => ("eval/avg@k", 1.0),
        };
        let mut it = Self { metric, sign, limit, best: None, since: 0 };
        for line in history {
            it.see(line.get(metric).and_then(Value::as_f64));
        }
        (limit > 0).then_some(it)
    }

    /// Looks at a step.
    pub(crate) fn add(&mut self, metrics: &Metrics) {
        self.see(metrics.get(self.metric));
    }

    fn see(&mut self, value: Option<f64>) {
        let Some(value) = value.map(|it| it * self.sign) else {
            return;
        };
        if self.best.is_none_or(|best| value > best) {
            (self.best, self.since) = (Some(value), 0);
        } else {
            self.since += 1;
        }
    }

    /// Why the run ends, once it has waited long enough.
    pub(crate) fn ended(&self) -> Option<String> {
        let best = self.best.filter(|_| self.since >= self.limit)? * self.sign;
        let (metric, since) = (self.metric, self.since);
        Some(format!("{metric} has not been better than {best:.4} for {since} evaluations"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Evaluations after each of which the run would end.
    fn ends(best: &str, patience: u64, values: &[Option<f64>]) -> Vec<usize> {
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
        let Some(mut it) = EarlyStopping::of(&recipe, &[]) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        let mut history = Vec::new();
        for (index, value) in values.iter().enumerate() {
            it.add(&metrics(value));
            history.push(serde_json::from_str(&metrics(value).to_json()).unwrap());
            let resumed = EarlyStopping::of(&recipe, &history).unwrap();
            assert_eq!(resumed.ended(), it.ended(), "after {index}");
            found.extend(it.ended().map(|_| index));
        }
        found
    }

    #[test]
    fn a_run_ends_after_evaluations_that_are_no_better() {
        let values = [Some(0.1), None, Some(0.3), Some(0.3), None, Some(0.2), Some(0.4)];
        assert_eq!(ends("eval/avg@k", 2, &values), [5]);
        assert_eq!(ends("reward/policy_only", 1, &values), [3, 4, 5]);
        assert_eq!(ends("-eval/avg@k", 2, &values), [3, 4, 5, 6]);
        assert!(ends("eval/avg@k", 3, &values).is_empty());
        assert!(ends("eval/avg@k", 0, &values).is_empty());
    }
}
