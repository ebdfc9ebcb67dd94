//! Custom rewards: a program or a server that judges completions, as a [`Grader`].
//!
//! A program runs as long as the run does. It reads one JSON line for each completion and answers with a line: a
//! number, or an object with a reward or a verdict and named parts. A server gets the same object by POST. Several run
//! at once, and each answer goes to its own completion, so their speed changes nothing. A function of this process
//! answers the same lines, one at a time. The price is trust: a reward that does not depend on its line alone makes a
//! run that cannot be repeated, and a clock measures the time limit.

mod answer;
mod log;
mod process;
mod question;
mod server;

use crate::http::redacted;
use answer::Answer;
use hapo_core::{Refusal, expected, found_at};
use hapo_verify::{
    Completion, Extraction, GoldError, Grader, Judgement, PreparedGold, Problem, Reason, Verdict,
};
pub use log::RewardLog;
use process::Pool;
use question::Question;
use serde::{Deserialize, Serialize};
use server::Server;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{path::Path, time::Duration};

#[derive(Clone, Debug, PartialEq)]
pub struct RewardSettings {
    /// Longest time of one answer.
    pub timeout: Duration,
    /// Extra time for the first answer of a process, which loads its data.
    pub start_timeout: Duration,
    /// Processes of a program, or requests at once to a server.
    pub workers: usize,
    pub on_failure: OnFailure,
    /// Smallest reward that is called correct where the answer holds no verdict.
    pub success_at: f64,
    /// Reward of a completion without an answer, if the run continues.
    pub wrong: f64,
    /// The definition of a completion's `answer`.
    pub extraction: Extraction,
}

impl Default for RewardSettings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            start_timeout: Duration::from_mins(2),
            workers: workers(0),
            on_failure: OnFailure::Stop,
            success_at: 1.0,
            wrong: 0.0,
            extraction: Extraction::Announced,
        }
    }
}

/// The number of workers; 0 means the CPU's cores.
pub fn workers(asked: usize) -> usize {
    if asked == 0 { std::thread::available_parallelism().map_or(1, usize::from) } else { asked }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    #[default]
    Stop,
    Wrong,
}

/// How names of programs, functions and servers begin.
const COMMAND: &str = "command:";
const FUNCTION: &str = "python:";
const ADDRESSES: [&str; 2] = ["http://", "https://"];

/// True if a grader's name is a program, a function or a server.
pub fn is_own(name: &str) -> bool {
    [COMMAND, FUNCTION].iter().chain(&ADDRESSES).any(|it| name.starts_with(it))
}

/// A function of this process that answers lines as a program does.
pub trait Answers: std::fmt::Debug + Send + Sync {
    /// The answer to a line, or why there is none, with the row and the completion.
    fn answer(&self, line: &str) -> Result<String, String>;
}

fn bad_name(name: &str, wanted: &str) -> Refusal {
    expected(wanted).got(format!("`{name}`")).hint("for example `command:python reward.py`, `python:reward.py:reward` or `http://localhost:8000/reward`")
}

/// Checks the name of a program, a function or a server without starting it.
pub fn check(name: &str) -> Result<(), Refusal> {
    let bad = |expected| bad_name(name, expected);
    if name.starts_with(FUNCTION) {
        let Some((file, _)) = file_and_function(name) else { return Ok(()) };
        let found = found_at(Path::new(file))?;
        let is_there = found.is_some_and(|found| found.is_file());
        return if is_there { Ok(()) } else { Err(bad("a file that is there")) };
    }
    match name.strip_prefix(COMMAND) {
        Some(command) if command.trim().is_empty() => Err(bad("a command behind `command:`")),
        Some(_) => Ok(()),
        None => match ADDRESSES.iter().find_map(|it| name.strip_prefix(it)) {
            Some(rest) if !rest.is_empty() && !rest.starts_with('/') => Ok(()),
            _ => Err(bad(
                "`command:` and a command, `python:FILE.py:FUNCTION`, or the http address of a server",
            )),
        },
    }
}

