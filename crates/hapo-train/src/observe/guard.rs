//! Alarms of a run that collapses (D23): β that rises, entropy that explodes, gradient norms far above
//! their mean; and of a sampler that is far from the trainer (D41). A loss or gradient that is NaN or infinite stops the run elsewhere, always.
//!
//! The guard looks at logged numbers only, so a resumed run raises the alarms of an unbroken one.

use std::collections::VecDeque;

use super::logged;
use crate::recipe::GuardSection;
use hapo_run::Metrics;

const WATCHED: [&str; 3] = ["gate/beta", "policy/entropy", "grad_norm"];

#[derive(Debug)]
pub(crate) struct Guard<'a> {
    settings: &'a GuardSection,
    steps: usize,
    /// Mean entropy of the first window after warm-up: sum and count.
    first_entropy: (f64, usize),
    /// Numbers of the last two windows, by [`WATCHED`].
    last: VecDeque<[f64; 3]>,
}

impl<'a> Guard<'a> {
    pub(crate) fn new(settings: &'a GuardSection, history: &[serde_json::Value]) -> Self {
        let mut guard = Self { settings, steps: 0, first_entropy: (0.0, 0), last: VecDeque::new() };
        for line in history {
            guard.see(WATCHED.map(logged(line)));
        }
        guard
    }

    pub(crate) fn alarm(&mut self, metrics: &Metrics) -> Option<String> {
        self.see(WATCHED.map(|it| metrics.get(it))).or_else(|| mismatch(metrics))
    }

    fn see(&mut self, numbers: [Option<f64>; 3]) -> Option<String> {
        // Imitation logs no β and no entropy; nothing is watched there.
        let [Some(beta), Some(entropy), Some(grad_norm)] = numbers else { return None };
        let window = self.settings.window;
        self.steps += 1;
        if self.steps <= self.settings.warmup {
            return None;
        }
        let mean = |range: std::ops::Range<usize>, which: usize| {
            let n = range.len().max(1) as f64;
            range.map(|it| self.last[it][which]).sum::<f64>() / n
        };
        let mut alarm = None;
        if self.last.len() == 2 * window {
            let (before, now) = (mean(0..window, 0), mean(window..2 * window, 0));
            if now - before > self.settings.beta_rise {
                alarm = Some(format!(
                    "the share of injected groups rises: β {before:.2} → {now:.2} over {window} steps"
                ));
            }
        }
        if self.last.len() >= window {
            let usual = mean(self.last.len() - window..self.last.len(), 2);
            if usual > 0.0 && grad_norm > self.settings.grad_norm_factor * usual {
                alarm.get_or_insert(format!(
                    "gradient norm {grad_norm:.3e}, {usual:.3e} on average over {window} steps"
                ));
            }
        }
        if self.first_entropy.1 < window {
            self.first_entropy.0 += entropy;
            self.first_entropy.1 += 1;
        } else {
            let first = self.first_entropy.0 / self.first_entropy.1 as f64;
            if first > 0.0 && entropy > self.settings.entropy_factor * first {
                alarm.get_or_insert(format!(
                    "entropy explodes: {entropy:.3}, {first:.3} in the first {window} steps"
                ));
            }
        }
        if self.last.len() == 2 * window {
            self.last.pop_front();
        }
        self.last.push_back([beta, entropy, grad_norm]);
        alarm
    }
}

/// Largest share of tokens at the bound of the correction, and smallest effective share, without an alarm.
const BOUNDED: f64 = 0.05;
const EFFECTIVE: f64 = 0.9;

fn mismatch(metrics: &Metrics) -> Option<String> {
    let bounded = metrics.get("sampler/bounded")?;
    let effective = metrics.get("sampler/effective")?;
    (bounded > BOUNDED || effective < EFFECTIVE).then(|| {
        let (bounded, effective) = (100.0 * bounded, 100.0 * effective);
        format!(
            "the sampler is far from the trainer: {bounded:.1} % of the tokens reach the correction's bound, {effective:.1} % count"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: GuardSection = GuardSection {
        stop: false,
        warmup: 2,
        window: 3,
        beta_rise: 0.2,
        entropy_factor: 2.0,
        grad_norm_factor: 5.0,
    };

    fn step(beta: f64, entropy: f64, grad_norm: f64) -> Metrics {
        let mut it = Metrics::default();
        it.set("gate/beta", beta);
        it.set("policy/entropy", entropy);
        it.set("grad_norm", grad_norm);
        it
    }

    /// Steps at which the guard raises an alarm, with its first word.
    fn alarms(steps: &[Metrics]) -> Vec<(usize, String)> {
        let mut guard = Guard::new(&SETTINGS, &[]);
        let seen = steps.iter().enumerate();
        seen.filter_map(|(i, it)| Some((i + 1, guard.alarm(it)?))).collect()
    }

    #[test]
    fn d23_beta_that_rises_over_a_window_is_an_alarm() {
        let mut steps: Vec<Metrics> = (0..8).map(|_| step(0.2, 1.0, 1.0)).collect();
        assert!(alarms(&steps).is_empty());
        steps.extend((0..4).map(|_| step(0.6, 1.0, 1.0)));
        let raised = alarms(&steps);
        // Steps 9 to 12 have β 0.6: the window before step 11 holds two of them, 0.2 → 0.467.
        assert_eq!(raised[0].0, 11);
        assert_eq!(raised[0].1, "the share of injected groups rises: β 0.20 → 0.47 over 3 steps");
    }

    #[test]
    fn d23_entropy_and_gradient_norm_are_watched_after_warm_up() {
        let mut steps = vec![step(0.0, 9.0, 100.0), step(0.0, 9.0, 100.0)];
        steps.extend((0..4).map(|_| step(0.0, 1.0, 1.0)));
        steps.push(step(0.0, 2.1, 1.0));
        steps.push(step(0.0, 1.0, 5.1));
        let raised = alarms(&steps);
        assert_eq!(
            raised,
            [
                (7, "entropy explodes: 2.100, 1.000 in the first 3 steps".to_owned()),
                (8, "gradient norm 5.100e0, 1.000e0 on average over 3 steps".to_owned()),
            ]
        );
    }

    #[test]
    fn d41_a_sampler_far_from_the_trainer_is_an_alarm() {
        let raised = |bounded, effective| {
            let mut it = step(0.0, 1.0, 1.0);
            it.set("sampler/bounded", bounded);
            it.set("sampler/effective", effective);
            !alarms(&[it]).is_empty()
        };
        assert!(!raised(0.05, 0.9) && raised(0.051, 1.0) && raised(0.0, 0.89));
    }

    #[test]
    fn d23_a_resumed_guard_raises_the_same_alarms() {
        let steps: Vec<Metrics> = (0..12).map(|it| step(f64::from(it) * 0.08, 1.0, 1.0)).collect();
        let unbroken = alarms(&steps);
        assert!(!unbroken.is_empty());
        for cut in 0..steps.len() {
            let history: Vec<serde_json::Value> = steps[..cut]
                .iter()
                .map(|it| serde_json::from_str(&it.to_json()).unwrap())
                .collect();
            let mut guard = Guard::new(&SETTINGS, &history);
            let rest: Vec<(usize, String)> = steps[cut..]
                .iter()
                .enumerate()
                .filter_map(|(i, it)| Some((cut + i + 1, guard.alarm(it)?)))
                .collect();
            let expected: Vec<_> = unbroken.iter().filter(|it| it.0 > cut).cloned().collect();
            assert_eq!(rest, expected, "cut after {cut}");
        }
    }
}
