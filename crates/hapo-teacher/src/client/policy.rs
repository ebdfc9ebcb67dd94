//! How long a client waits and how often it tries again.

use std::time::Duration;

/// How long a client waits and how often it tries again.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Most requests in flight.
    pub concurrency: usize,
    /// Longest time of one request, its answer included.
    pub timeout: Duration,
    /// Retries of a question after faults. A 429 does not count here; ten times as many are tolerated.
    pub retries: u32,
    /// The wait after the first fault; it doubles with each, up to a minute, and varies by half either way.
    pub first_wait: Duration,
    /// Longest wait that a server may ask for.
    pub longest_wait: Duration,
    /// Longest answer that is read, in bytes.
    pub response_limit: usize,
    /// Seed of the variation of waits.
    pub seed: u64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            concurrency: 16,
            timeout: Duration::from_mins(10),
            retries: 6,
            first_wait: Duration::from_secs(1),
            longest_wait: Duration::from_mins(10),
            response_limit: 16 << 20,
            seed: 0,
        }
    }
}
