//! Groups as methods in Python see them, and the generator's draws.

use hapo_core::{
    Candidate, CounterRng, Credit, GroupSoFar, Member, MixedGroup, PolicyMember, RngCounter,
    RngStream, ScoredGroup, Scores, StepContext, StoredTrace, TeacherTrajectory, Term,
};
use numpy::{IntoPyArray, PyArray1};
use pyo3::{prelude::*, types::PyList};

use crate::arguments::word;

type Column<'py, T> = Bound<'py, PyArray1<T>>;

fn column<T: numpy::Element>(py: Python<'_>, values: impl Iterator<Item = T>) -> Column<'_, T> {
    values.collect::<Vec<T>>().into_pyarray(py)
}

pub(crate) fn arrays<'py, 'a, T: numpy::Element + Clone + 'a>(
    py: Python<'py>,
    values: impl Iterator<Item = &'a [T]>,
) -> Vec<Column<'py, T>> {
    values.map(|it| it.to_vec().into_pyarray(py)).collect()
}

/// The methods of a class: lines `name: type = value;` for what Python reads as attributes, then functions.
macro_rules! getters {
    ($class:ident |$self:ident, $py:ident| {
        $($name:ident: $type:ty = $value:expr;)+
    } $($rest:tt)*) => {
        #[allow(clippy::elidable_lifetime_names, reason = "arrays name it, numbers do not")]
        #[pymethods]
        impl $class {
            $(#[getter]
            fn $name<'py>(&$self, $py: Python<'py>) -> $type {
                let _ = $py;
                $value
            })+

            $($rest)*
        }
    };
}
pub(crate) use getters;

/// A group after the gate: n members that get credit.
///
/// Of each member, arrays of n: rewards, `is_success`, ended, lengths (tokens of the response), prefixes (of them given
/// before it was sampled), parts, recorded (of them with recorded log-probabilities, the last ones). Lists of n: roles
/// ("policy", "teacher", "helped", "replayed"), tokens, `log_probs` (of the recorded tokens, natural logarithm, at the
/// sampling temperature), reference (of all tokens by the second model; empty without one), entropies (of the
/// distribution in each token's place by the step's first weights, in nats at temperature 1; empty where `Needs` does
/// not ask for them). Of the group: prompt (its number), step (from 1), requested, successes (S) and `n_eff` of the sampled rollouts before anything entered,
/// confidence (c), injected, `initial_threshold` (γ0), memory.
#[pyclass(frozen, module = "hapo")]
pub(crate) struct Group {
    pub(crate) mixed: MixedGroup,
    pub(crate) at: StepContext,
    pub(crate) scores: Scores,
    #[pyo3(get)]
    pub(crate) memory: Option<Py<PyAny>>,
}

impl Group {
    fn members(&self) -> impl Iterator<Item = &Member> {
        self.mixed.members().iter()
    }

    fn numbers<'py, T: numpy::Element + Copy>(
        &self,
        py: Python<'py>,
        of: impl Fn(&PolicyMember) -> T,
        of_foreign: T,
    ) -> Column<'py, T> {
        column(py, self.members().map(|it| it.sampled().map_or(of_foreign, &of)))
    }
}

fn role_of(member: &Member) -> &'static str {
    match member {
        Member::Policy(_) => "policy",
        Member::Teacher { .. } => "teacher",
        Member::Helped { .. } => "helped",
        Member::Replayed { .. } => "replayed",
    }
}

