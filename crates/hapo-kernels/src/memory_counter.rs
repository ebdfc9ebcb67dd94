//! How many bytes the buffers of a device take.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes of a device's buffers, and the most that they were.
#[derive(Clone, Debug, Default)]
pub struct MemoryCounter(Arc<Bytes>);

#[derive(Debug, Default)]
struct Bytes {
    now: AtomicUsize,
    peak: AtomicUsize,
}

impl MemoryCounter {
    /// Bytes that are held now.
    pub fn now(&self) -> usize {
        self.0.now.load(Ordering::Relaxed)
    }

    /// The most that were held at once.
    pub fn peak(&self) -> usize {
        self.0.peak.load(Ordering::Relaxed)
    }

    /// Counts the bytes of a buffer as long as the result lives.
    pub(crate) fn add(&self, bytes: usize) -> Counted {
        let now = self.0.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.0.peak.fetch_max(now, Ordering::Relaxed);
        Counted { tally: self.clone(), bytes }
    }
}

/// The bytes of one buffer.
#[derive(Debug)]
pub(crate) struct Counted {
    tally: MemoryCounter,
    bytes: usize,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.tally.0.now.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
