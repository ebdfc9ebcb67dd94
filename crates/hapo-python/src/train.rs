//! The command `hapo`, and runs of recipes inside a Python process.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{ffi::OsString, io::Write, path::PathBuf};

use hapo_cli::support::device::{self, ComputeArg, DeviceArg};
use hapo_cli::{Tracking, failure, on_device, sources_of, support::machine, usual_run_dir};
use hapo_kernels::Device;
use hapo_train::{
    Answers, Meter, Metrics, Observer, Outcome, Overrides, Recipe, ResumePolicy, RunPlan,
    recipe::{WrittenAs, register_method},
    stage_folder,
};
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;

use crate::arguments::raised;
use crate::python_method::{builder, take_cause, take_interrupt};

/// Runs the command with these arguments, the program's name first, and gives its exit code.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| {
        let code = hapo_cli::run(arguments);
        // A program of Rust's does so when it ends; a reader that is gone has seen what it wanted.
        let _ = std::io::stdout().flush();
        code
    })
}

#[derive(FromPyObject)]
pub(crate) struct Request {
    /// The file, folder or `builtin:NAME`; none for a recipe of keys.
    recipe: Option<PathBuf>,
    /// Keys with their values as JSON, laid on the recipe in this order.
    set: Vec<(String, String)>,
    unset: Vec<String>,
    run_dir: Option<PathBuf>,
    /// `fresh`, `resume` or `force`.
    resume: String,
    threads: Option<usize>,
    device: String,
    /// From a line of JSON to one.
    reward: Option<Py<PyAny>>,
    /// A method's name, and what builds it.
    method: Option<(String, Py<PyAny>)>,
    /// Told of steps, notes and warnings.
    observer: Py<PyAny>,
}

/// Runs a recipe and gives the folder of its last stage with the outcome as JSON.
#[pyfunction]
pub(crate) fn train(py: Python<'_>, request: Request) -> PyResult<(PathBuf, String)> {
    let link = Arc::new(Link {
        observer: request.observer.clone_ref(py),
        interrupts: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        raised: Mutex::default(),
        cause: Mutex::default(),
    });
    drop(take_cause());
    let outcome = py.detach(|| run(&request, &link));
    let take = |it: &Mutex<Option<PyErr>>| it.lock().unwrap_or_else(PoisonError::into_inner).take();
    let told = take(&link.raised);
    let interrupted = link.interrupts.load(Ordering::Relaxed);
    match (outcome, told) {
        (Err(error), told) => {
            Err(raised(py, &error, take_cause().or_else(|| take(&link.cause)).or(told)))
        }
        (Ok(_), Some(told)) => Err(told),
        // The second Ctrl-C is for the program around the run.
        (Ok(_), None) if interrupted > 1 => Err(PyKeyboardInterrupt::new_err(())),
        (Ok((folder, outcome)), None) => {
            // A path that is no UTF-8 has no JSON.
            let json = serde_json::to_value(outcome);
            let mut json = json.map_err(|it| PyValueError::new_err(it.to_string()))?;
            json["interrupted"] = (interrupted > 0).into();
            Ok((folder, json.to_string()))
        }
    }
}

fn run(request: &Request, link: &Arc<Link>) -> anyhow::Result<(PathBuf, Outcome)> {
    let stages = request.stages()?;
    let choice = device::parse(&request.device).map_err(|it| {
        failure::bad_input(format!("device: {it}"), "device=\"cpu\" or \"cuda:0\"")
    })?;
    let device = DeviceArg { device: choice, compute: ComputeArg::default(), verbose: false };
    let refused = |problem: &str| Err(failure::bad_input(problem, "leave it out for the default"));
    if request.threads.is_some_and(|it| !(1..=1024).contains(&it)) {
        return refused("threads: expected a number from 1 to 1024");
    }
    // A function of this process cannot be ended.
    if request.reward.is_some() && stages.iter().any(|it| it.reward.timeout != 30.0) {
        let problem = "reward.timeout: expected none beside a function, got a limit for programs";
        return refused(problem);
    }
    let threads = hapo_cli::threads(request.threads);
    let compute = stages[0].compute;
    on_device!(device, compute, threads, |device| run_stages(request, &stages, &device, link))
}

fn run_stages<D: Device + Clone>(
    request: &Request,
    stages: &[Recipe],
    device: &D,
    link: &Arc<Link>,
) -> anyhow::Result<(PathBuf, Outcome)> {
    let policy = match request.resume.as_str() {
        "fresh" => ResumePolicy::Fresh,
        "resume" => ResumePolicy::Resume,
        _ => ResumePolicy::ResumeWithRecipe,
    };
    let usual = || usual_run_dir(stages, request.recipe.as_deref());
    let run_dir = request.run_dir.clone().unwrap_or_else(usual);
    hapo_train::keep_stages(&run_dir, stages)?;
    let mut done = None;
    for recipe in stages {
        let folder = stage_folder(&run_dir, recipe);
        let mut sources = sources_of(recipe)?;
        sources.reward = request.reward.as_ref().map(|it| {
            let function = Python::attach(|py| it.clone_ref(py));
            Arc::new(Reward { function, link: link.clone() }) as Arc<dyn Answers>
        });
        let plan = RunPlan::settle_in(&folder, recipe, sources)?;
        let mut observer = PythonObserver(link.clone());
        link.tell(|it| it.call_method1("begin", (recipe.name(), recipe.steps)));
        let tracking = Tracking::of(recipe, &folder);
        let outcome = hapo_train::train_on(device.clone(), &plan, &folder, policy, &mut observer)?;
        drop(tracking);
        let finished = outcome.finished;
        done = Some((folder, outcome));
        if !finished {
            break;
        }
    }
    Ok(done.expect("a recipe has a stage"))
}

