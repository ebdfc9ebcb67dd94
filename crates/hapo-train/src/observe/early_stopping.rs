//! The evaluations of a run, the one of its start included: which is the best so far, and early stopping, which ends a
//! run after a number of evaluations in a row that are no better.
//!
//! It looks at logged numbers only, so a resumed run decides as the unbroken one does.

use hapo_run::Metrics;
use serde_json::Value;

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
        let limit = recipe.eval()?.patience;
        let (metric, sign) = match recipe.best_metric() {
            best if best.0.starts_with("eval/") => best,
            _ => ("eval/avg@k", 1.0),
        };
        let mut it = Self { metric, sign, limit, best: None, since: 0 };
        for line in start.into_iter().chain(history) {
            it.add_line(line);
        }
        Some(it)
    }

    /// Looks at a step; whether it was evaluated as the best so far.
    pub(crate) fn add(&mut self, metrics: &Metrics) -> bool {
        self.see(metrics.get(self.metric))
    }

    pub(crate) fn add_line(&mut self, line: &Value) -> bool {
        self.see(line.get(self.metric).and_then(Value::as_f64))
    }

    fn see(&mut self, value: Option<f64>) -> bool {
        let Some(value) = value.map(|it| it * self.sign) else {
            return false;
        };
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

#[cfg(test)]
mod tests {
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
            it.add(&metrics(value));
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
}
