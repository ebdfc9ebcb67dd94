//! The decision for each row of a batch: groups, the gate, the slot, credit.

use std::collections::BTreeMap;

use hapo_core::{
    AdvantageGroup, AdvantageRule, BatchStatistics, Candidate, Credit, Intervention, Member,
    MixedGroup, PromptId, Rollout, SampledGroup, Scores, Slot, SlotRule, Step, SuccessLimit,
    TeacherTrajectory, Term, Truncated, Verdict, admit_graded_teacher, apply_gate,
    drop_short_groups,
};
use numpy::{IntoPyArray, PyReadonlyArray, ndarray::Ix1};
use pyo3::{prelude::*, types::PyDict};

use crate::arguments::{array, same, value_error, word};
use crate::method::{Method, rule};
use crate::schedule::step_of;

/// Decides a step. Rows of one group have one number in `groups`, from 0; padding has -1. `prompts`, `teacher_tokens` (0
/// for none) and `teacher_rewards` have one entry for each group. Returns arrays by name.
#[pyfunction]
#[pyo3(signature = (method, rewards, groups, lengths, is_truncated, prompts, teacher_tokens, teacher_rewards, step, *,
                    success_at, wrong, seed, truncated))]
#[expect(clippy::too_many_arguments, reason = "arrays of one batch")]
pub(crate) fn decide<'py>(
    py: Python<'py>,
    method: &Bound<'py, Method>,
    rewards: &Bound<'py, PyAny>,
    groups: &Bound<'py, PyAny>,
    lengths: &Bound<'py, PyAny>,
    is_truncated: &Bound<'py, PyAny>,
    prompts: &Bound<'py, PyAny>,
    teacher_tokens: &Bound<'py, PyAny>,
    teacher_rewards: &Bound<'py, PyAny>,
    step: i64,
    success_at: f64,
    wrong: f64,
    seed: u64,
    truncated: &str,
) -> PyResult<Bound<'py, PyDict>> {
    let rewards: PyReadonlyArray<'_, f64, Ix1> = array("rewards", rewards)?;
    let rewards = rewards.as_slice()?;
    let groups: PyReadonlyArray<'_, i64, Ix1> = array("uids", groups)?;
    let lengths: PyReadonlyArray<'_, i64, Ix1> = array("lengths", lengths)?;
    let is_truncated: PyReadonlyArray<'_, bool, Ix1> = array("is_truncated", is_truncated)?;
    let prompts: PyReadonlyArray<'_, u64, Ix1> = array("uids", prompts)?;
    let tokens: PyReadonlyArray<'_, i64, Ix1> = array("teacher_lengths", teacher_tokens)?;
    let teacher_rewards: PyReadonlyArray<'_, f64, Ix1> = array("teacher_rewards", teacher_rewards)?;
    let rule: Truncated = word("truncated", truncated)?;
    let is_truncated = is_truncated.as_slice()?;
    same("is_truncated", &is_truncated.len(), "rewards", &rewards.len())?;
    let paid = rewards.iter().zip(is_truncated);
    let paid = paid.map(|(reward, cut)| if rule.is_judged(!cut) { *reward } else { wrong });
    let batch = Batch {
        rewards: paid.collect(),
        groups: groups.as_slice()?,
        lengths: lengths.as_slice()?,
        is_truncated,
        prompts: prompts.as_slice()?,
        teacher_tokens: tokens.as_slice()?,
        teacher_rewards: teacher_rewards.as_slice()?,
        success_at,
        wrong,
        slot: Slot { rule: SlotRule::LowestReward, seed, step: step_of(step)? },
        rule,
    };
    batch.check()?;
    let method = method.get();
    py.detach(|| batch.decide(method))?.into_python(py)
}

struct Batch<'a> {
    /// `wrong` for rows that are not judged.
    rewards: Vec<f64>,
    groups: &'a [i64],
    lengths: &'a [i64],
    is_truncated: &'a [bool],
    prompts: &'a [u64],
    teacher_tokens: &'a [i64],
    teacher_rewards: &'a [f64],
    success_at: f64,
    /// Of an answer without a verdict (D31).
    wrong: f64,
    slot: Slot,
    rule: Truncated,
}

