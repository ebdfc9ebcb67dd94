//! The number and the times of requests in flight.
//!
//! All requests of a client pass here. On a 429 the limit of requests in flight is halved and all wait, as long as the
//! server says; every answer raises the limit a little, up to the given concurrency (additive increase, multiplicative
//! decrease).

use std::{sync::Mutex, time::Duration};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

#[derive(Debug)]
pub(crate) struct Pace {
    concurrency: usize,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    in_flight: usize,
    /// How many may be in flight; its whole part counts.
    allowed: f64,
    not_before: Instant,
    /// Grows with every slowing down, so that a burst of refusals slows down once.
    era: u64,
    refusals: u32,
}

pub(crate) struct Permit<'a> {
    pace: &'a Pace,
    era: u64,
}

impl Pace {
    pub(crate) fn new(concurrency: usize) -> Self {
        Self {
            concurrency,
            state: Mutex::new(State {
                in_flight: 0,
                allowed: concurrency as f64,
                not_before: Instant::now(),
                era: 0,
                refusals: 0,
            }),
            changed: Notify::new(),
        }
    }

    pub(crate) async fn enter(&self) -> Permit<'_> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the state is read, so that no change in between is missed.
            changed.as_mut().enable();
            let wait = {
                let mut state = self.lock();
                let early = state.not_before > Instant::now();
                if !early && state.in_flight < (state.allowed as usize).max(1) {
                    state.in_flight += 1;
                    return Permit { pace: self, era: state.era };
                }
                early.then_some(state.not_before)
            };
            match wait {
                Some(until) => sleep_until(until).await,
                None => changed.await,
            }
        }
    }

    pub(crate) fn hold(&self, wait: Duration) {
        let mut state = self.lock();
        state.not_before = state.not_before.max(Instant::now() + wait);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the lock")
    }
}

impl Permit<'_> {
    pub(crate) fn answered(&self) {
        let mut state = self.pace.lock();
        state.refusals = 0;
        state.allowed = (state.allowed + 1.0 / state.allowed).min(self.pace.concurrency as f64);
    }

    /// The server said that it is too much. `wait` gives the pause for the number of refusals in a row before this one; it
    /// is returned for the first refusal of a burst.
    pub(crate) fn refused(&self, wait: impl FnOnce(u32) -> Duration) -> Option<Duration> {
        let mut state = self.pace.lock();
        let wait = wait(state.refusals);
        let is_first = state.era == self.era;
        if is_first {
            state.era += 1;
            state.refusals += 1;
            state.allowed = (state.allowed / 2.0).max(1.0);
        }
        state.not_before = state.not_before.max(Instant::now() + wait);
        is_first.then_some(wait)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.pace.lock().in_flight -= 1;
        self.pace.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(pace: &Pace) -> f64 {
        pace.lock().allowed
    }

    #[tokio::test]
    async fn a_burst_of_refusals_halves_once_and_answers_bring_it_back() {
        let pace = Pace::new(8);
        let burst = [pace.enter().await, pace.enter().await, pace.enter().await];
        for it in &burst {
            it.refused(|_| Duration::ZERO);
        }
        assert_eq!((allowed(&pace), pace.lock().refusals), (4.0, 1));
        drop(burst);
        let late = pace.enter().await;
        late.refused(|before| {
            assert_eq!(before, 1);
            Duration::ZERO
        });
        assert_eq!(allowed(&pace), 2.0);
        late.answered();
        assert_eq!((allowed(&pace), pace.lock().refusals), (2.5, 0));
        for _ in 0..100 {
            late.answered();
        }
        assert_eq!(allowed(&pace), 8.0);
    }

    #[tokio::test]
    async fn no_more_than_allowed_are_in_flight() {
        let pace = Pace::new(1);
        let first = pace.enter().await;
        let mut second = Box::pin(pace.enter());
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        drop(first);
        drop(second.await);
        assert_eq!(pace.lock().in_flight, 0);
    }
}
