//! The gate over a run: at step t it is open iff S ≤ `m_t`. A float comparison c < `γ_t` is wrong at the rungs: with N
//! = 8, m = 0 and `e_t` = `e_off` the line of Algorithm 1 leaves the gate open in f32 and closed in f64. So each rung
//! of the ladder gets the integer step from which it is closed, once and exactly (D1); the threshold is for logs.

use serde::{Deserialize, Serialize};

use crate::{Decimal, Refusal, Step, expected};

use super::logarithm::{Ratio, first_closed_step};
use super::settings::{Annealing, Gate, Threshold};

/// The gate's decisions for every step of a run (Eq. 7–9, D1–D5).
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    gate: Gate,
    group_size: usize,
    steps_per_epoch: u64,
    /// m; `None` outside the confidence gate.
    initial_success_limit: Option<usize>,
    /// (`a_s`, `b_s`) with `e_s` = `e_off` + `ln(a_s/b_s)/k`, and the step from which rung s is closed, for s = 0 ..= m.
    /// Empty unless the gate is annealed. The steps do not increase with s.
    rungs: Vec<Rung>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Rung {
    ratio: Ratio,
    first_closed_step: u64,
}

/// `m_t`: the gate is open for groups of at most this many successes, and −1 is closed (D1). The limit of the
/// settings is m, that of step t is `m_t`: one quantity at two times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SuccessLimit(i32);

impl SuccessLimit {
    /// The closed gate.
    pub const CLOSED: Self = Self(-1);

    /// The decision: S ≤ `m_t` (Prop. 1, D1).
    pub fn is_open(self, successes: usize) -> bool {
        usize::try_from(self.0).is_ok_and(|it| successes <= it)
    }

    /// `m_t` as a number, −1 for closed.
    pub fn get(self) -> i32 {
        self.0
    }

    fn rung(successes: usize) -> Self {
        Self(i32::try_from(successes).expect("a group size is at most 65535"))
    }
}

impl Schedule {
    /// The schedule of a gate for groups of `group_size` (N) rollouts and epochs of `steps_per_epoch`
    /// (`T_epoch` = ⌊usable prompts / prompts per step⌋) steps.
    pub fn new(gate: &Gate, group_size: usize, steps_per_epoch: u64) -> Result<Self, Refusal> {
        if !(1..=65_535).contains(&group_size) {
            return Err(expected("1 to 65535").got(group_size).about("group size"));
        }
        if !(1..=1_000_000_000).contains(&steps_per_epoch) {
            return Err(expected("1 to 1000000000").got(steps_per_epoch).about("steps per epoch"));
        }
        let (mut limit, mut rungs) = (None, Vec::new());
        if let Gate::Confidence { threshold, annealing } = *gate {
            let success_limit = initial_success_limit(threshold, group_size)?;
            limit = Some(success_limit);
            if let Annealing::Sigmoid { turn_off_epoch, steepness } = annealing {
                check_annealing(turn_off_epoch, steepness)?;
                let rung = |successes| {
                    let ratio = rung_ratio(threshold, group_size, successes);
                    let first_closed_step =
                        first_closed_step(ratio, turn_off_epoch, steepness, steps_per_epoch);
                    Rung { ratio, first_closed_step }
                };
                rungs = (0..=success_limit).map(rung).collect();
            }
        }
        Ok(Self { gate: *gate, group_size, steps_per_epoch, initial_success_limit: limit, rungs })
    }

    /// `m_t`: the gate of step t is open iff S ≤ `m_t` (D1). A gate that is always open gives N.
    pub fn success_limit(&self, step: Step) -> SuccessLimit {
        match (self.gate, self.initial_success_limit) {
            (Gate::Always, _) => SuccessLimit::rung(self.group_size),
            (Gate::Confidence { annealing: Annealing::Off, .. }, Some(success_limit)) => {
                SuccessLimit::rung(success_limit)
            }
            _ => match self.rungs.partition_point(|it| step.0 < it.first_closed_step) {
                0 => SuccessLimit::CLOSED,
                open => SuccessLimit::rung(open - 1),
            },
        }
    }

    /// `γ_t`, for logs and plots; it decides nothing (Eq. 9, D1). 0 for a gate that never opens, 1 for one always open.
    pub fn threshold(&self, step: Step) -> f64 {
        let gamma0 = self.initial_threshold();
        let Some((turn_off_epoch, steepness)) = self.sigmoid() else { return gamma0 };
        let floor = 0.5 / (2 + self.group_size) as f64;
        let z = steepness.to_f64() * (self.epoch(step) - turn_off_epoch.to_f64());
        floor + (gamma0 - floor) / (1.0 + libm::exp(z))
    }

    /// `e_off` and k of a gate that anneals.
    fn sigmoid(&self) -> Option<(Decimal, Decimal)> {
        let Gate::Confidence { annealing, .. } = self.gate else { return None };
        let Annealing::Sigmoid { turn_off_epoch, steepness } = annealing else { return None };
        Some((turn_off_epoch, steepness))
    }

