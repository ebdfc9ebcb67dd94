//! The test whether a run has learned anything, by its metrics.

use crate::columns::Columns;

/// Why a run that samples has learned nothing; `None` where its answers became better or worse, and for imitation.
pub fn nothing_learned(metrics: &Columns) -> Option<&'static str> {
    let values = |name: &str| {
        let column = metrics.get(name).unwrap_or_default().iter().copied();
        column.filter(|value| value.is_finite()).collect::<Vec<f64>>()
    };
    let is_flat = |values: &[f64]| values.windows(2).all(|pair| pair[0] == pair[1]);
    let (rewards, looks) = (values("reward/policy_only"), values("eval/avg@k"));
    if rewards.is_empty() || !is_flat(&rewards) || !is_flat(&looks) {
        return None;
    }
    if values("verify/correct").iter().sum::<f64>() == 0.0 && looks.iter().all(|it| *it == 0.0) {
        return Some("no answer was ever correct");
    }
    (rewards.len() > 1).then_some("the reward was the same in every step")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_learned_nothing_where_nothing_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let of = |rows: &[(f64, f64, Option<f64>)]| {
            let line = |(step, (reward, correct, look)): (usize, &(f64, f64, Option<f64>))| {
                serde_json::json!({ "step": step + 1, "reward/policy_only": reward, "verify/correct": correct, "eval/avg@k": look })
                    .to_string()
            };
            let text: Vec<String> = rows.iter().enumerate().map(line).collect();
            std::fs::write(&path, text.join("\n") + "\n").unwrap();
            nothing_learned(&Columns::read(&path, &mut Vec::new()).unwrap())
        };
        let never = Some("no answer was ever correct");
        assert_eq!(of(&[(0.0, 0.0, None), (0.0, 0.0, Some(0.0))]), never);
        assert_eq!(of(&[(0.0, 0.0, None)]), never);
        assert_eq!(of(&[(0.0, 0.0, Some(0.0)), (0.0, 0.0, Some(0.25))]), None);
        assert_eq!(of(&[(0.0, 0.0, None), (0.125, 1.0, None)]), None);
        let same = Some("the reward was the same in every step");
        assert_eq!(of(&[(1.0, 8.0, None), (1.0, 8.0, Some(1.0))]), same);
        assert_eq!(of(&[(1.0, 8.0, None)]), None);
        // A custom reward below its success.
        assert_eq!(of(&[(0.25, 0.0, None), (0.5, 0.0, None)]), None);
        std::fs::write(&path, "{\"step\":1,\"loss\":2}\n").unwrap();
        assert_eq!(nothing_learned(&Columns::read(&path, &mut Vec::new()).unwrap()), None);
    }
}
