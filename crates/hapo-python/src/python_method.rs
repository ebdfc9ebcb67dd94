//! Methods written in Python, behind the seam of the built-in ones.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hapo_core::{
    Advantage, Annealing, Candidate, Context, CounterRng, Credit, Foreign, Gate, Gated, GroupSoFar,
    Growth, Help, Loss, Member, Memory, Method, MixedGroup, Needs, Normaliser, Part, Plan, Prefix,
    PromptId, Ratio, RngCounter, RngStream, Rollout, SampledGroup, ScoredGroup, Scores, Slot,
    SlotRule, Span, SpanTokens, Step, StepContext, StoredTrace, Term, Threshold, TokenScores,
    Verdict, admit_teacher, rollouts_to_sample,
};
use hapo_train::recipe::{BuildMethod, register_method as register};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::{exceptions::PyKeyboardInterrupt, prelude::*};

use crate::arguments::{value_error, word};
use crate::groups::{Group, Sampled};

thread_local! {
    /// The last exception of a method on this thread.
    static CAUSE: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    /// True once Ctrl-C met a method on this thread.
    static INTERRUPTED: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn take_cause() -> Option<PyErr> {
    CAUSE.take()
}

pub(crate) fn take_interrupt() -> bool {
    INTERRUPTED.take()
}

/// A method that Python built.
#[derive(FromPyObject)]
pub(crate) struct Built {
    object: Py<PyAny>,
    /// Gate, slot, whether HAPO may wrap it, whether the teacher has a mean of its own.
    plan: (String, String, bool, bool),
    needs: NeedsOfPython,
    /// True for each of `grow`, `mix` and `remember` that it has.
    hooks: (bool, bool, bool),
    code_hash: Option<String>,
}

#[derive(FromPyObject)]
#[expect(clippy::struct_excessive_bools, reason = "each is a need by itself")]
struct NeedsOfPython {
    parts: usize,
    prefixes: bool,
    hints: bool,
    reference: bool,
    memory: bool,
    traces: usize,
    entropies: bool,
}

#[derive(Debug)]
struct PythonMethod {
    name: &'static str,
    object: Py<PyAny>,
    reads_memory: bool,
    code_hash: Option<String>,
    failure: Mutex<Option<String>>,
    memory: Mutex<Option<Py<PyAny>>>,
}

/// A span as Python gives it: its tokens, A or λ, A of each token, the ratio or the operator, d and k.
pub(crate) type RawSpan<'py> =
    (usize, usize, f64, Option<PyReadonlyArray1<'py, f32>>, String, f64, f64);

/// A part as Python gives it: its rollouts, tokens of the teacher's, a rollout and its tokens, a hint, a response.
type RawPart = (usize, usize, Option<(usize, usize)>, Option<usize>, Option<usize>);

/// A member that enters a group, as Python gives it: its slot, and a teacher's number or a trace of tokens, log-probabilities,
/// reward and step.
type RawEntry = (Option<usize>, Option<usize>, Option<(Vec<u32>, Vec<f32>, f64, u64)>);

/// Makes a method known to recipes. `factory` is called with the keys of its table as JSON and gives what it has built.
#[pyfunction]
pub(crate) fn register_method(name: &str, factory: Py<PyAny>) -> PyResult<()> {
    register(name, builder(factory)).map_err(|problem| value_error("name", problem))?;
    Ok(())
}

pub(crate) fn builder(factory: Py<PyAny>) -> Arc<BuildMethod> {
    let build = move |name: &'static str, own: &toml::Table| {
        Python::attach(|py| {
            let own = serde_json::to_string(own).expect("a table of a recipe is plain data");
            let built = factory.bind(py).call1((own,)).and_then(|it| it.extract::<Built>());
            built.and_then(|it| method_of(name, it)).map_err(|error| {
                let error = error.value(py);
                let text = |name| error.getattr(name).and_then(|it| it.extract::<String>()).ok();
                (text("key").unwrap_or_default(), text("message").unwrap_or(error.to_string()))
            })
        })
    };
    Arc::new(build)
}

fn method_of(name: &'static str, built: Built) -> PyResult<Method> {
    let (grows, mixes, remembers) = built.hooks;
    let plan = plan_of(&built)?;
    let NeedsOfPython { parts, prefixes, hints, reference, memory, traces, entropies } =
        built.needs;
    let needs = Needs {
        parts,
        prefixes,
        hints,
        reference,
        memory,
        traces,
        scores_members: entropies,
        ..Needs::ROLLOUTS
    };
    let method = Arc::new(PythonMethod {
        name,
        object: built.object,
        reads_memory: needs.memory,
        code_hash: built.code_hash,
        failure: Mutex::default(),
        memory: Mutex::default(),
    });
    let mut help = Help::needing(needs);
    if grows {
        let method = method.clone();
        help = help.growing(move |group| method.grow(group));
    }
    if mixes {
        let method = method.clone();
        help = help.mixing(move |group, offer, is_open| method.mix(group, offer, is_open));
    }
    if remembers {
        let method = method.clone();
        help = help.remembering(move |before, step, at| method.remember(before, step, at));
    }
    let foreign: Option<Arc<dyn Foreign>> = Some(method.clone());
    Ok(Method {
        name,
        plan,
        help,
        scored_behind: |_, _| Some(Context::Plain),
        unread_keys: &["advantage", "teacher"],
        foreign,
        ..Method::new(move |group, at, scores| method.credit(group, at, scores))
    })
}

fn plan_of(built: &Built) -> PyResult<Plan> {
    let (gate, slot, can_be_gated, teacher_apart) = &built.plan;
    let gate = match gate.as_str() {
        "never" => Gate::Never,
        "always" => Gate::Always,
        "failed" => Gate::Confidence {
            threshold: Threshold::Derived { success_limit: 0 },
            annealing: Annealing::Off,
        },
        _ => {
            let problem = format!("expected never, always or failed, got {gate:?}");
            return Err(value_error("plan.gate", problem));
        }
    };
    let slot: SlotRule = word("plan.slot", slot)?;
    Ok(Plan { gate, slot, can_be_gated: *can_be_gated, teacher_apart: *teacher_apart })
}

impl PythonMethod {
    fn failed(&self) -> MutexGuard<'_, Option<String>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.as_ref().map(|it| it.clone_ref(py))
    }

    /// Calls a function of `hapo._method`. The first failure is kept, and ends the step; nothing is called after it.
    fn ask<T>(&self, at: &str, call: impl Fn(&Bound<'_, PyModule>) -> PyResult<T>) -> Option<T> {
        if self.failed().is_some() {
            return None;
        }
        Python::attach(|py| {
            let module = py.import("hapo._method");
            let ask = || call(module.as_ref().map_err(|it| it.clone_ref(py))?);
            let mut answer = ask();
            let is_interrupt = |it: &PyErr| it.is_instance_of::<PyKeyboardInterrupt>(py);
            while answer.as_ref().err().is_some_and(is_interrupt) {
                INTERRUPTED.set(true);
                answer = ask();
            }
            answer.map_err(|error| {
                *self.failed() = Some(format!("method `{}`, {at}: {}", self.name, error.value(py)));
                CAUSE.set(Some(error));
            })
        })
        .ok()
    }
}

fn group_at(prompt: PromptId, step: Step) -> String {
    format!("group of prompt {}, step {}", prompt.0, step.0)
}

fn span_of(raw: &RawSpan<'_>) -> PyResult<Span> {
    let (start, stop, number, tokens, named, d, entropy_exponent) = raw;
    let ratio = match named.as_str() {
        "recorded" => Some(Ratio::Recorded),
        "rescored" => Some(Ratio::Rescored),
        "one" => Some(Ratio::One),
        _ => None,
    };
    let term = match (ratio, tokens) {
        (Some(ratio), Some(tokens)) => {
            Term::Policy { advantage: Advantage::Tokens(tokens.as_slice()?.into()), ratio }
        }
        (Some(ratio), None) => Term::Policy { advantage: Advantage::Sequence(*number), ratio },
        (None, _) => {
            let operator = hapo_core::operator(named);
            let unknown = || value_error("operator", format!("there is no operator {named:?}"));
            Term::Teacher { weight: *number, operator: operator.ok_or_else(unknown)?, d: *d }
        }
    };
    Ok(Span { entropy_exponent: *entropy_exponent, ..Span::new(*start..*stop, term) })
}

pub(crate) fn credit_of(raw: &[Vec<RawSpan<'_>>]) -> PyResult<Credit> {
    raw.iter().map(|spans| spans.iter().map(span_of).collect()).collect()
}

impl PythonMethod {
    fn grow(&self, group: &GroupSoFar<'_>) -> Growth {
        let at = format!("grow, {}, part {}", group_at(group.prompt(), group.at.step), group.part);
        let asked = self.ask(&at, |module| {
            let sampled = Sampled::growing(group, self.memory(module.py()));
            module.call_method1("grow", (&self.object, sampled))?.extract::<Option<RawPart>>()
        });
        let asked = asked.flatten();
        let Some((rollouts, teacher, own, hint, response)) = asked else { return Growth::Complete };
        let prefix = match (teacher, own) {
            (0, None) => Prefix::None,
            (_, Some((rollout, tokens))) => Prefix::Own { rollout, tokens },
            (tokens, None) => Prefix::Teacher(tokens),
        };
        let context = match (hint, response) {
            (Some(level), _) => Context::Hint(level),
            (None, Some(rollout)) => Context::Response(rollout),
            (None, None) => Context::Plain,
        };
        Growth::Sample(Part { rollouts, prefix, context })
    }

    fn mix(&self, group: ScoredGroup, offer: &Candidate<'_>, is_open: bool) -> MixedGroup {
        let at = format!("mix, {}", group_at(group.prompt(), offer.slot.step));
        let entries = self.ask(&at, |module| {
            let sampled = Sampled::offered(&group, offer, is_open, self.memory(module.py()));
            module.call_method1("mix", (&self.object, sampled))?.extract::<Vec<RawEntry>>()
        });
        let mut mixed = offer.mix(group, false);
        for (slot, teacher, trace) in entries.unwrap_or_default() {
            let member = |replaced| {
                if let Some(it) = teacher {
                    return Member::Teacher { trajectory: offer.teachers[it].clone(), replaced };
                }
                let (tokens, log_probs, reward, step) = trace.unwrap_or_default();
                let (step, rest) = (Step(step), StoredTrace::default());
                let trace = StoredTrace { tokens, log_probs, reward, step, ..rest };
                Member::Replayed { trace, replaced }
            };
            mixed = mixed.with(member, slot);
        }
        mixed
    }

    fn remember(&self, mut before: Memory, step: &[MixedGroup], at: Step) -> Memory {
        let notes = self.ask(&format!("remember, step {}", at.0), |module| {
            let moment = StepContext { step: at, initial_threshold: 0.0 };
            let group = |it: &MixedGroup| Group {
                mixed: it.clone(),
                at: moment,
                scores: Scores::default(),
                memory: None,
            };
            let groups: Vec<Group> = step.iter().map(group).collect();
            let given = (&self.object, &before.notes, groups, at.0);
            module.call_method1("remember", given)?.extract::<String>()
        });
        if let Some(notes) = notes {
            before.notes = notes;
        }
        before
    }

    fn credit(&self, group: &MixedGroup, at: StepContext, scores: &Scores) -> Credit {
        let named = format!("credit, {}", group_at(group.prompt(), at.step));
        let credit = self.ask(&named, |module| {
            let memory = self.memory(module.py());
            let group = Group { mixed: group.clone(), at, scores: scores.clone(), memory };
            let raw = module.call_method1("credit", (&self.object, group))?;
            credit_of(&raw.extract::<Vec<Vec<RawSpan<'_>>>>()?)
        });
        credit.unwrap_or_else(|| vec![Vec::new(); group.members().len()])
    }
}

impl Foreign for PythonMethod {
    fn recall(&self, memory: &Memory) {
        if self.reads_memory {
            let known = self.ask("memory", |module| {
                module.call_method1("recalled", (&memory.notes,)).map(Bound::unbind)
            });
            *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = known;
        }
    }

    fn failure(&self) -> Option<String> {
        self.failed().clone()
    }

    fn code_hash(&self) -> Option<String> {
        self.code_hash.clone()
    }
}

/// Groups to try a method on, made of draws: all failed, mixed, all solved, graded, some cut off, with and without a
/// teacher. Each comes with the same rollouts in another order.
#[pyfunction]
pub(crate) fn trial_groups(
    py: Python<'_>,
    factory: &Bound<'_, PyAny>,
    group_size: usize,
) -> PyResult<Vec<(Py<Group>, Py<Group>)>> {
    let method = method_of("tried", factory.call1(("{}",))?.extract()?)?;
    let foreign = method.foreign.clone().expect("a method of Python is foreign");
    let gated = Gated::bare(method.clone(), group_size)
        .map_err(|problem| value_error("group_size", problem))?;
    let mut all = Vec::new();
    for case in 0..12_u64 {
        let counter = RngCounter { step: case, prompt: 0, rollout: 0, position: 0 };
        let mut rng = CounterRng::new(0, RngStream::Bootstrap, counter);
        let mut rollouts = Vec::new();
        for number in 0..group_size as u32 {
            let length = 3 + rng.below(9) as usize;
            let draw = |rng: &mut CounterRng| (-4.0 * rng.uniform()) as f32;
            let reward = match case % 4 {
                0 => 0.0,
                1 => f64::from(rng.below(2) as u32),
                2 => 1.0,
                _ => f64::from(rng.below(5) as u32) / 4.0,
            };
            let rollout = Rollout {
                // The first token tells one rollout from the others.
                tokens: (0..length as u32).map(|it| 100 * number + it + 10).collect(),
                log_probs: (0..length).map(|_| draw(&mut rng)).collect(),
                ended: case % 3 != 2 || number > 1,
                ..Rollout::default()
            };
            rollouts.push((rollout, (reward, Verdict::Wrong)));
        }
        let teacher = admit_teacher(vec![7, 8, 9], &[2], &Verdict::Correct, 99);
        let teachers: Vec<_> = teacher.into_iter().filter(|_| case % 2 == 0).collect();
        let slot = Slot { rule: gated.slot, seed: 0, step: Step(1) };
        let sampled = rollouts_to_sample(gated.slot, group_size, teachers.first());
        rollouts.truncate(sampled);
        let group = |rollouts: &[(Rollout, (f64, Verdict))]| {
            let (rollouts, graded) = rollouts.iter().cloned().unzip();
            let group = SampledGroup::new(PromptId(case), sampled, rollouts);
            let scored = group.score_with_rewards(graded, 1.0);
            foreign.recall(&Memory::default());
            let offer = Candidate { teachers: &teachers, stored: &[], scores: &[], slot };
            let is_open = gated.success_limit(slot.step).is_open(scored.successes());
            let mixed = gated.mix(scored, &offer, is_open);
            if let Some(problem) = foreign.failure() {
                return Err(value_error("method", problem));
            }
            let scores = trial_scores(&mixed, method.needs());
            Py::new(py, Group { mixed, at: gated.moment(Step(1)), scores, memory: None })
        };
        let first = group(&rollouts)?;
        rollouts.rotate_left(2 % sampled.max(1));
        rollouts.swap(0, sampled / 2);
        all.push((first, group(&rollouts)?));
    }
    Ok(all)
}

/// Scores of the members for a method that needs them, computed from the tokens alone.
fn trial_scores(group: &MixedGroup, needs: Needs) -> Scores {
    let scored = |is_needed: bool| -> Vec<TokenScores> {
        let members = group.members().iter().filter(|_| is_needed);
        let of = |it: &Member| TokenScores {
            log_probs: it.tokens().iter().map(|it| -0.1 - (it % 7) as f32 / 3.0).collect(),
            entropies: it.tokens().iter().map(|it| 0.1 + (it % 5) as f32 / 2.0).collect(),
            top: Vec::new(),
        };
        members.map(of).collect()
    };
    Scores { reference: scored(needs.reference), own: scored(needs.scores_members) }
}

/// The loss of a group's spans over a divisor of 1, and its derivative by each log-probability of its members.
#[pyfunction]
pub(crate) fn span_loss<'py>(
    py: Python<'py>,
    group: &Bound<'py, Group>,
    credit: Vec<Vec<RawSpan<'py>>>,
    log_probs: Vec<PyReadonlyArray1<'py, f32>>,
) -> PyResult<(f64, Vec<Bound<'py, PyArray1<f32>>>)> {
    let (credit, loss) = (credit_of(&credit)?, Loss::new(Normaliser::TOKEN_MEAN));
    let (mut total, mut slopes) = (0.0, Vec::new());
    for ((member, spans), now) in group.get().mixed.members().iter().zip(&credit).zip(&log_probs) {
        let now = now.as_slice()?;
        let mut slope = vec![0.0; now.len()];
        let recorded = now.len() - member.log_probs().len();
        for span in spans {
            let at = span.tokens.clone();
            let old_log_probs = match at.start.checked_sub(recorded) {
                Some(start) => &member.log_probs()[start..][..at.len()],
                None => &now[at.clone()],
            };
            let (log_probs, entropies) = (&now[at.clone()], &vec![0.5; at.len()]);
            let tokens = SpanTokens { log_probs, old_log_probs, reference: &[], entropies };
            let mut by_entropy = vec![0.0; at.len()];
            total -= loss.span(span, tokens, 1.0.into(), &mut slope[at], &mut by_entropy).objective;
        }
        slopes.push(slope.into_pyarray(py));
    }
    Ok((total, slopes))
}
