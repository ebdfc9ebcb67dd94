//! Processes of one program.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::reward::Failure;
use crate::reward::RewardSettings;
use crate::reward::log::RewardLog;
use crate::reward::process::{Ended, Process};

#[derive(Debug)]
pub(crate) struct Pool {
    command: String,
    settings: RewardSettings,
    log: RewardLog,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Process>,
    /// Idle and busy ones.
    running: usize,
    started: usize,
}

impl Pool {
    pub(crate) fn new(command: &str, settings: &RewardSettings, log: RewardLog) -> Self {
        Self {
            command: command.to_owned(),
            settings: settings.clone(),
            log,
            state: Mutex::default(),
            freed: Condvar::new(),
        }
    }

    /// The line that answers a line. If the process ends instead, it is started again and gets the line once more:
    /// earlier lines may have caused the end.
    pub(crate) fn ask(&self, line: &str) -> Result<String, Failure> {
        let mut ended = String::new();
        for _ in 0..2 {
            let mut process = self.take()?;
            let asked = process.ask(line, &self.settings);
            if asked.is_ok() {
                self.give_back(Some(process));
                return asked.map_err(|_| unreachable!("it was answered"));
            }
            drop(process);
            self.give_back(None);
            match asked {
                Err(Ended::Early(how)) => ended = how,
                Err(Ended::Failed(it)) => return Err(it),
                Ok(_) => unreachable!("it was not answered"),
            }
        }
        Err(Failure::of_one(format!("it ended before it answered: {ended}")))
    }

    /// Ends the idle processes: each has answered every line with one.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        let idle = std::mem::take(&mut self.state().idle);
        self.state().running -= idle.len();
        idle.into_iter().try_for_each(Process::finish)
    }

    /// A process that is idle, or a new one where there may be more.
    fn take(&self) -> Result<Process, Failure> {
        let mut state = self.state();
        let most = self.settings.workers.max(1);
        while state.idle.is_empty() && state.running >= most {
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(it) = state.idle.pop() {
            return Ok(it);
        }
        state.running += 1;
        state.started += 1;
        let number = state.started;
        drop(state);
        Process::start(&self.command, number, self.log.clone()).map_err(|it| {
            self.give_back(None);
            Failure::fatal(format!("it cannot be started: {it}"))
        })
    }

    fn give_back(&self, process: Option<Process>) {
        let mut state = self.state();
        match process {
            Some(it) => state.idle.push(it),
            None => state.running -= 1,
        }
        drop(state);
        self.freed.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