/// Those of a name `python:FILE.py:FUNCTION`; a name without a file is a function's of this process.
fn file_and_function(name: &str) -> Option<(&str, &str)> {
    let (file, function) = name.strip_prefix(FUNCTION)?.rsplit_once(':')?;
    (file.strip_suffix(".py").is_some() && !function.is_empty()).then_some((file, function))
}

/// Runs a function in Python as a program: lines in, lines out.
const RUNNER: &str = include_str!("reward_call.py");

/// The command that a name stands for; `None` for a server's.
fn command(name: &str) -> Option<String> {
    if let Some(command) = name.strip_prefix(COMMAND) {
        return Some(command.trim().to_owned());
    }
    let (file, function) = file_and_function(name)?;
    let quoted = |it: &str| format!("'{}'", it.replace('\'', r"'\''"));
    let python = std::env::var("HAPO_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let words = [&*python, "-c", RUNNER, file, function].map(quoted);
    Some(format!("exec {}", words.join(" ")))
}

/// A program or a server as a grader. Its processes end with the last of its copies and of the golds that it has read.
#[derive(Clone, Debug)]
pub struct OwnReward(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    name: &'static str,
    source: Source,
    settings: RewardSettings,
    log: RewardLog,
    /// It has said something once: a program that never does was not started right.
    has_answered: AtomicBool,
    /// An answer has named its line: then all do.
    names_lines: AtomicBool,
    /// Failures since the last answer.
    failures: AtomicUsize,
}

#[derive(Debug)]
enum Source {
    Program(Pool),
    Server(Server),
    Function(Arc<dyn Answers>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) message: String,
    /// No later answer can be trusted, or none will come.
    pub(crate) fatal: bool,
}

impl Failure {
    pub(crate) fn of_one(message: impl Into<String>) -> Self {
        Self { message: message.into(), fatal: false }
    }

    pub(crate) fn fatal(message: impl Into<String>) -> Self {
        Self { message: message.into(), fatal: true }
    }
}

/// What a panic of another thread leaves is used as it is.
fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Failures one after the other after which it is an error, whatever the settings say.
const MOST_FAILURES: usize = 64;

impl OwnReward {
    /// The program or server of that name. Nothing is started before the first completion.
    pub fn new(name: &str, settings: RewardSettings) -> Result<Self, Refusal> {
        check(name)?;
        if name.starts_with(FUNCTION) && file_and_function(name).is_none() {
            let expected =
                "`python:FILE.py:FUNCTION`: a function without a file is given to `hapo.train`";
            return Err(bad_name(name, expected));
        }
        let log = RewardLog::default();
        let source = match command(name) {
            Some(command) => Source::Program(Pool::new(&command, &settings, log.clone())),
            None => Source::Server(Server::new(name, &settings, log.clone())),
        };
        Ok(Self::of(name, source, settings, log))
    }

    /// A function of this process under that name; it is asked for one answer at a time.
    pub fn function(name: &str, function: Arc<dyn Answers>, mut settings: RewardSettings) -> Self {
        settings.workers = 1;
        Self::of(name, Source::Function(function), settings, RewardLog::default())
    }

    fn of(name: &str, source: Source, settings: RewardSettings, log: RewardLog) -> Self {
        Self(Arc::new(Shared {
            // A run has one; graders have names that live as long as the program.
            name: Box::leak(name.to_owned().into_boxed_str()),
            source,
            settings,
            log,
            has_answered: AtomicBool::new(false),
            names_lines: AtomicBool::new(false),
            failures: AtomicUsize::new(0),
        }))
    }

    pub fn log(&self) -> &RewardLog {
        &self.0.log
    }

    /// The memory of a program that waits for a line, where the system says.
    pub fn resident_bytes(&self) -> Option<u64> {
        if let Source::Program(pool) = &self.0.source { pool.resident_bytes() } else { None }
    }
}

impl Grader for OwnReward {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn summary(&self) -> &'static str {
        "a custom reward: a program, a function or a server"
    }

    fn prepare(&self, gold: &str) -> Result<Box<dyn PreparedGold>, GoldError> {
        let problem = Problem { golds: &[gold], ..Problem::default() };
        self.prepare_problem(&problem).expect("it reads problems")
    }

    fn prepare_problem(
        &self,
        problem: &Problem<'_>,
    ) -> Option<Result<Box<dyn PreparedGold>, GoldError>> {
        let question = Question::new(problem);
        Some(Ok(Box::new(OwnGold { shared: Arc::clone(&self.0), question })))
    }

    fn workers(&self) -> Option<usize> {
        Some(self.0.settings.workers)
    }

    fn reads_answers(&self) -> bool {
        false
    }

    fn finish(&self) -> Result<(), String> {
        let Source::Program(pool) = &self.0.source else { return Ok(()) };
        pool.finish().map_err(|it| format!("{}: {}", self.0.name, it.message))
    }
}

