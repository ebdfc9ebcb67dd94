//! Times by kernel, product and copy.
//!
//! Purpose: with `HAPO_CUDA_TRACE=1` every operation is waited for, so a time is an operation's with its launch. With
//! `events` the GPU notes when each begins and ends, and work stays queued: what is between two waits is a queue, and
//! of each kind of queue the table has the host's time, the GPU's from the first operation to the last, and the sum of
//! the operations. A GPU that waits for the host would hide the second; so a queue is held back until the host is
//! ahead. Price: either makes a command slower; two events cost the host about two microseconds an operation.

use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{collections::BTreeMap, ffi::c_void, fmt::Write};

use cudarc::driver::result::{self as cuda, DriverError};
use cudarc::driver::sys;

use crate::launch::lock;

/// Set to 1 or to `events` to have a table of times.
const VARIABLE: &str = "HAPO_CUDA_TRACE";

/// How long a queue is held back, so that the host gets ahead of the GPU.
const HEAD_START: Duration = Duration::from_millis(4);

/// Queues are held back after one of at least so many operations: uploads are not.
const LONG: usize = 64;

const KINDS: usize = 6;

#[derive(Clone, Copy, Debug, Default)]
struct Times {
    count: u64,
    time: Duration,
}

impl Times {
    fn add(&mut self, time: Duration) {
        self.count += 1;
        self.time += time;
    }

