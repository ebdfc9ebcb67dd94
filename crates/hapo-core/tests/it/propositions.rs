//! The paper's propositions, over every group of at most 64 rollouts.

use hapo_core::{Annealing, Gate, Schedule, Step, Threshold};
use num_bigint::BigUint;
use num_rational::Ratio;
use num_traits::ToPrimitive;

fn schedule(
    group_size: usize,
    success_limit: usize,
    annealing: Annealing,
    steps_per_epoch: u64,
) -> Schedule {
    let gate = Gate::Confidence { threshold: Threshold::Derived { success_limit }, annealing };
    Schedule::new(&gate, group_size, steps_per_epoch).unwrap()
}

#[test]
fn proposition_1_the_derived_gate_is_open_iff_successes_are_at_most_m() {
    for n in 1..=64 {
        for m in 0..n {
            let schedule = schedule(n, m, Annealing::Off, 1);
            for s in 0..=n {
                // c < γ0 is (1 + S)/(2 + N) < (m + 3/2)/(2 + N), in integers.
                let confidence_is_below = 2 * (1 + s) < 2 * m + 3;
                let open = schedule.success_limit(Step(1)).is_open(s);
                assert_eq!(open, confidence_is_below, "N {n} m {m} S {s}");
                assert_eq!(open, s <= m, "N {n} m {m} S {s}");
            }
        }
    }
}

/// Both directions of Eq. 7, with thresholds at every quarter of a rung.
#[test]
fn proposition_1_the_band_of_a_threshold_is_its_failure_level() {
    for n in 1..=64_u64 {
        for m in 0..n {
            for quarter in 1..=4 * (2 + n) {
                // γ = quarter / (4 (2 + N)).
                let in_band = 4 * (m + 1) < quarter && quarter <= 4 * (m + 2);
                let rule = (0..=n).all(|s| (4 * (1 + s) < quarter) == (s <= m));
                assert_eq!(in_band, rule, "N {n} m {m} γ {quarter}/{}", 4 * (2 + n));
            }
        }
    }
}

/// The same through the manual threshold, wherever a quarter of a rung is a decimal fraction (D3).
#[test]
fn proposition_1_d3_holds_for_manual_thresholds() {
    let mut cases = 0;
    for n in 1..=64_u64 {
        for quarter in 1..=4 * (2 + n) {
            let exact = 1_000_000_000_000 * quarter;
            if exact % (4 * (2 + n)) != 0 {
                continue;
            }
            let gamma0 = format!(
                "{}.{:012}",
                exact / (4 * (2 + n)) / 1_000_000_000_000,
                exact / (4 * (2 + n)) % 1_000_000_000_000
            );
            let threshold = Threshold::Manual { gamma0: gamma0.parse().unwrap() };
            let gate = Gate::Confidence { threshold, annealing: Annealing::Off };
            let opens = (0..=n).filter(|s| 4 * (1 + s) < quarter).count() as u64;
            match Schedule::new(&gate, n as usize, 1) {
                Ok(schedule) => {
                    assert_eq!(
                        schedule.table(0).success_limit,
                        Some(opens as usize - 1),
                        "N {n} γ {gamma0}"
                    );
                }
                Err(_) => assert!(opens == 0 || opens == n + 1, "N {n} γ {gamma0} is refused"),
            }
            cases += 1;
        }
    }
    assert!(cases > 500, "{cases}");
}

#[test]
fn proposition_2_the_gate_never_reopens_after_extinction() {
    let (turn_off, k, steps_per_epoch) = (1.5, 10.0, 62);
    let annealing =
        Annealing::Sigmoid { turn_off_epoch: "1.5".parse().unwrap(), steepness: 10.into() };
    for n in 1..=64 {
        for m in 0..n {
            let schedule = schedule(n, m, annealing, steps_per_epoch);
            let extinct = schedule.extinct_at_step().unwrap().0;
            // e* = e_off + ln(2m + 1)/k; for m = 0 it is step 93 exactly, and no other is within 10^-6 of a step.
            let last = steps_per_epoch as f64 * (turn_off + ((2 * m + 1) as f64).ln() / k);
            assert_eq!(extinct, if m == 0 { 93 } else { last.ceil() as u64 }, "N {n} m {m}");
            let mut before = schedule.success_limit(Step(1));
            for step in 1..=extinct + 62 {
                let now = schedule.success_limit(Step(step));
                assert!(now <= before, "N {n} m {m}: the gate widens at step {step}");
                before = now;
                assert_eq!(now.is_open(0), step < extinct, "N {n} m {m} step {step}");
                if step >= extinct {
                    assert!((0..=n).all(|s| !now.is_open(s)), "N {n} m {m} step {step}");
                }
            }
            assert!((0..=n).all(|s| !schedule.success_limit(Step(u64::MAX)).is_open(s)));
        }
    }
}

/// P(c < γ) ≤ exp(−2N(μ − γ)²) for μ > γ ≤ 1/2 (Prop. 3), the left side in exact arithmetic.
#[test]
fn proposition_3_bounds_the_binomial_tail() {
    let (mut cases, mut tightest) = (0, 0.0_f64);
    for n in 1..=64_u32 {
        for m in (0..n).filter(|m| 2 * m + 3 <= 2 + n) {
            let gamma = (f64::from(m) + 1.5) / f64::from(2 + n);
            for mu in (1..=20_u32).filter(|mu| f64::from(*mu) / 20.0 > gamma) {
                let mut tail = BigUint::from(0_u8);
                let mut choose = BigUint::from(1_u8);
                for s in 0..=m {
                    tail += &choose * BigUint::from(mu).pow(s) * BigUint::from(20 - mu).pow(n - s);
                    choose = choose * (n - s) / (s + 1);
                }
                let tail = Ratio::new(tail, BigUint::from(20_u8).pow(n)).to_f64().unwrap();
                let bound = (-2.0 * f64::from(n) * (f64::from(mu) / 20.0 - gamma).powi(2)).exp();
                assert!(tail <= bound, "N {n} m {m} μ {mu}/20: {tail} > {bound}");
                tightest = tightest.max(tail / bound);
                cases += 1;
            }
        }
    }
    assert!(cases > 10_000 && tightest > 0.4, "{cases} {tightest}");
}
