//! What a run has learned, by its metrics, in the words of the command and of the page.

use std::collections::BTreeMap;

use crate::columns::Columns;

/// Why a run that samples has learned nothing; `None` where its answers became better or worse, and for imitation.
pub fn nothing_learned(metrics: &Columns) -> Option<&'static str> {
    let is_flat = |values: &[f64]| values.windows(2).all(|pair| pair[0] == pair[1]);
    let looks = [SUCCESS, HELD_OUT_REWARD].map(|name| metrics.finite(name));
    let rewards = metrics.finite(REWARD);
    if rewards.is_empty() {
        return None;
    }
    if !is_flat(&rewards) || !looks.iter().all(|it| is_flat(it)) {
        let at_end = rewards.iter().rev().take(rewards.len().div_ceil(10));
        let mut at_end = at_end.chain(looks.iter().filter_map(|it| it.last()));
        let is_lost = !looks[0].is_empty() && at_end.all(|it| *it == 0.0);
        return is_lost.then_some("at the end no answer is correct");
    }
    let solved = metrics.finite("verify/correct").iter().sum::<f64>();
    if solved == 0.0 && looks[0].iter().all(|it| *it == 0.0) {
        return Some("no answer was ever correct");
    }
    (rewards.len() > 1).then_some("the reward was the same in every step")
}

const REWARD: &str = "reward/policy_only";
const SUCCESS: &str = "eval/avg@k";
const HELD_OUT_REWARD: &str = "eval/reward";

/// The metric of an evaluation that is shown: the mean reward where it is no share of correct answers.
pub fn held_out_metric(metrics: &Columns) -> &'static str {
    let [rewards, shares] = [HELD_OUT_REWARD, SUCCESS].map(|name| metrics.finite(name));
    // Other trainers log no shares.
    if shares.is_empty() && !rewards.is_empty()
        || rewards.iter().zip(&shares).any(|it| it.0 != it.1)
    {
        HELD_OUT_REWARD
    } else {
        SUCCESS
    }
}

/// How a number of a run went from its beginning to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// `reward`, `loss`, `held-out success` or `held-out reward`.
    pub name: &'static str,
    pub first: f64,
    /// `None` where there is the evaluation of the start alone.
    pub last: Option<f64>,
    /// Steps in each mean; 0 for evaluations.
    pub steps: usize,
    pub best: f64,
    /// True if the two means differ by less than two standard errors, by how neighbouring steps differ.
    pub is_chance: bool,
}

impl Change {
    pub fn text(&self) -> String {
        let Some(last) = self.last else {
            return format!("{:.3} before the first step", self.first);
        };
        let over = match self.steps {
            0 if self.best > last => format!(" (at best {:.3})", self.best),
            0 => String::new(),
            1 => " (first and last step)".to_owned(),
            n if self.is_chance => {
                format!(
                    " (means of the first and last {n} steps, no more than steps differ by chance)"
                )
            }
            n => format!(" (means of the first and last {n} steps)"),
        };
        format!("{:.3} → {last:.3}{over}", self.first)
    }
}