    fn ms_each(self) -> f64 {
        self.time.as_secs_f64() * 1e3 / self.count.max(1) as f64
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Queues {
    host: Times,
    gpu: Times,
    busy: Times,
}

type Pair = [sys::CUevent; 2];

#[derive(Debug)]
pub(crate) struct Begun {
    since: Instant,
    events: Option<Pair>,
}

#[derive(Debug, Default)]
struct Queue {
    begun: Vec<(String, Pair)>,
    since: Option<Instant>,
    is_held: bool,
}

#[derive(Debug, Default)]
struct State {
    times: BTreeMap<String, Times>,
    queue: Queue,
    queues: BTreeMap<usize, Queues>,
    unused: Vec<Pair>,
}

#[derive(Debug)]
pub(crate) struct Trace {
    has_events: bool,
    state: Mutex<State>,
}

// SAFETY: events are used behind the lock, with their context current.
unsafe impl Send for Trace {}
// SAFETY: as above.
unsafe impl Sync for Trace {}

unsafe extern "C" fn hold(_: *mut c_void) {
    std::thread::sleep(HEAD_START);
}

impl Trace {
    pub(crate) fn asked() -> Option<Self> {
        let asked = std::env::var(VARIABLE).ok().filter(|it| !it.is_empty() && it != "0")?;
        Some(Self { has_events: asked == "events", state: Mutex::default() })
    }

    /// An operation begins on a stream.
    ///
    /// # Safety
    /// The stream's context is current, and stays until the operation has [ended](Self::end).
    pub(crate) unsafe fn begin(&self, stream: sys::CUstream) -> Result<Begun, DriverError> {
        let since = Instant::now();
        if !self.has_events {
            return Ok(Begun { since, events: None });
        }
        let known = {
            let mut state = lock(&self.state);
            let queue = &mut state.queue;
            if queue.since.is_none() && std::mem::take(&mut queue.is_held) {
                // SAFETY: as the caller promises; the function takes nothing.
                unsafe { cuda::stream::launch_host_function(stream, hold, std::ptr::null_mut()) }?;
            }
            queue.since.get_or_insert(since);
            state.unused.pop()
        };
        let event = || cuda::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let events = match known {
            Some(it) => it,
            None => [event()?, event()?],
        };
        // SAFETY: the event was made in this context.
        unsafe { cuda::event::record(events[0], stream) }?;
        Ok(Begun { since, events: Some(events) })
    }

    /// All of the operation is on the stream.
    ///
    /// # Safety
    /// As in [`Self::begin`].
    pub(crate) unsafe fn end(
        &self,
        stream: sys::CUstream,
        name: String,
        begun: &Begun,
    ) -> Result<(), DriverError> {
        if let Some(events) = begun.events {
            // SAFETY: the event was made in this context.
            unsafe { cuda::event::record(events[1], stream) }?;
            lock(&self.state).queue.begun.push((name, events));
            return Ok(());
        }
        // SAFETY: as the caller promises.
        unsafe { cuda::stream::synchronize(stream) }?;
        lock(&self.state).times.entry(name).or_default().add(begun.since.elapsed());
        Ok(())
    }

    /// Waits for all work by `wait`.
    ///
    /// # Safety
    /// As in [`Self::begin`].
    pub(crate) unsafe fn waited(
        &self,
        wait: impl FnOnce() -> Result<(), DriverError>,
    ) -> Result<(), DriverError> {
        let host = lock(&self.state).queue.since.take().map(|it| it.elapsed());
        wait()?;
        let mut state = lock(&self.state);
        let begun = std::mem::take(&mut state.queue.begun);
        let (Some(host), Some(first), Some(last)) = (host, begun.first(), begun.last()) else {
            return Ok(());
        };
        let between = |from, to| {
            // SAFETY: both events were recorded, and are done.
            let ms = unsafe { cuda::event::elapsed(from, to) }?;
            Ok(Duration::from_secs_f32(ms.max(0.0) / 1e3))
        };
        let gpu = between(first.1[0], last.1[1])?;
        let (length, mut busy) = (begun.len(), Duration::ZERO);
        for (name, [before, after]) in begun {
            let time = between(before, after)?;
            busy += time;
            state.times.entry(name).or_default().add(time);
            state.unused.push([before, after]);
        }
        state.queue.is_held = length >= LONG;
        let queues = state.queues.entry(length).or_default();
        queues.host.add(host);
        queues.gpu.add(gpu);
        queues.busy.add(busy);
        Ok(())
    }

    /// One line for each name, the longest time first; then one for each kind of queue.
    pub(crate) fn table(&self) -> String {
        let state = lock(&self.state);
        let mut rows: Vec<(&String, &Times)> = state.times.iter().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.1.time));
        let all: Duration = rows.iter().map(|row| row.1.time).sum();
        let mut text = format!("{:>10} {:>8} {:>10}  operation\n", "ms", "count", "us each");
        for (name, times) in rows {
            let (each, ms) = (times.ms_each() * 1e3, times.time.as_secs_f64() * 1e3);
            let _ = writeln!(text, "{ms:>10.3} {:>8} {each:>10.1}  {name}", times.count);
        }
        let how = if self.has_events { "by events" } else { "each operation waited for" };
        let _ = writeln!(text, "{:>10.3} in all, {how}", all.as_secs_f64() * 1e3);
        let mut queues: Vec<(&usize, &Queues)> = state.queues.iter().collect();
        queues.sort_by_key(|(_, of)| std::cmp::Reverse(of.gpu.time));
        for (operations, Queues { host, gpu, busy }) in queues.into_iter().take(KINDS) {
            let (n, [host, gpu, busy]) = (gpu.count, [host, gpu, busy].map(|it| it.ms_each()));
            let _ = writeln!(
                text,
                "{n} queues of {operations} operations: host {host:.3} ms, GPU {gpu:.3}, of it in operations {busy:.3}"
            );
        }
        text
    }

    /// Gives the events back.
    ///
    /// # Safety
    /// The context is current, and no work runs.
    pub(crate) unsafe fn close(&self) {
        let mut state = lock(&self.state);
        let begun = std::mem::take(&mut state.queue.begun);
        for event in state.unused.drain(..).chain(begun.into_iter().map(|it| it.1)).flatten() {
            // SAFETY: made by this trace and given back once.
            let _ = unsafe { cuda::event::destroy(event) };
        }
    }
}
