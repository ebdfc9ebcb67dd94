//! Processes of one program.

use std::sync::{Mutex, MutexGuard, PoisonError};

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
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Process>,
    started: usize,
}

impl Pool {
    pub(crate) fn new(command: &str, settings: &RewardSettings, log: RewardLog) -> Self {
        let (command, settings) = (command.to_owned(), settings.clone());
        Self { command, settings, log, state: Mutex::default() }
    }

    /// The line that answers a line. If the process ends instead, it is started again and gets the line once more:
    /// earlier lines may have caused the end.
    pub(crate) fn ask(&self, line: &str) -> Result<String, Failure> {
        let mut ended = String::new();
        for _ in 0..2 {
            let mut process = self.take()?;
            match process.ask(line, &self.settings) {
                Ok(answer) => {
                    self.state().idle.push(process);
                    return Ok(answer);
                }
                Err(Ended::Early(how)) => ended = how,
                Err(Ended::Failed(it)) => return Err(it),
            }
        }
        Err(Failure::of_one(format!("it ended before it answered: {ended}")))
    }

    /// Ends the processes: each has answered every line with one.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        let idle = std::mem::take(&mut self.state().idle);
        idle.into_iter().try_for_each(Process::finish)
    }

    /// A process that is idle, or a new one: there are as many as lines are asked at once.
    fn take(&self) -> Result<Process, Failure> {
        let mut state = self.state();
        if let Some(it) = state.idle.pop() {
            return Ok(it);
        }
        state.started += 1;
        let number = state.started;
        drop(state);
        Process::start(&self.command, number, self.log.clone())
            .map_err(|it| Failure::fatal(format!("it cannot be started: {it}")))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
