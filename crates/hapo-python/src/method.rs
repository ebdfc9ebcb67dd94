//! A method with its gate, and what there is of methods, operators and graders.

use hapo_core::{
    Gated, HapoGate, METHODS, MethodEntry, MethodSettings, Needs, OPERATORS, Scored, SlotRule,
    TeacherPick, TeacherWeight,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::arguments::{text, unknown, value_error, word};
use crate::groups::{Group, credit_to_python};
use crate::schedule::{Schedule, count};

/// A method, and the gate that decides when the teacher enters its groups: the method's own without a schedule, that
/// of HAPO with one.
#[pyclass(frozen, module = "hapo")]
pub(crate) struct Method {
    pub(crate) gated: Gated,
    /// N.
    #[pyo3(get)]
    pub(crate) group_size: usize,
    /// d of the operator.
    #[pyo3(get)]
    pub(crate) d: f64,
}

#[pymethods]
impl Method {
    #[new]
    #[pyo3(signature = (name, group_size, *, schedule=None, slot="lowest-reward", **settings))]
    fn new(
        name: &str,
        group_size: i64,
        schedule: Option<&Bound<'_, Schedule>>,
        slot: &str,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let group_size = count("group_size", group_size)?;
        let entry = find(name)?;
        let mut settings = settings.map_or(Ok(MethodSettings::default()), |it| read(entry, it))?;
        settings.group_size = group_size;
        let d = settings.teacher.d;
        let method = built(entry, &settings)?;
        let teacher = settings.teacher;
        if teacher.pick != TeacherPick::First {
            let problem =
                "expected no choice, a group has one trace: `hapo train` picks of several";
            return Err(value_error("teacher.pick", problem));
        }
        if teacher.operator.is_some() && !method.is_plain_host() {
            let problem = "expected none, the method has an operator of its own";
            return Err(value_error("teacher.operator", problem));
        }
        let slot: SlotRule = word("slot", slot)?;
        let gated = match schedule {
            None => Gated::bare(method, group_size),
            Some(it) => {
                let it = it.get();
                let own = it.schedule.group_size();
                if own != group_size {
                    let problem = format!("expected the schedule's, {own}, got {group_size}");
                    return Err(value_error("group_size", problem));
                }
                let hapo = HapoGate { slot, teacher, ..HapoGate::of(it.gate) };
                Gated::hapo(method, hapo, group_size, it.steps_per_epoch)
            }
        };
        let gated = gated.map_err(|problem| value_error("schedule", problem))?;
        if let Some(why) = beyond_rollouts(gated.help.needs) {
            return Err(value_error("name", format!("{why}, got {name:?}")));
        }
        Ok(Self { gated, group_size, d })
    }

    /// Name in tables: the method's, with `-hapo` where HAPO wraps it.
    #[getter]
    fn name(&self) -> String {
        self.gated.name()
    }

    /// True if the teacher has a free slot in every group: one rollout fewer counts, the first.
    #[getter]
    fn has_fixed_slot(&self) -> bool {
        self.gated.slot == SlotRule::Fixed
    }

    /// The spans of each member of a group.
    fn credit<'py>(
        &self,
        py: Python<'py>,
        group: &Bound<'py, Group>,
    ) -> PyResult<Bound<'py, PyList>> {
        let it = group.get();
        credit_to_python(py, &self.gated.credit(&it.mixed, it.at.step, &it.scores))
    }
}

/// Why a trainer that samples each group at once and scores it with one model cannot have a method.
fn beyond_rollouts(needs: Needs) -> Option<&'static str> {
    if !needs.samples() {
        Some("imitation samples nothing")
    } else if needs.reference {
        Some("it needs a second model's log-probabilities, `hapo train` has them")
    } else if needs.memory {
        Some("it remembers earlier steps, `hapo train` does")
    } else if needs.scored != Scored::Nothing || needs.scores_members {
        Some("it scores what may enter with the current weights, `hapo train` does")
    } else if needs.traces > 1 {
        Some("it lets several traces into a group, `hapo train` does")
    } else if needs.prefixes || needs.hints || needs.parts > 1 {
        Some("it samples behind prefixes or hints, `hapo train` does")
    } else {
        None
    }
}