#[derive(Debug)]
struct OwnGold {
    shared: Arc<Shared>,
    question: Question,
}

impl PreparedGold for OwnGold {
    fn judge(&self, completion: &str) -> Judgement {
        self.judge_completion(completion.into())
    }

    fn judge_completion(&self, completion: Completion<'_>) -> Judgement {
        let asked = self.question.about(completion, self.shared.settings.extraction);
        let (verdict, reason, reward, parts) = match self.shared.ask(&asked.line, &asked.id) {
            Ok(Answer { reward, verdict, reason, parts, .. }) => {
                let success = reward >= self.shared.settings.success_at;
                let by_reward = if success { Verdict::Correct } else { Verdict::Wrong };
                let reason = reason.unwrap_or_else(|| format!("reward {reward}"));
                (verdict.unwrap_or(by_reward), reason, Some(reward), parts)
            }
            Err(Failure { message, fatal }) => {
                let settings = &self.shared.settings;
                let goes_on = !fatal && settings.on_failure == OnFailure::Wrong;
                let verdict = Verdict::Unparsable(Reason::Grader);
                (verdict, message, goes_on.then_some(settings.wrong), Vec::new())
            }
        };
        Judgement {
            verdict,
            answer_read: asked.answer.clone().unwrap_or_default(),
            extracted: asked.answer,
            gold_read: self.question.gold.clone(),
            reason: reason.into(),
            reward,
            parts,
        }
    }
}

impl Shared {
    /// Refuses an answer without an id behind one that had it: it may be a stray line.
    fn require_id(&self, answer: Answer) -> Result<Answer, Failure> {
        if self.names_lines.fetch_or(answer.has_id, Ordering::Relaxed) && !answer.has_id {
            return Err(Failure::fatal("expected an `id` in this answer, as in those before"));
        }
        Ok(answer)
    }

    fn ask(&self, line: &str, id: &str) -> Result<Answer, Failure> {
        let said = match &self.source {
            Source::Program(pool) => pool.ask(line),
            Source::Server(server) => server.ask(line),
            Source::Function(function) => function.answer(line).map_err(Failure::of_one),
        };
        // Whatever it says, it was started right; a function that raises says so by that.
        if said.is_ok() || matches!(self.source, Source::Function(_)) {
            self.has_answered.store(true, Ordering::Relaxed);
        }
        let answer = said.and_then(|text| {
            let answer = answer::parse(&text, id).and_then(|it| self.require_id(it));
            answer.inspect_err(|_| self.log.add("unexpected answer", &text))
        });
        match answer {
            Ok(it) => {
                self.failures.store(0, Ordering::Relaxed);
                Ok(it)
            }
            Err(mut failure) => {
                let name = self.name;
                failure.message = redacted(&format!("{name}: {}", failure.message), None, name);
                if !self.has_answered.load(Ordering::Relaxed) {
                    failure.fatal = true;
                    failure.message += "; it has not answered anything yet";
                }
                if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_FAILURES {
                    failure.fatal = true;
                    failure.message += &format!("; it failed {MOST_FAILURES} times in a row");
                }
                Err(failure)
            }
        }
    }
}