    /// γ0 (Eq. 8, D3). 0 for a gate that never opens and 1 for one that is always open.
    pub fn initial_threshold(&self) -> f64 {
        match self.gate {
            Gate::Never => 0.0,
            Gate::Always => 1.0,
            Gate::Confidence { threshold: Threshold::Derived { success_limit }, .. } => {
                (success_limit as f64 + 1.5) / (2 + self.group_size) as f64
            }
            Gate::Confidence { threshold: Threshold::Manual { gamma0 }, .. } => gamma0.to_f64(),
        }
    }

    /// `e_t` = t / `T_epoch` (Algorithm 1).
    pub fn epoch(&self, step: Step) -> f64 {
        step.0 as f64 / self.steps_per_epoch as f64
    }

    /// The first step from which on the gate is closed for every group (Prop. 2); none for a gate that does not close.
    pub fn extinct_at_step(&self) -> Option<Step> {
        match self.gate {
            Gate::Never => Some(Step(1)),
            Gate::Always => None,
            Gate::Confidence { .. } => self.rungs.first().map(|it| Step(it.first_closed_step)),
        }
    }

    /// `T_epoch`.
    pub fn steps_per_epoch(&self) -> u64 {
        self.steps_per_epoch
    }

    /// N.
    pub fn group_size(&self) -> usize {
        self.group_size
    }

    /// What is accepted and probably not meant (D4).
    pub fn warnings(&self) -> Vec<String> {
        let at_first_step = self.success_limit(Step(1)).get();
        let limit = self.initial_success_limit;
        let eroded = limit.filter(|limit| at_first_step < SuccessLimit::rung(*limit).get());
        let said = eroded.map(|limit| match at_first_step {
            -1 => format!(
                "the gate is closed at the first step already, with success limit {limit}: the turn-off epoch is too \
                 small for it"
            ),
            _ => format!(
                "the gate is open up to {at_first_step} successes at the first step, not up to the success limit \
                 {limit}: the turn-off epoch is too small for it"
            ),
        });
        said.into_iter().collect()
    }

    /// Steps 1 ..= `steps` cut where the success limit changes: at most m + 2 ranges.
    pub fn ranges(&self, steps: u64) -> Vec<RangeRow> {
        let changes = self.rungs.iter().rev().map(|it| it.first_closed_step);
        let mut firsts: Vec<u64> =
            [1].into_iter().chain(changes).filter(|it| (1..=steps).contains(it)).collect();
        firsts.dedup();
        let next = firsts.iter().skip(1).map(|it| it - 1).chain([steps]);
        let range = |(first, last): (&u64, u64)| RangeRow {
            first_step: *first,
            last_step: last,
            success_limit: self.success_limit(Step(*first)),
        };
        firsts.iter().zip(next).map(range).collect()
    }

    /// The gate of steps 1 ..= `steps` as a run stores it (D1). Its size does not depend on `steps`.
    pub fn table_of_ranges(&self, steps: u64) -> ScheduleTable {
        ScheduleTable { ranges: self.ranges(steps), ..self.table(0) }
    }

    /// The table of steps 1 ..= `steps`, to be applied by other trainers (D1). Its size is proportional to `steps`.
    pub fn table(&self, steps: u64) -> ScheduleTable {
        let row = |step: Step| StepRow {
            step: step.0,
            epoch: self.epoch(step),
            threshold: self.threshold(step),
            success_limit: self.success_limit(step),
        };
        let sigmoid = self.sigmoid();
        let rungs = sigmoid.into_iter().flat_map(|(turn_off_epoch, steepness)| {
            self.rungs.iter().enumerate().map(move |(successes, rung)| {
                let Rung { ratio: Ratio { a, b }, first_closed_step } = *rung;
                let later = libm::log(a as f64 / b as f64) / steepness.to_f64();
                let closes_at_epoch = turn_off_epoch.to_f64() + later;
                RungRow { successes, closes_at_epoch, first_closed_step }
            })
        });
        ScheduleTable {
            gate: match self.gate {
                Gate::Never => "never",
                Gate::Always => "always",
                Gate::Confidence { .. } => "confidence",
            }
            .to_owned(),
            group_size: self.group_size,
            success_limit: self.initial_success_limit,
            gamma0: self.initial_threshold(),
            turn_off_epoch: sigmoid.map(|it| it.0),
            steepness: sigmoid.map(|it| it.1),
            steps_per_epoch: self.steps_per_epoch,
            extinct_at_step: self.extinct_at_step(),
            rungs: rungs.collect(),
            ranges: Vec::new(),
            steps: (1..=steps).map(Step).map(row).collect(),
        }
    }
}

