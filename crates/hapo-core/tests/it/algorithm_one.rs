//! Algorithm 1 read literally, in exact rational arithmetic with rigorous bounds on σ, against the table (D1).

use hapo_core::{Annealing, Decimal, Gate, Schedule, Step, Threshold};
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Signed, Zero};

const GROUP_SIZES: [usize; 6] = [1, 2, 3, 8, 16, 33];
const STEEPNESSES: [&str; 3] = ["2.5", "10", "63.5"];
const TURN_OFF_EPOCHS: [&str; 5] = ["0.01", "0.5", "1.25", "1.5", "2"];
const STEPS_PER_EPOCH: [u64; 4] = [1, 4, 20, 62];

#[test]
fn d1_the_table_is_algorithm_1_for_the_derived_threshold() {
    let thresholds = |n: usize| {
        let levels: std::collections::BTreeSet<usize> = [0, 1, 2, 3, n / 2, n - 1].into();
        levels
            .into_iter()
            .filter(|m| *m < n)
            .map(|m| {
                (
                    Threshold::Derived { success_limit: m },
                    ratio(2 * m as i64 + 3, 2 * (2 + n as i64)),
                )
            })
            .collect()
    };
    let ties = check_grid(thresholds);
    assert!(ties > 800, "only {ties} cases have e_t = e_off");
}

#[test]
fn d3_the_table_is_algorithm_1_for_manual_thresholds() {
    let thresholds = |n: usize| {
        ["0.11", "0.2", "0.3", "0.5", "0.7", "0.123456789012"]
            .into_iter()
            .map(|text| (Threshold::Manual { gamma0: text.parse().unwrap() }, rational(text)))
            .filter(|(threshold, _)| {
                let gate = Gate::Confidence { threshold: *threshold, annealing: Annealing::Off };
                Schedule::new(&gate, n, 1).is_ok()
            })
            .collect()
    };
    let ties = check_grid(thresholds);
    assert!(ties > 800, "only {ties} cases have e_t = e_off");
}

/// Compares every step of the grid up to ten after extinction; returns how many had `e_t` = `e_off`.
fn check_grid(thresholds: impl Fn(usize) -> Vec<(Threshold, BigRational)>) -> usize {
    let mut ties = 0;
    for steps_per_epoch in STEPS_PER_EPOCH {
        for steepness in STEEPNESSES {
            for turn_off in TURN_OFF_EPOCHS {
                let annealing = Annealing::Sigmoid {
                    turn_off_epoch: decimal(turn_off),
                    steepness: decimal(steepness),
                };
                let mut sigmoids: Vec<Sigmoid> = Vec::new();
                for n in GROUP_SIZES {
                    for (threshold, gamma0) in thresholds(n) {
                        let gate = Gate::Confidence { threshold, annealing };
                        let schedule = Schedule::new(&gate, n, steps_per_epoch).unwrap();
                        let last = schedule.extinct_at_step().unwrap().0 + 10;
                        for t in 1..=last {
                            if sigmoids.len() < t as usize {
                                let e_t = ratio(t as i64, steps_per_epoch as i64);
                                sigmoids.push(Sigmoid::at(
                                    rational(steepness) * (e_t - rational(turn_off)),
                                ));
                            }
                            let sigmoid = &sigmoids[t as usize - 1];
                            ties += usize::from(sigmoid.z.is_zero());
                            let expected = success_limit(n, &gamma0, sigmoid);
                            assert_eq!(
                                schedule.success_limit(Step(t)).get(),
                                expected,
                                "N {n} {threshold:?} k {steepness} e_off {turn_off} T {steps_per_epoch} step {t}"
                            );
                        }
                    }
                }
            }
        }
    }
    ties
}

/// The largest S with c < `γ_t`, or −1, by lines 1, 4, 10 and 11 of Algorithm 1.
fn success_limit(n: usize, gamma0: &BigRational, sigmoid: &Sigmoid) -> i32 {
    let n = n as i64;
    let floor = ratio(1, 2 * (2 + n));
    let gamma = |sigma: &BigRational| &floor + (gamma0 - &floor) * (BigRational::one() - sigma);
    let (low, high) = (gamma(&sigmoid.high), gamma(&sigmoid.low));
    let mut open = -1;
    for s in 0..=n {
        let c = ratio(1 + s, 2 + n);
        if c < low {
            open = s as i32;
        } else {
            assert!(c >= high, "96 bits do not decide N {n} S {s}");
            break;
        }
    }
    open
}

/// Rational bounds on σ(z); equal for z = 0.
struct Sigmoid {
    z: BigRational,
    low: BigRational,
    high: BigRational,
}

const BITS: u32 = 96;

impl Sigmoid {
    fn at(z: BigRational) -> Self {
        let one = BigRational::one();
        if z.is_zero() {
            return Self { z, low: ratio(1, 2), high: ratio(1, 2) };
        }
        // σ(|z|) = e/(1 + e) with e = exp |z|, and σ(−|z|) = 1/(1 + e).
        let (e_low, e_high) = exp_bounds(&z.abs());
        let (low, high) = if z.is_positive() {
            (&e_low / (&one + &e_low), &e_high / (&one + &e_high))
        } else {
            (&one / (&one + &e_high), &one / (&one + &e_low))
        };
        Self { z, low: round_down(&low), high: round_up(&high) }
    }
}

/// exp(x) for x > 0: Taylor's series at x/2^r ≤ 1/2 with its remainder, squared r times, rounded outwards.
fn exp_bounds(x: &BigRational) -> (BigRational, BigRational) {
    let mut small = x.clone();
    let mut halvings = 0;
    while small > ratio(1, 2) {
        small /= ratio(2, 1);
        halvings += 1;
    }
    let (small_low, small_high) = (round_down(&small), round_up(&small));
    let (mut low, mut high) = (BigRational::one(), BigRational::one());
    let (mut term_low, mut term_high) = (BigRational::one(), BigRational::one());
    for it in 1..=26 {
        term_low = round_down(&(term_low * &small_low / ratio(it, 1)));
        term_high = round_up(&(term_high * &small_high / ratio(it, 1)));
        low += &term_low;
        high += &term_high;
    }
    // The remaining terms of a series at 1/2 add up to less than its last one.
    high += term_high;
    for _ in 0..halvings {
        low = round_down(&(&low * &low));
        high = round_up(&(&high * &high));
    }
    (low, high)
}

fn round_down(it: &BigRational) -> BigRational {
    let unit = BigInt::one() << BITS;
    BigRational::new((it * &unit).floor().to_integer(), unit)
}

fn round_up(it: &BigRational) -> BigRational {
    let unit = BigInt::one() << BITS;
    BigRational::new((it * &unit).ceil().to_integer(), unit)
}

fn ratio(numerator: i64, denominator: i64) -> BigRational {
    BigRational::new(numerator.into(), denominator.into())
}

fn rational(text: &str) -> BigRational {
    let places = text.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let digits: BigInt = text.replace('.', "").parse().unwrap();
    BigRational::new(digits, BigInt::from(10).pow(places as u32))
}

fn decimal(text: &str) -> Decimal {
    text.parse().unwrap()
}