#[derive(Clone, Copy, Default)]
struct Row {
    reward: f64,
    replaced: bool,
    trained: bool,
    /// True if it counts in the loss's normaliser (D32).
    counted: bool,
    advantage: f64,
    teacher_weight: f64,
    entropy_exponent: f64,
}

#[derive(Clone, Copy, Default)]
struct Group {
    successes: i64,
    n_eff: i64,
    confidence: f64,
    injected: bool,
    dropped: bool,
}

struct Decided {
    rows: Vec<Row>,
    groups: Vec<Group>,
    operator: Option<&'static str>,
    metrics: Vec<(&'static str, f64)>,
}

impl Batch<'_> {
    fn check(&self) -> PyResult<()> {
        let n = self.rewards.len();
        same("uids", &self.groups.len(), "rewards", &n)?;
        same("lengths", &self.lengths.len(), "rewards", &n)?;
        if self.success_at.is_nan() {
            return Err(value_error("success_at", "expected a number, got NaN"));
        }
        if !self.wrong.is_finite() || self.wrong >= self.success_at {
            let (below, got) = (self.success_at, self.wrong);
            let problem = format!("expected a finite reward below success_at = {below}, got {got}");
            return Err(value_error("wrong", problem));
        }
        for row in (0..n).filter(|row| self.groups[*row] >= 0) {
            if self.rewards[row].is_nan() {
                return Err(value_error("rewards", format!("row {row} is NaN, expected a number")));
            }
            if self.lengths[row] < 0 {
                let got = self.lengths[row];
                let problem = format!("row {row}: expected a number from 0, got {got}");
                return Err(value_error("lengths", problem));
            }
        }
        Ok(())
    }