/// What `hapo schedule --json` prints, step by step, and a run keeps in `gate.json`, as ranges of steps (D1).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleTable {
    /// `never`, `always` or `confidence`.
    pub gate: String,
    /// N.
    pub group_size: usize,
    /// m; null outside the confidence gate.
    pub success_limit: Option<usize>,
    /// γ0.
    pub gamma0: f64,
    /// `e_off` in epochs; null without annealing.
    pub turn_off_epoch: Option<Decimal>,
    /// k; null without annealing.
    pub steepness: Option<Decimal>,
    /// `T_epoch`.
    pub steps_per_epoch: u64,
    /// First step from which the gate stays closed; null if it does not close.
    pub extinct_at_step: Option<Step>,
    /// When each rung closes, from s = 0 up to m; empty without annealing.
    pub rungs: Vec<RungRow>,
    /// The steps, from 1, cut where the success limit changes; empty where `steps` lists them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<RangeRow>,
    /// The steps, from 1; empty where `ranges` holds them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepRow>,
}

impl ScheduleTable {
    /// Until when the teacher can help in a run of `steps` steps, as a sentence.
    pub fn teacher_helps(&self, steps: u64) -> String {
        match self.extinct_at_step {
            Some(Step(..=1)) => "the teacher never helps".to_owned(),
            Some(Step(closed)) if closed <= steps => {
                format!("the teacher helps up to step {} of {steps}", closed - 1)
            }
            _ => format!("the teacher helps in all {steps} steps"),
        }
    }
}

/// Steps of one success limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeRow {
    /// The first of them.
    pub first_step: u64,
    /// The last of them.
    pub last_step: u64,
    /// `m_t`, which decides.
    pub success_limit: SuccessLimit,
}

/// When a rung of the ladder closes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RungRow {
    /// s.
    pub successes: usize,
    /// `e_s`, rounded; for people.
    pub closes_at_epoch: f64,
    /// The first step t with t / `T_epoch` ≥ `e_s`, exact.
    pub first_closed_step: u64,
}

/// The gate at one step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepRow {
    /// t.
    pub step: u64,
    /// `e_t`.
    pub epoch: f64,
    /// `γ_t`, rounded; for people.
    pub threshold: f64,
    /// `m_t`, which decides.
    pub success_limit: SuccessLimit,
}

/// m (Eq. 7): as given, or ⌈(2 + N) γ0⌉ − 2 in exact arithmetic (D3). A setting that would always be open is its own
/// mode (D4).
fn initial_success_limit(threshold: Threshold, group_size: usize) -> Result<usize, Refusal> {
    let refused = |what: &str, range: String, got: String| {
        expected(range).got(got).about(format!("{what} for groups of {group_size}"))
    };
    let always = "to inject into every group use gate = \"always\"";
    match threshold {
        Threshold::Derived { success_limit } if success_limit < group_size => Ok(success_limit),
        Threshold::Derived { success_limit } => {
            let range = format!("0 to {}", group_size - 1);
            Err(refused("success limit", range, success_limit.to_string()).hint(always))
        }
        Threshold::Manual { gamma0 } => {
            let scaled = (2 + group_size as u128) * u128::from(gamma0.numerator);
            let rungs = scaled.div_ceil(u128::from(gamma0.power()));
            let (n, what) = (group_size, "threshold gamma0");
            if rungs < 2 {
                let got = format!("{gamma0}, which never opens the gate");
                Err(refused(what, format!("more than 1/{}", n + 2), got))
            } else if rungs > group_size as u128 + 1 {
                let range = format!("at most {}/{}", n + 1, n + 2);
                Err(refused(what, range, gamma0.to_string()).hint(always))
            } else {
                Ok(rungs as usize - 2)
            }
        }
    }
}

/// a/b with `e_s` = `e_off` + ln(a/b)/k. The derived threshold gives (2(m−s)+1)/(2s+1) (D1); the manual one
/// (2(2+N)γ0 − 2s − 2)/(2s+1), which for s = 0 is the e* of D3. Both solve `γ_t` = (1+s)/(2+N) in Eq. 9.
fn rung_ratio(threshold: Threshold, group_size: usize, successes: usize) -> Ratio {
    let s = successes as u64;
    match threshold {
        Threshold::Derived { success_limit } => {
            Ratio { a: 2 * (success_limit as u64 - s) + 1, b: 2 * s + 1 }
        }
        Threshold::Manual { gamma0 } => {
            let doubled = 2 * (2 + group_size as u64) * gamma0.numerator;
            let a = doubled - (2 * s + 2) * gamma0.power();
            Ratio { a, b: (2 * s + 1) * gamma0.power() }
        }
    }
}

fn check_annealing(turn_off_epoch: Decimal, steepness: Decimal) -> Result<(), Refusal> {
    let within = |it: Decimal, least: f64| (least..=1e6).contains(&it.to_f64());
    if turn_off_epoch == Decimal::from(0) || !within(turn_off_epoch, 0.0) {
        let range = "more than 0 and at most 1000000";
        return Err(expected(range).got(turn_off_epoch).about("turn-off epoch"));
    }
    if !within(steepness, 0.001) {
        return Err(expected("0.001 to 1000000").got(steepness).about("steepness"));
    }
    Ok(())
}