getters! { Group |self, py| {
        prompt: u64 = self.mixed.prompt().0;
        step: u64 = self.at.step.0;
        initial_threshold: f64 = self.at.initial_threshold;
        requested: usize = self.mixed.requested();
        successes: usize = self.mixed.successes();
        n_eff: usize = self.mixed.n_eff();
        confidence: f64 = self.mixed.confidence();
        injected: bool = self.mixed.injected();
        rewards: Column<'py, f64> = column(py, self.members().map(Member::reward));
        roles: Vec<&'static str> = self.members().map(role_of).collect();
        is_success: Column<'py, bool> = self.numbers(py, |it| it.is_success, true);
        ended: Column<'py, bool> = self.numbers(py, |it| it.rollout.ended, true);
        prefixes: Column<'py, i64> = self.numbers(py, |it| it.rollout.prefix as i64, 0);
        parts: Column<'py, i64> = self.numbers(py, |it| it.rollout.part as i64, 0);
        lengths: Column<'py, i64> = column(py, self.members().map(|it| it.tokens().len() as i64));
        tokens: Vec<Column<'py, u32>> = arrays(py, self.members().map(Member::tokens));
        log_probs: Vec<Column<'py, f32>> = arrays(py, self.members().map(Member::log_probs));
        recorded: Column<'py, i64> =
            column(py, self.members().map(|it| it.log_probs().len() as i64));
        reference: Vec<Column<'py, f32>> =
            arrays(py, self.scores.reference.iter().map(|it| it.log_probs.as_slice()));
        entropies: Vec<Column<'py, f32>> =
            arrays(py, self.scores.own.iter().map(|it| it.entropies.as_slice()));
    }

    fn __len__(&self) -> usize {
        self.mixed.members().len()
    }

    fn __repr__(&self) -> String {
        let (prompt, step) = (self.mixed.prompt().0, self.at.step.0);
        let (n, successes) = (self.__len__(), self.mixed.successes());
        format!("Group(prompt {prompt}, step {step}: {n} members, {successes} successes)")
    }
}

/// A group as far as it is sampled: n rollouts, before anything enters.
///
/// Arrays of n: rewards, `is_success`, ended, lengths, parts. Lists of n: tokens, `log_probs`. Of the group: prompt, step,
/// part (the index of the next), size (rollouts that fill the group), hints (their number), successes (S), teachers and
/// stored (tokens of the prompt's verified solutions and of its earlier successes), `is_open` (the plan's gate), slot
/// (the rollout whose place the plan gives away, None in front), memory.
#[pyclass(frozen, module = "hapo")]
pub(crate) struct Sampled {
    group: ScoredGroup,
    #[pyo3(get)]
    part: usize,
    #[pyo3(get)]
    size: usize,
    teachers: Vec<TeacherTrajectory>,
    stored: Vec<StoredTrace>,
    #[pyo3(get)]
    hints: usize,
    #[pyo3(get)]
    step: u64,
    seed: u64,
    #[pyo3(get)]
    is_open: bool,
    #[pyo3(get)]
    slot: Option<usize>,
    #[pyo3(get)]
    memory: Option<Py<PyAny>>,
}

impl Sampled {
    pub(crate) fn growing(it: &GroupSoFar<'_>, memory: Option<Py<PyAny>>) -> Self {
        Self {
            group: it.group.clone(),
            part: it.part,
            size: it.size,
            teachers: it.teachers.to_vec(),
            stored: Vec::new(),
            hints: it.hints,
            step: it.at.step.0,
            seed: it.seed,
            is_open: false,
            slot: None,
            memory,
        }
    }

    pub(crate) fn offered(
        group: &ScoredGroup,
        offer: &Candidate<'_>,
        is_open: bool,
        memory: Option<Py<PyAny>>,
    ) -> Self {
        let parts = group.members().iter().map(|it| it.rollout.part + 1);
        Self {
            part: parts.max().unwrap_or(0),
            size: group.requested(),
            teachers: offer.teachers.to_vec(),
            stored: offer.stored.to_vec(),
            hints: 0,
            step: offer.slot.step.0,
            seed: offer.slot.seed,
            is_open,
            slot: offer.slot_in(group),
            memory,
            group: group.clone(),
        }
    }

    fn members(&self) -> impl Iterator<Item = &PolicyMember> {
        self.group.members().iter()
    }
}

