//! Output of programs beside their answers.

use crate::reward::locked;
use std::sync::{Arc, Mutex};
use std::{fmt, io::Write};

/// Most bytes that are kept in memory until there is a place for them.
const MOST_HELD: usize = 1 << 20;
const MOST_WRITTEN: usize = 64 << 20;

/// Where everything goes that programs print and that is no answer. It is held in memory until it is given a place.
#[derive(Clone, Default)]
pub struct RewardLog(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    held: Vec<u8>,
    place: Option<Box<dyn Write + Send>>,
    written: usize,
}

impl fmt::Debug for RewardLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RewardLog")
    }
}

impl RewardLog {
    /// Writes the output so far to `place`, and later output as it comes. Errors are ignored: a log never ends a run.
    pub fn keep_in(&self, mut place: impl Write + Send + 'static) {
        let mut inner = locked(&self.0);
        let held = std::mem::take(&mut inner.held);
        let _ = place.write_all(&held).and_then(|()| place.flush());
        inner.written = held.len();
        inner.place = Some(Box::new(place));
    }

    pub(crate) fn add(&self, whose: &str, line: &str) {
        let line = format!("{whose}: {}\n", line.trim_end());
        let mut inner = locked(&self.0);
        let Inner { held, place, written } = &mut *inner;
        match place {
            Some(place) if *written <= MOST_WRITTEN => {
                *written += line.len();
                let full = *written > MOST_WRITTEN;
                let line = if full { "the log is full; what follows is lost\n" } else { &line };
                let _ = place.write_all(line.as_bytes()).and_then(|()| place.flush());
            }
            None if held.len() + line.len() <= MOST_HELD => held.extend(line.as_bytes()),
            _ => {}
        }
    }
}
