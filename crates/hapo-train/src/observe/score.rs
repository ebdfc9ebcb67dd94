//! Which checkpoint is the best.
//!
//! It looks at logged numbers only, so a resumed run decides as the unbroken one does.

use hapo_run::Metrics;
use serde_json::Value;

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

    pub(crate) fn add(&mut self, metrics: &Metrics) {
        self.see(metrics.get(self.metric));
    }

    pub(crate) fn add_line(&mut self, line: &Value) {
        self.see(line.get(self.metric).and_then(Value::as_f64));
    }

    fn see(&mut self, value: Option<f64>) {
        // An evaluation is of weights, a step's metric of what was sampled on the way to them.
        if self.metric.starts_with("eval/") {
            (self.sum, self.steps) = (0.0, 0);
        }
        if let Some(it) = value {
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
    use super::*;

    #[test]
    fn a_score_is_the_mean_since_the_last_checkpoint() {
        let metrics = |value: f64| {
            let mut it = Metrics::default();
            it.set("loss", value);
            it
        };
        let mut score = Score::new(("loss", -1.0));
        score.add(&metrics(1.0));
        score.add(&metrics(2.0));
        assert_eq!(score.take(), Some(-1.5));
        assert_eq!(score.take(), None);
        let mut last = Score::new(("eval/avg@k", 1.0));
        for value in [0.5, 0.25] {
            let mut it = Metrics::default();
            it.set("eval/avg@k", value);
            last.add(&it);
        }
        assert_eq!(last.take(), Some(0.25));
        // The weights of a later step are not those that were evaluated.
        let mut evaluated = Metrics::default();
        evaluated.set("eval/avg@k", 0.75);
        last.add(&evaluated);
        last.add(&metrics(1.0));
        assert_eq!(last.take(), None);
        let mut other = Score::new(("reward/policy_only", 1.0));
        other.add(&metrics(1.0));
        assert_eq!(other.take(), None);
    }
}