getters! { Sampled |self, py| {
        prompt: u64 = self.group.prompt().0;
        successes: usize = self.group.successes();
        teachers: Vec<Column<'py, u32>> =
            arrays(py, self.teachers.iter().map(TeacherTrajectory::tokens));
        stored: Vec<Column<'py, u32>> =
            arrays(py, self.stored.iter().map(|it| it.tokens.as_slice()));
        rewards: Column<'py, f64> = column(py, self.members().map(|it| it.reward));
        is_success: Column<'py, bool> = column(py, self.members().map(|it| it.is_success));
        ended: Column<'py, bool> = column(py, self.members().map(|it| it.rollout.ended));
        parts: Column<'py, i64> = column(py, self.members().map(|it| it.rollout.part as i64));
        lengths: Column<'py, i64> =
            column(py, self.members().map(|it| it.rollout.tokens.len() as i64));
        tokens: Vec<Column<'py, u32>> =
            arrays(py, self.members().map(|it| it.rollout.tokens.as_slice()));
        log_probs: Vec<Column<'py, f32>> =
            arrays(py, self.members().map(|it| it.rollout.log_probs.as_slice()));
    }

    /// Draws of the method at this step, prompt and part.
    fn rng(&self) -> Rng {
        let (prompt, rollout) = (self.group.prompt().0, self.part as u64);
        let counter = RngCounter { step: self.step, prompt, rollout, position: 0 };
        Rng(CounterRng::new(self.seed, RngStream::Growth, counter))
    }

    fn __len__(&self) -> usize {
        self.group.members().len()
    }

    fn __repr__(&self) -> String {
        let (prompt, step, part) = (self.group.prompt().0, self.step, self.part);
        format!("Sampled(prompt {prompt}, step {step}, part {part}: {} rollouts)", self.__len__())
    }
}

/// Draws that depend on the seed, the stream and the counter alone.
#[pyclass(module = "hapo")]
pub(crate) struct Rng(CounterRng);

#[pymethods]
impl Rng {
    #[new]
    #[pyo3(signature = (stream, seed, *, step=0, prompt=0, rollout=0))]
    fn new(stream: &str, seed: u64, step: u64, prompt: u64, rollout: u64) -> PyResult<Self> {
        let counter = RngCounter { step, prompt, rollout, position: 0 };
        Ok(Self(CounterRng::new(seed, word::<RngStream>("stream", stream)?, counter)))
    }

    /// Uniform in [0, 1).
    fn uniform(&mut self) -> f64 {
        self.0.uniform()
    }

    /// Uniform among 0 to n − 1.
    fn below(&mut self, n: u64) -> PyResult<u64> {
        if n == 0 {
            return Err(crate::arguments::value_error("n", "expected at least 1, got 0"));
        }
        Ok(self.0.below(n))
    }

    /// Standard normal.
    fn normal(&mut self) -> f64 {
        self.0.normal()
    }
}

/// Credit as `hapo.Policy` and `hapo.Teacher`.
pub(crate) fn credit_to_python<'py>(
    py: Python<'py>,
    credit: &Credit,
) -> PyResult<Bound<'py, PyList>> {
    let module = py.import("hapo._method")?;
    let members = credit.iter().map(|spans| {
        let spans = spans.iter().map(|span| {
            let tokens = (span.tokens.start, span.tokens.end);
            match &span.term {
                Term::Policy { advantage, ratio } => {
                    let advantage = match advantage {
                        hapo_core::Advantage::Sequence(it) => it.into_pyobject(py)?.into_any(),
                        hapo_core::Advantage::Tokens(it) => it.to_vec().into_pyarray(py).into_any(),
                    };
                    let ratio = format!("{ratio:?}").to_lowercase();
                    module.call_method1("Policy", (advantage, tokens, ratio, span.entropy_exponent))
                }
                Term::Teacher { weight, operator, d } => {
                    let teacher = (*weight, operator.name, *d, tokens, span.entropy_exponent);
                    module.call_method1("Teacher", teacher)
                }
            }
        });
        PyList::new(py, spans.collect::<PyResult<Vec<_>>>()?)
    });
    PyList::new(py, members.collect::<PyResult<Vec<_>>>()?)
}
