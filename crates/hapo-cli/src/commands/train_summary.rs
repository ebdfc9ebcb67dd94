//! The outcome of a run, by its metrics.

use std::path::Path;

use hapo_core::Refusal;
use hapo_run::{Columns, MetricsFile, RunFolder, nothing_learned};
use serde_json::{Value, json};

use crate::progress::duration;

/// First and last numbers of a run over all its calls, with its time and tokens.
pub(crate) struct Summary {
    /// Name and values: the means of the first and the last steps.
    learned: Option<(&'static str, [f64; 2])>,
    /// Steps in each mean.
    steps: usize,
    /// Of the first evaluation, that of the start where there is one, the last and the best.
    eval: Option<[f64; 3]>,
    /// Time of the steps and evaluations.
    seconds: f64,
    tokens_sampled: f64,
    tokens_trained: f64,
    /// Why nothing was learned.
    pub(crate) flat: Option<&'static str>,
}

impl Summary {
    /// Of the steps up to `last` in a run folder; `None` where there are none.
    pub(crate) fn of(folder: &Path, last: u64) -> Result<Option<Self>, Refusal> {
        let path = RunFolder(folder).metrics();
        let rows = MetricsFile::history_until(&path, last)?;
        let columns = Columns::read(&path, &mut Vec::new())?;
        let summary = Self::of_rows(&rows, RunFolder(folder).start_evaluation()?);
        Ok(summary.map(|it| Self { flat: nothing_learned(&columns), ..it }))
    }

    fn of_rows(rows: &[Value], start: Option<f64>) -> Option<Self> {
        let series =
            |name: &str| -> Vec<f64> { rows.iter().filter_map(|it| it[name].as_f64()).collect() };
        let steps = (rows.len() / 10).max(1);
        let ends = |all: &[f64], n: usize| -> Option<[f64; 2]> {
            let n = n.min(all.len());
            let mean = |part: &[f64]| part.iter().sum::<f64>() / n as f64;
            (n > 0).then(|| [mean(&all[..n]), mean(&all[all.len() - n..])])
        };
        let learned = [("reward", "reward/policy_only"), ("loss", "loss")]
            .into_iter()
            .find_map(|(name, of)| Some((name, ends(&series(of), steps)?)));
        let product = |seconds: &str, rate: &str| -> f64 {
            let numbers = |it: &Value| Some(it[seconds].as_f64()? * it[rate].as_f64()?);
            rows.iter().filter_map(numbers).sum::<f64>().round()
        };
        let looks: Vec<f64> = start.into_iter().chain(series("eval/avg@k")).collect();
        let best = looks.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (!rows.is_empty()).then(|| Self {
            learned,
            steps,
            eval: ends(&looks, 1).map(|[from, to]| [from, to, best]),
            seconds: series("time/step").iter().chain(&series("time/eval")).sum(),
            tokens_sampled: product("time/sample", "tokens_per_second/sample"),
            tokens_trained: product("time/train", "tokens_per_second/train"),
            flat: None,
        })
    }

    pub(crate) fn text(&self) -> String {
        let mut parts = Vec::new();
        if let Some((name, [from, to])) = self.learned {
            let over = match self.steps {
                1 => "first and last step".to_owned(),
                n => format!("means of the first and last {n} steps"),
            };
            parts.push(format!("{name} from {from:.3} to {to:.3} ({over})"));
        }
        if let Some([from, to, best]) = self.eval {
            parts.push(format!("eval from {from:.3} to {to:.3}"));
            if best > to {
                parts.push(format!("at best {best:.3}"));
            }
        }
        parts.push(duration(self.seconds));
        for (tokens, what) in [(self.tokens_sampled, "sampled"), (self.tokens_trained, "trained")] {
            if tokens > 0.0 {
                parts.push(format!("{} tokens {what}", count(tokens)));
            }
        }
        parts.join(", ")
    }

    pub(crate) fn json(&self) -> Value {
        let mut json = json!({
            "steps_of_each_mean": self.steps, "eval": self.eval.map(|[from, to, _]| [from, to]), "seconds": self.seconds,
            "tokens_sampled": self.tokens_sampled, "tokens_trained": self.tokens_trained,
        });
        if let Some((name, ends)) = self.learned {
            json[name] = json!(ends);
        }
        json
    }
}

/// `950`, `12.3k`, `4.6M`.
fn count(it: f64) -> String {
    match it {
        ..1e3 => format!("{it:.0}"),
        ..1e6 => format!("{:.1}k", it / 1e3),
        _ => format!("{:.1}M", it / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_of_the_first_and_last_tenth() {
        let row = |step: u32| {
            json!({
                "step": step, "reward/policy_only": f64::from(step) / 20.0, "time/step": 2.5, "time/sample": 2.0,
                "time/train": 0.5, "tokens_per_second/sample": 600.0, "tokens_per_second/train": 3000.0,
            })
        };
        let mut rows: Vec<Value> = (1..=20).map(row).collect();
        rows[9]["eval/avg@k"] = json!(0.25);
        rows[19]["eval/avg@k"] = json!(0.5);
        rows[19]["time/eval"] = json!(13.0);
        let from_the_start = Summary::of_rows(&rows, Some(0.105)).unwrap();
        assert!(from_the_start.text().contains(", eval from 0.105 to 0.500, 1 min"));
        let worse_now = Summary::of_rows(&rows, Some(0.75)).unwrap();
        assert!(worse_now.text().contains(", eval from 0.750 to 0.500, at best 0.750, "));
        let it = Summary::of_rows(&rows, None).unwrap();
        assert_eq!(
            it.text(),
            "reward from 0.075 to 0.975 (means of the first and last 2 steps), eval from 0.250 to 0.500, 1 min 3 s, 24.0k tokens sampled, 30.0k tokens trained"
        );
        assert_eq!(it.json()["tokens_sampled"], 24000.0);
        let imitation =
            Summary::of_rows(&[json!({ "step": 1, "loss": 0.5, "time/step": 1.0 })], None);
        assert_eq!(
            imitation.unwrap().text(),
            "loss from 0.500 to 0.500 (first and last step), 1 s"
        );
        assert!(Summary::of_rows(&[], None).is_none());
    }
}
