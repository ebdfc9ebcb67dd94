//! The outcome of a run, by its metrics.

use hapo_core::Refusal;
use hapo_run::{Change, Columns, RunFolder, changes, nothing_learned};
use serde_json::{Value, json};

use crate::progress::duration;

/// First and last numbers of a run over all its calls, with its time and tokens.
pub(crate) struct Summary {
    changes: Vec<Change>,
    seconds: f64,
    tokens_sampled: f64,
    tokens_trained: f64,
    pub(crate) flat: Option<&'static str>,
    pub(crate) columns: Columns,
}

impl Summary {
    /// Of the steps up to `last` in a run folder; `None` where there are none.
    pub(crate) fn of(folder: &std::path::Path, last: u64) -> Result<Option<Self>, Refusal> {
        let folder = RunFolder(folder);
        let mut columns = Columns::read(&folder.metrics(), &mut Vec::new())?;
        columns.end_at(last);
        let start = folder.start_metrics()?;
        if columns.rows() == 0 {
            return Ok(None);
        }
        let sum = |name: &str| columns.finite(name).iter().sum::<f64>();
        let product = |seconds: &str, rate: &str| -> f64 {
            let [seconds, rate] = [seconds, rate].map(|it| columns.get(it).unwrap_or_default());
            let products = seconds.iter().zip(rate).map(|(seconds, rate)| seconds * rate);
            products.filter(|it| it.is_finite()).sum::<f64>().round()
        };
        Ok(Some(Self {
            changes: changes(&columns, &start),
            seconds: sum("time/step") + sum("time/eval"),
            tokens_sampled: product("time/sample", "tokens_per_second/sample"),
            tokens_trained: product("time/train", "tokens_per_second/train"),
            flat: nothing_learned(&columns),
            columns,
        }))
    }

    pub(crate) fn text(&self) -> String {
        let changes = self.changes.iter().map(|it| format!("{} {}", it.name, it.text()));
        let mut parts: Vec<String> = changes.chain([duration(self.seconds)]).collect();
        for (tokens, what) in [(self.tokens_sampled, "sampled"), (self.tokens_trained, "trained")] {
            if tokens > 0.0 {
                parts.push(format!("{} tokens {what}", count(tokens)));
            }
        }
        parts.join(", ")
    }

    pub(crate) fn json(&self) -> Value {
        let mut json = json!({
            "seconds": self.seconds, "tokens_sampled": self.tokens_sampled, "tokens_trained": self.tokens_trained,
        });
        for it in &self.changes {
            let name = match it.steps {
                0 => "eval",
                steps => {
                    json["steps_of_each_mean"] = steps.into();
                    it.name
                }
            };
            json[name] = json!([it.first, it.last.unwrap_or(it.first)]);
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
    fn a_summary_has_changes_time_and_tokens() {
        let dir = tempfile::tempdir().unwrap();
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
        let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
        std::fs::write(RunFolder(dir.path()).metrics(), lines.join("\n") + "\n").unwrap();
        let it = Summary::of(dir.path(), 20).unwrap().unwrap();
        assert_eq!(
            it.text(),
            "held-out success 0.250 → 0.500, reward 0.075 → 0.975 (means of the first and last 2 steps), 1 min 3 s, 24.0k tokens sampled, 30.0k tokens trained"
        );
        assert_eq!(it.json()["reward"], json!([f64::midpoint(0.05, 0.1), 0.975]));
        assert_eq!(it.json()["eval"], json!([0.25, 0.5]));
        assert_eq!(it.json()["tokens_sampled"], 24000.0);
        assert!(Summary::of(&dir.path().join("none"), 20).unwrap().is_none());
    }
}