    fn decide(&self, method: &Method) -> PyResult<Decided> {
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); self.prompts.len()];
        for (row, group) in self.groups.iter().enumerate().filter(|it| *it.1 >= 0) {
            members[*group as usize].push(row);
        }
        let mut decided = Decided {
            rows: self.rewards.iter().map(|it| Row { reward: *it, ..Row::default() }).collect(),
            groups: vec![Group::default(); self.prompts.len()],
            operator: None,
            metrics: Vec::new(),
        };
        let mut mixed = Vec::new();
        let mut dropped = 0;
        for (group, rows) in members.iter().enumerate() {
            if let Some(it) = self.group(method, group, rows)? {
                if let Some(problem) = method.gated.refusal(&it.rewards()) {
                    return Err(value_error("rewards", problem));
                }
                let credit = method.gated.credit(&it, self.slot.step, Scores::NONE);
                self.record(&mut decided, (group, rows), &it, &credit);
                mixed.push((it, credit));
            } else {
                decided.groups[group].dropped = true;
                dropped += 1;
            }
        }
        let statistics = BatchStatistics::of(mixed.iter().map(|it| (&it.0, &it.1)), dropped);
        decided.metrics = statistics.entries().filter(|it| !it.0.starts_with("verify/")).collect();
        let rows = self.rewards.iter().zip(self.groups);
        let below = rows.filter(|(reward, group)| **group >= 0 && **reward < self.wrong).count();
        if below > 0 {
            decided.metrics.push((hapo_run::REWARD_BELOW_WRONG, below as f64));
        }
        let step = self.slot.step;
        decided.metrics.push(("gate/threshold", method.gated.threshold(step)));
        let limit = f64::from(method.gated.success_limit(step).get());
        decided.metrics.push(("gate/success_limit", limit));
        Ok(decided)
    }

    /// The group after the gate; none where too few of its rollouts came back.
    fn group(&self, method: &Method, group: usize, rows: &[usize]) -> PyResult<Option<MixedGroup>> {
        if rows.len() > method.group_size {
            let (most, n) = (method.group_size, rows.len());
            let problem = format!("expected groups of at most {most} rows, got one of {n}");
            return Err(value_error("uids", problem));
        }
        let teacher = self.teacher(group)?;
        // The first row of the group gives way before anything is looked at.
        let free_slot = usize::from(teacher.is_some() && method.gated.slot == SlotRule::Fixed);
        let sampled = &rows[free_slot.min(rows.len())..];
        let prompt = PromptId(self.prompts[group]);
        let rollouts = sampled.iter().map(|row| Rollout {
            tokens: vec![0; self.lengths[*row] as usize],
            ended: !self.is_truncated[*row],
            ..Rollout::default()
        });
        let graded = sampled.iter().map(|row| {
            let reward = self.rewards[*row];
            let verdict = if reward >= self.success_at { Verdict::Correct } else { Verdict::Wrong };
            (reward, verdict)
        });
        let requested = method.group_size - free_slot;
        let scored = SampledGroup::new(prompt, requested, rollouts.collect())
            .score_with_rewards(graded.collect(), self.success_at)
            .paying_unjudged(self.rule, self.wrong);
        let (mut kept, _) = drop_short_groups(vec![scored]);
        let Some(scored) = kept.pop() else { return Ok(None) };
        let slot = Slot { rule: method.gated.slot, ..self.slot };
        let is_open = method.gated.success_limit(slot.step).is_open(scored.successes());
        let offer = Candidate { teachers: teacher.as_slice(), stored: &[], scores: &[], slot };
        Ok(Some(method.gated.mix(scored, &offer, is_open)))
    }

    fn teacher(&self, group: usize) -> PyResult<Option<TeacherTrajectory>> {
        let tokens = self.teacher_tokens[group];
        if tokens <= 0 {
            return Ok(None);
        }
        let reward = self.teacher_rewards[group];
        // Only their number matters: the end token, 0 here, is the last and no other.
        let before_end = vec![1; tokens as usize - 1];
        let admitted = admit_graded_teacher(before_end, &[0], reward, self.success_at, usize::MAX);
        admitted.map(Some).map_err(|problem| value_error("teacher_rewards", problem))
    }

    fn record(
        &self,
        decided: &mut Decided,
        (group, rows): (usize, &[usize]),
        it: &MixedGroup,
        credit: &Credit,
    ) {
        decided.groups[group] = Group {
            successes: it.successes() as i64,
            n_eff: it.n_eff() as i64,
            confidence: it.confidence(),
            injected: it.intervention() == Intervention::Injected,
            dropped: false,
        };
        // The members are the rows in their order; the teacher of a free slot comes first, as its row does.
        for ((row, member), spans) in rows.iter().zip(it.members()).zip(credit) {
            let target = &mut decided.rows[*row];
            target.replaced = matches!(member, Member::Teacher { .. });
            if let Some(own) = member.sampled().or(member.replaced()) {
                target.reward = own.reward;
            }
            target.counted = !member.is_masked(self.rule);
            let Some(span) = spans.first().filter(|_| target.counted) else { continue };
            target.trained = true;
            target.entropy_exponent = span.entropy_exponent;
            match &span.term {
                // A method with an advantage for each token is refused when it is made.
                Term::Policy { advantage, .. } => target.advantage = advantage.mean(),
                Term::Teacher { weight, operator, .. } => {
                    target.teacher_weight = *weight;
                    decided.operator = Some(operator.name);
                }
            }
        }
    }
}

impl Decided {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let it = PyDict::new(py);
        macro_rules! column {
            ($from:ident, $($name:ident),+) => {
                $(it.set_item(
                    stringify!($name),
                    self.$from.iter().map(|it| it.$name).collect::<Vec<_>>().into_pyarray(py),
                )?;)+
            };
        }
        column!(rows, reward, replaced, trained, counted);
        column!(rows, advantage, teacher_weight, entropy_exponent);
        column!(groups, successes, n_eff, confidence, injected, dropped);
        it.set_item("operator", self.operator)?;
        let metrics = PyDict::new(py);
        for (name, value) in self.metrics {
            metrics.set_item(name, value)?;
        }
        it.set_item("metrics", metrics)?;
        Ok(it)
    }
}