/// The reward of the policy alone, or the loss of imitation; and the evaluations, after that of the start.
pub fn changes(metrics: &Columns, start: &BTreeMap<String, f64>) -> Vec<Change> {
    let mut trained = [("reward", REWARD), ("loss", "loss")].into_iter();
    let of_steps = trained.find_map(|(name, metric)| {
        let ([first, last], steps) = metrics.ends(metric)?;
        let values = metrics.finite(metric);
        let differences = values.windows(2).map(|it| (it[1] - it[0]).powi(2)).sum::<f64>();
        // A step's variance is half of the mean square: a trend hardly counts in it.
        let error = (differences / (values.len().max(2) - 1) as f64 / steps as f64).sqrt();
        let is_chance =
            name == "reward" && values.len() >= 12 && (last - first).abs() < 2.0 * error;
        Some(Change { name, first, last: Some(last), steps, best: last, is_chance })
    });
    let shown = held_out_metric(metrics);
    let name = if shown == SUCCESS { "held-out success" } else { "held-out reward" };
    let looks = start.get(shown).copied().into_iter().chain(metrics.finite(shown));
    let looks: Vec<f64> = looks.collect();
    let best = looks.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let of_looks = looks.first().map(|first| {
        let last = looks.last().filter(|_| looks.len() > 1).copied();
        Change { name, first: *first, last, steps: 0, best, is_chance: false }
    });
    of_looks.into_iter().chain(of_steps).collect()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::fs;

    use super::*;

    /// The metrics of a run with one line a row.
    fn logged(rows: &[serde_json::Value]) -> Columns {
        let dir = tempfile::tempdir().unwrap();
        let mut text = String::new();
        for (step, row) in rows.iter().enumerate() {
            let mut row = row.clone();
            row["step"] = (step + 1).into();
            writeln!(text, "{row}").unwrap();
        }
        let path = dir.path().join("metrics.jsonl");
        fs::write(&path, text).unwrap();
        Columns::read(&path, &mut Vec::new()).unwrap()
    }

    /// A flat reward of few successes; a rise in one step, at either end; a ramp.
    #[test]
    fn a_change_is_chance_where_neighbouring_steps_differ_as_much() {
        let is_chance = |rewards: &mut dyn Iterator<Item = f64>| {
            let rows: Vec<_> =
                rewards.map(|it| serde_json::json!({ "reward/policy_only": it })).collect();
            changes(&logged(&rows), &BTreeMap::new())[0].is_chance
        };
        assert!(is_chance(&mut (0..40).map(|it| f64::from(it * 7 % 5) / 100.0)));
        assert!(!is_chance(&mut (0..30).map(|it| if it < 3 { 0.0 } else { 0.9 })));
        assert!(!is_chance(&mut (0..30).map(|it| if it < 27 { 0.9 } else { 0.0 })));
        assert!(!is_chance(&mut (0..40).map(|it| f64::from(it) / 40.0)));
        assert!(!is_chance(&mut (0..8).map(|it| f64::from(it * 7 % 5) / 100.0)), "too few");
    }

    #[test]
    fn a_run_has_learned_nothing_where_nothing_changes() {
        let of = |rows: &[(f64, f64, Option<f64>)]| {
            let line = |(reward, correct, look): &(f64, f64, Option<f64>)| serde_json::json!({ "reward/policy_only": reward, "verify/correct": correct, "eval/avg@k": look });
            nothing_learned(&logged(&rows.iter().map(line).collect::<Vec<_>>()))
        };
        let never = Some("no answer was ever correct");
        assert_eq!(of(&[(0.0, 0.0, None), (0.0, 0.0, Some(0.0))]), never);
        assert_eq!(of(&[(0.0, 0.0, None)]), never);
        assert_eq!(of(&[(0.0, 0.0, Some(0.0)), (0.0, 0.0, Some(0.25))]), None);
        assert_eq!(of(&[(0.0, 0.0, None), (0.125, 1.0, None)]), None);
        let same = Some("the reward was the same in every step");
        assert_eq!(of(&[(1.0, 8.0, None), (1.0, 8.0, Some(1.0))]), same);
        assert_eq!(of(&[(1.0, 8.0, None)]), None);
        // Learned, and lost again.
        let lost = Some("at the end no answer is correct");
        assert_eq!(of(&[(0.5, 4.0, Some(0.25)), (0.0, 0.0, Some(0.0))]), lost);
        assert_eq!(of(&[(0.5, 4.0, Some(0.0)), (0.25, 2.0, None)]), None);
        assert_eq!(of(&[(0.5, 4.0, None), (0.0, 0.0, None)]), None);
        // A custom reward below its success.
        assert_eq!(of(&[(0.25, 0.0, None), (0.5, 0.0, None)]), None);
        assert_eq!(nothing_learned(&logged(&[serde_json::json!({ "loss": 2 })])), None);
    }

    #[test]
    fn rewards_other_than_0_and_1_are_called_rewards() {
        let row = |reward: f64, share: f64| serde_json::json!({ "reward/policy_only": reward, "eval/avg@k": share, "eval/reward": reward });
        let shares = logged(&[row(0.0, 0.0), row(0.25, 0.25)]);
        assert_eq!(held_out_metric(&shares), "eval/avg@k");
        let graded = logged(&[row(0.2, 0.0), row(0.7, 0.0)]);
        assert_eq!(held_out_metric(&graded), "eval/reward");
        let start = [("eval/avg@k", 0.0), ("eval/reward", 0.1)];
        let start = start.map(|(name, value)| (name.to_owned(), value)).into();
        let said = |columns: &Columns| -> Vec<String> {
            let all = changes(columns, &start);
            all.iter().map(|it| format!("{} {}", it.name, it.text())).collect()
        };
        assert_eq!(
            said(&graded),
            ["held-out reward 0.100 → 0.700", "reward 0.200 → 0.700 (first and last step)"]
        );
    }

    #[test]
    fn changes_are_of_the_first_and_last_tenth() {
        let row = |step: u32| serde_json::json!({ "reward/policy_only": f64::from(step) / 20.0 });
        let mut rows: Vec<_> = (1..=20).map(row).collect();
        rows[9]["eval/avg@k"] = 0.75.into();
        rows[19]["eval/avg@k"] = 0.5.into();
        let said = |rows: &[serde_json::Value], start: Option<f64>| -> Vec<String> {
            let columns = logged(rows);
            let start = start.map(|it| ("eval/avg@k".to_owned(), it)).into_iter().collect();
            let all = changes(&columns, &start);
            all.iter().map(|it| format!("{} {}", it.name, it.text())).collect()
        };
        assert_eq!(
            said(&rows, Some(0.105)),
            [
                "held-out success 0.105 → 0.500 (at best 0.750)",
                "reward 0.075 → 0.975 (means of the first and last 2 steps)"
            ]
        );
        let imitation = [serde_json::json!({ "loss": 0.5 })];
        assert_eq!(
            said(&imitation, Some(0.1)),
            [
                "held-out success 0.100 before the first step",
                "loss 0.500 → 0.500 (first and last step)"
            ]
        );
        assert!(said(&[], None).is_empty());
    }
}