/// Why a trainer with one mean over all tokens, which samples each group at once, cannot have a method; none where it
/// can.
#[pyfunction]
pub(crate) fn method_refusal(name: &str) -> PyResult<Option<&'static str>> {
    let method = with_defaults(name)?;
    let apart = method.plan.teacher_apart.then_some("its teacher has a mean of its own");
    Ok(beyond_rollouts(method.needs()).or(apart))
}

/// True if a method gives a teacher's tokens a term, so that HAPO's gate may decide when they enter.
#[pyfunction]
pub(crate) fn method_has_teacher(name: &str) -> PyResult<bool> {
    Ok(with_defaults(name)?.plan.can_be_gated)
}

fn with_defaults(name: &str) -> PyResult<hapo_core::Method> {
    built(find(name)?, &MethodSettings::default())
}

fn built(entry: &MethodEntry, settings: &MethodSettings) -> PyResult<hapo_core::Method> {
    entry.build(settings).map_err(|it| value_error(it.place().unwrap_or("settings"), &it))
}

fn find(name: &str) -> PyResult<&'static MethodEntry> {
    hapo_core::method(name).ok_or_else(|| unknown("name", name, METHODS.iter().map(|it| it.name)))
}

/// The tables of a recipe that a method reads: `advantage`, `teacher` and its own, as dictionaries.
fn read(entry: &MethodEntry, tables: &Bound<'_, PyDict>) -> PyResult<MethodSettings> {
    let json: String = tables.py().import("json")?.call_method1("dumps", (tables,))?.extract()?;
    let tables: serde_json::Value =
        serde_json::from_str(&json).map_err(|problem| value_error("settings", problem))?;
    for key in tables.as_object().into_iter().flatten().map(|(key, _)| key.as_str()) {
        if key != entry.name && hapo_core::method(key).is_some() {
            let problem = format!("expected no such table: it is for method {key:?}");
            return Err(value_error(key, problem));
        }
    }
    serde_path_to_error::deserialize(tables)
        .map_err(|problem| value_error(&problem.path().to_string(), problem.inner()))
}

/// λ by a word or a number.
pub(crate) fn rule(it: &Bound<'_, PyAny>) -> PyResult<TeacherWeight> {
    let value = match it.extract::<f64>() {
        Ok(number) => serde_json::Value::from(number),
        Err(_) => serde_json::Value::from(text("teacher_weight", it)?),
    };
    serde_json::from_value(value).map_err(|problem| value_error("teacher_weight", problem))
}

/// The methods there are: name and one line.
#[pyfunction]
pub(crate) fn methods() -> Vec<(&'static str, &'static str)> {
    METHODS.iter().map(|it| (it.name, it.summary)).collect()
}

/// The operators there are: name and one line.
#[pyfunction]
pub(crate) fn operators() -> Vec<(&'static str, &'static str)> {
    OPERATORS.iter().map(|it| (it.name, it.summary)).collect()
}

/// Raises `ValueError` where a gold answer cannot be read, and says why.
#[pyfunction]
#[pyo3(signature = (gold, grader="math"))]
pub(crate) fn check_gold(gold: &Bound<'_, PyAny>, grader: &str) -> PyResult<()> {
    let gold = text("gold", gold)?;
    let grader = hapo_verify::grader(grader).map_err(|problem| value_error("grader", problem))?;
    hapo_verify::check_gold(grader, &gold).map_err(|problem| value_error("gold", problem))
}

/// The graders there are: name and one line.
#[pyfunction]
pub(crate) fn graders() -> Vec<(&'static str, &'static str)> {
    hapo_verify::GRADERS.iter().map(|it| (it.name(), it.summary())).collect()
}
