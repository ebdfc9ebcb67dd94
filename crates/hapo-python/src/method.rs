//! A method with its gate.

use hapo_core::{
    AdvantageGroup, AdvantageRule, Gated, GroupPlan, METHODS, MethodSettings, OPERATORS,
    OwnSettings, SlotRule, TeacherWeight,
};
use pyo3::prelude::*;

use crate::arguments::{text, unknown, value_error, word};
use crate::schedule::{Schedule, count};

/// A method, and the gate that decides when the teacher enters its groups: the method's own without a schedule, that
/// of HAPO with one.
#[pyclass(frozen, module = "hapo")]
pub(crate) struct Method {
    pub(crate) gated: Gated,
    pub(crate) group_size: usize,
    pub(crate) d: f64,
}

#[pymethods]
impl Method {
    #[new]
    #[pyo3(signature = (name, group_size, *, schedule=None, slot="lowest-reward", teacher_weight=None, d=0.1,
                        advantage_group="mixed", advantage_std=false, own=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python's")]
    fn new(
        name: &str,
        group_size: i64,
        schedule: Option<&Bound<'_, Schedule>>,
        slot: &str,
        teacher_weight: Option<&Bound<'_, PyAny>>,
        d: f64,
        advantage_group: &str,
        advantage_std: bool,
        own: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let group_size = count("group_size", group_size)?;
        let entry = hapo_core::method(name)
            .ok_or_else(|| unknown("name", name, METHODS.iter().map(|it| it.name)))?;
        if !(d > 0.0 && d.is_finite()) {
            return Err(value_error("d", format!("expected a number above 0, got {d}")));
        }
        let own: OwnSettings = match own {
            None => OwnSettings::default(),
            Some(it) => {
                let json: String =
                    it.py().import("json")?.call_method1("dumps", (it,))?.extract()?;
                serde_json::from_str(&json).map_err(|problem| value_error("own", problem))?
            }
        };
        if !own.is_empty() && entry.own_keys.is_empty() {
            return Err(value_error(
                "own",
                format!("expected nothing: `{name}` has no settings of its own"),
            ));
        }
        let settings = MethodSettings {
            group_size,
            advantage: AdvantageRule {
                group: word::<AdvantageGroup>("advantage_group", advantage_group)?,
                std: advantage_std,
            },
            teacher_weight: teacher_weight.map_or(Ok(TeacherWeight::One), rule)?,
            d,
            own,
        };
        let method = (entry.build)(&settings)
            .map_err(|problem| value_error(problem.key, problem.problem))?;
        let slot: SlotRule = word("slot", slot)?;
        let gated = match schedule {
            None => Gated::bare(method, group_size),
            Some(it) => {
                let it = it.get();
                if it.schedule.group_size() != group_size {
                    return Err(value_error(
                        "group_size",
                        format!(
                            "expected the schedule's, {}, got {group_size}",
                            it.schedule.group_size()
                        ),
                    ));
                }
                Gated::hapo(method, (&it.gate, slot), group_size, it.steps_per_epoch)
            }
        };
        let gated = gated.map_err(|problem| value_error("schedule", problem))?;
        match gated.sampling() {
            GroupPlan::Full | GroupPlan::TeacherSlot => Ok(Self { gated, group_size, d }),
            GroupPlan::Demonstrations => Err(value_error(
                "name",
                format!(
                    "expected a method that samples, got {name:?}: imitation needs no decision"
                ),
            )),
            GroupPlan::Prefixes(_) => Err(value_error(
                "own",
                "prefixes are sampled in parts, one after the other: expected a trainer that does so, \
                 as `hapo train` does",
            )),
        }
    }

    /// Name in tables: the method's, with `-hapo` where HAPO wraps it.
    #[getter]
    fn name(&self) -> String {
        self.gated.name()
    }

    /// N.
    #[getter]
    fn group_size(&self) -> usize {
        self.group_size
    }

    /// Whether the teacher has a free slot in every group: one rollout fewer counts, the first.
    #[getter]
    fn has_fixed_slot(&self) -> bool {
        self.gated.sampling() == GroupPlan::TeacherSlot
    }

    /// d of the operator.
    #[getter]
    fn d(&self) -> f64 {
        self.d
    }
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