impl Request {
    fn stages(&self) -> anyhow::Result<Vec<Recipe>> {
        let mut set = Vec::with_capacity(self.set.len());
        for (key, json) in &self.set {
            let value: serde_json::Value = serde_json::from_str(json)?;
            let value = toml::Value::try_from(value)?;
            set.push(format!("{key}={value}"));
        }
        let written_as = WrittenAs { set: "key", unset: "None for" };
        let overrides = Overrides { set, unset: self.unset.clone(), written_as, of_many: false };
        // A recipe keeps the method that it was read with; the name is given back to whoever had it.
        let _reading = READING.lock().unwrap_or_else(PoisonError::into_inner);
        let register = |name: &str, build| {
            let refused =
                |it: String| failure::bad_input(format!("method: {it}"), "rename the class");
            register_method(name, build).map_err(refused)
        };
        let mut earlier = None;
        if let Some((name, factory)) = &self.method {
            let factory = Python::attach(|py| factory.clone_ref(py));
            earlier = register(name, builder(factory))?.map(|it| (name, it));
        }
        let stages = match &self.recipe {
            Some(path) => Recipe::load_stages(path, &overrides),
            None => Recipe::parse_stages("", "hapo.train", "run", &overrides),
        };
        if let Some((name, build)) = earlier {
            register(name, build)?;
        }
        Ok(stages?)
    }
}

/// Held while a method is registered for a recipe and the recipe is read.
static READING: Mutex<()> = Mutex::new(());

/// The way from a run to Python.
#[derive(Debug)]
pub(crate) struct Link {
    observer: Py<PyAny>,
    interrupts: AtomicUsize,
    /// `on_step` has asked for the end.
    stop: AtomicBool,
    /// The observer's first exception: it ends the run after its step.
    raised: Mutex<Option<PyErr>>,
    /// The last exception of a reward or a method: the cause of the engine's error, if it ends with one.
    cause: Mutex<Option<PyErr>>,
}

impl Link {
    /// Keeps what a reward or a method raised, and gives its message.
    pub(crate) fn failed(&self, py: Python<'_>, error: PyErr) -> String {
        let message = error.value(py).to_string();
        *self.cause.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        message
    }

    fn keep(&self, error: PyErr) {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    fn must_stop(&self) -> bool {
        let raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if take_interrupt() {
            self.interrupts.fetch_add(1, Ordering::Relaxed);
        }
        raised || self.stop.load(Ordering::Relaxed) || self.interrupts.load(Ordering::Relaxed) > 0
    }

    fn interrupt_or_keep(&self, py: Python<'_>, error: PyErr) {
        if !error.is_instance_of::<PyKeyboardInterrupt>(py) {
            return self.keep(error);
        }
        if self.interrupts.fetch_add(1, Ordering::Relaxed) == 0 {
            let text = "stopping after this step, with a checkpoint";
            if let Err(it) = self.observer.call_method1(py, "note", (text,)) {
                self.keep(it);
            }
        }
    }

    /// Calls the observer, and hears signals, which Python gives to its main thread alone. True if it says so.
    fn tell(
        &self,
        call: impl for<'py> FnOnce(&Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>>,
    ) -> bool {
        Python::attach(|py| {
            let told = py.check_signals().and_then(|()| call(self.observer.bind(py)));
            told.and_then(|it| it.is_truthy()).unwrap_or_else(|error| {
                self.interrupt_or_keep(py, error);
                false
            })
        })
    }
}

struct PythonObserver(Arc<Link>);

impl Observer for PythonObserver {
    fn step(&mut self, step: u64, metrics: &Metrics) {
        if self.0.tell(|it| it.call_method1("step", (step, metrics.to_json()))) {
            self.0.stop.store(true, Ordering::Relaxed);
        }
    }

    fn note(&mut self, text: &str) {
        self.0.tell(|it| it.call_method1("note", (text,)));
    }

    fn warning(&mut self, text: &str) {
        self.note(&format!("warning: {text}"));
    }

    fn meter(&self) -> Meter {
        let (link, told) = (self.0.clone(), Mutex::new(Instant::now()));
        Meter::new(move |doing, share| {
            let Ok(mut told) = told.try_lock() else { return };
            if told.elapsed() >= Duration::from_millis(100) {
                *told = Instant::now();
                link.tell(|it| it.call_method1("within", (doing, share)));
            }
        })
    }

    fn build(&self) -> String {
        format!("hapo {} on {}", hapo_cli::VERSION, machine::cpu_name())
    }

    fn stop_requested(&self) -> bool {
        self.0.must_stop()
    }
}

#[derive(Debug)]
struct Reward {
    function: Py<PyAny>,
    link: Arc<Link>,
}

impl Answers for Reward {
    fn answer(&self, line: &str) -> Result<String, String> {
        Python::attach(|py| {
            let answer = self.function.call1(py, (line,)).and_then(|it| it.extract(py));
            answer.map_err(|error| self.link.failed(py, error))
        })
    }
}
