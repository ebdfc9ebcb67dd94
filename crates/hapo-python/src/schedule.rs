//! The gate over a run.

use hapo_core::{Annealing, AnnealingMode, GATES, Gate, Step, Threshold};
use pyo3::{prelude::*, types::PyDict};

use crate::arguments::{decimal, unknown, value_error, within, word};

/// The confidence gate over the steps of a run, decided by integers: at step t (from 1) the teacher may enter a group of
/// at most `success_limit(t)` successes.
#[pyclass(frozen, module = "hapo")]
#[expect(clippy::struct_field_names, reason = "it wraps the core's schedule")]
pub(crate) struct Schedule {
    pub(crate) schedule: hapo_core::Schedule,
    pub(crate) gate: Gate,
    /// Steps of an epoch.
    #[pyo3(get)]
    pub(crate) steps_per_epoch: u64,
    settings: Vec<(&'static str, String)>,
}

#[pymethods]
impl Schedule {
    #[new]
    #[pyo3(signature = (group_size, steps_per_epoch, *, gate="confidence", success_limit=0, gamma0=None,
                        annealing="sigmoid", turn_off_epoch=None, steepness=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python's")]
    fn new(
        group_size: i64,
        steps_per_epoch: i64,
        gate: &str,
        success_limit: i64,
        gamma0: Option<&Bound<'_, PyAny>>,
        annealing: &str,
        turn_off_epoch: Option<&Bound<'_, PyAny>>,
        steepness: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let mut settings = vec![
            ("gate", gate.to_owned()),
            ("annealing", annealing.to_owned()),
            ("success_limit", success_limit.to_string()),
        ];
        let mut read = |name: &'static str, it: &Bound<'_, PyAny>| {
            settings.push((name, it.str()?.to_string()));
            decimal(name, it)
        };
        let gamma0 = gamma0.map(|it| read("gamma0", it)).transpose()?;
        let turn_off_epoch = turn_off_epoch.map(|it| read("turn_off_epoch", it)).transpose()?;
        let steepness = steepness.map(|it| read("steepness", it)).transpose()?;
        let threshold = match gamma0 {
            Some(gamma0) => Threshold::Manual { gamma0 },
            None => Threshold::Derived { success_limit: count("success_limit", success_limit)? },
        };
        let tables = || GATES.iter().filter(|it| it.is_table).map(|it| it.name);
        let rule = hapo_core::gate_rule(gate).ok_or_else(|| unknown("gate", gate, tables()))?;
        if let Some(problem) = hapo_core::refused_as_table(rule) {
            return Err(value_error("gate", problem));
        }
        let is_annealed = rule.reads.contains(&"annealing");
        let annealing = match (word("annealing", annealing)?, turn_off_epoch) {
            (AnnealingMode::Sigmoid, Some(turn_off_epoch)) if is_annealed => {
                let steepness = steepness.unwrap_or_else(|| 10.into());
                Annealing::Sigmoid { turn_off_epoch, steepness }
            }
            (AnnealingMode::Sigmoid, None) if is_annealed => {
                let problem = "expected the epoch at which the gate closes, got none; \
                               annealing=\"off\" keeps it open";
                return Err(value_error("turn_off_epoch", problem));
            }
            _ => Annealing::Off,
        };
        let gate = (rule.table)(threshold, annealing);
        let group_size = count("group_size", group_size)?;
        let steps_per_epoch = count("steps_per_epoch", steps_per_epoch)? as u64;
        within("group_size", group_size, 1..=65_535)?;
        let schedule = hapo_core::Schedule::new(&gate, group_size, steps_per_epoch)
            .map_err(|problem| value_error("Schedule", problem))?;
        Ok(Self { schedule, gate, steps_per_epoch, settings })
    }

    /// The largest number of successes at which the teacher enters a group in this step; -1 where it enters none.
    fn success_limit(&self, step: i64) -> PyResult<i32> {
        Ok(self.schedule.success_limit(step_of(step)?).get())
    }

    /// The threshold of this step, for logs and plots; it decides nothing.
    fn threshold(&self, step: i64) -> PyResult<f64> {
        Ok(self.schedule.threshold(step_of(step)?))
    }

    /// The first step from which the gate is closed for good; None where it does not close.
    #[getter]
    fn extinction(&self) -> Option<u64> {
        self.schedule.extinct_at_step().map(|it| it.0)
    }

    /// N.
    #[getter]
    fn group_size(&self) -> usize {
        self.schedule.group_size()
    }

    /// The threshold at the cold start.
    #[getter]
    fn initial_threshold(&self) -> f64 {
        self.schedule.initial_threshold()
    }

    /// Settings that are accepted and probably not meant.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.schedule.warnings()
    }

    /// The table of steps 1 to `steps`, as a run folder keeps it in `gate.json`.
    fn table<'py>(&self, py: Python<'py>, steps: u64) -> PyResult<Bound<'py, PyAny>> {
        within("steps", steps, 0..=1_000_000)?;
        let table = serde_json::to_string(&self.schedule.table(steps))
            .map_err(|problem| value_error("steps", problem))?;
        py.import("json")?.call_method1("loads", (table,))
    }

    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<((usize, u64), Bound<'py, PyDict>)> {
        let keywords = PyDict::new(py);
        for (name, value) in &self.settings {
            match *name {
                "success_limit" => keywords.set_item(name, value.parse::<i64>()?)?,
                _ => keywords.set_item(name, value)?,
            }
        }
        Ok(((self.schedule.group_size(), self.steps_per_epoch), keywords))
    }

    fn __repr__(&self) -> String {
        let (group_size, steps) = (self.schedule.group_size(), self.steps_per_epoch);
        let mut text = format!("Schedule(group_size={group_size}, steps_per_epoch={steps}");
        for (name, value) in &self.settings {
            text.push_str(&format!(", {name}={value}"));
        }
        text + ")"
    }
}

pub(crate) fn count(name: &str, it: i64) -> PyResult<usize> {
    usize::try_from(it)
        .map_err(|_| value_error(name, format!("expected a number from 0, got {it}")))
}

/// Steps are counted from 1.
pub(crate) fn step_of(step: i64) -> PyResult<Step> {
    match u64::try_from(step) {
        Ok(it) if it > 0 => Ok(Step(it)),
        _ => Err(value_error("step", format!("expected a step from 1, got {step}"))),
    }
}