/// A group of rewards that no teacher entered.
fn closed(rewards: Vec<f64>, success_at: f64) -> MixedGroup {
    let rollout = Rollout { ended: true, ..Rollout::default() };
    let n = rewards.len();
    let graded = rewards.into_iter().map(|it| (it, Verdict::Wrong)).collect();
    let scored =
        SampledGroup::new(PromptId(0), n, vec![rollout; n]).score_with_rewards(graded, success_at);
    let slot = Slot { rule: SlotRule::LowestReward, seed: 0, step: Step(1) };
    apply_gate(scored, None, SuccessLimit::CLOSED, slot)
}

/// Advantages of rewards without a teacher: each row less the mean of its group, by request over its standard deviation.
/// Rows of one group have one number in `groups`; padding has -1 and advantage 0.
#[pyfunction]
#[pyo3(signature = (rewards, groups, *, std))]
pub(crate) fn advantages<'py>(
    py: Python<'py>,
    rewards: &Bound<'py, PyAny>,
    groups: &Bound<'py, PyAny>,
    std: bool,
) -> PyResult<Bound<'py, numpy::PyArray1<f64>>> {
    let rewards: PyReadonlyArray<'_, f64, Ix1> = array("rewards", rewards)?;
    let groups: PyReadonlyArray<'_, i64, Ix1> = array("uids", groups)?;
    let (rewards, groups) = (rewards.as_slice()?, groups.as_slice()?);
    same("uids", &groups.len(), "rewards", &rewards.len())?;
    if let Some(row) = rewards.iter().position(|it| !it.is_finite()) {
        let problem = format!("row {row} is {}, expected a finite number", rewards[row]);
        return Err(value_error("rewards", problem));
    }
    let rule = AdvantageRule { group: AdvantageGroup::Mixed, std };
    let mut all = vec![0.0; rewards.len()];
    let mut members: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (row, group) in groups.iter().enumerate().filter(|it| *it.1 >= 0) {
        members.entry(*group).or_default().push(row);
    }
    for rows in members.values() {
        let of_group = closed(rows.iter().map(|row| rewards[*row]).collect(), f64::INFINITY);
        for (row, it) in rows.iter().zip(hapo_core::advantages(&of_group, rule)) {
            all[*row] = it;
        }
    }
    Ok(all.into_pyarray(py))
}

/// λ of a group of `n_eff` rollouts of which `successes` succeeded. `initial_threshold` is the schedule's, `advantage` the
/// teacher's own; each is read by one rule only.
#[pyfunction]
#[pyo3(signature = (weight, successes, n_eff, *, initial_threshold=1.0, advantage=0.0))]
pub(crate) fn teacher_weight(
    weight: &Bound<'_, PyAny>,
    successes: usize,
    n_eff: usize,
    initial_threshold: f64,
    advantage: f64,
) -> PyResult<f64> {
    if successes > n_eff {
        return Err(value_error("successes", format!("expected at most {n_eff}, got {successes}")));
    }
    let rewards = (0..n_eff).map(|it| if it < successes { 1.0 } else { 0.0 }).collect();
    let (rule, group) = (rule(weight)?, closed(rewards, 1.0));
    Ok(hapo_core::teacher_weight(rule, &group, initial_threshold, advantage))
}

/// The mean as the engine takes it: summed in order, of equal numbers the number itself, 0 of none.
#[pyfunction]
pub(crate) fn mean(values: Vec<f64>) -> f64 {
    hapo_core::mean(&values)
}

/// The Bessel-corrected standard deviation as the engine takes it, 0 of equal numbers.
#[pyfunction(name = "std")]
pub(crate) fn deviation(values: Vec<f64>) -> f64 {
    hapo_core::deviation(&values)
}
