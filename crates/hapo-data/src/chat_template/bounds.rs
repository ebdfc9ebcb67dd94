//! Limits of a rendering: its stack, its time and its memory.
//!
//! Purpose: who chooses a model runs its template, and a careless template must end all the same. minijinja counts
//! instructions, not what each of them makes: forty doublings of a text are few instructions, and a sum of 100,000
//! terms is a tree as deep. So a rendering has a thread with a stack for the deepest tree, and the caller gives up on
//! it after [`TIME`] or [`MEMORY`]. Price: some 30 µs a rendering. A thread that is given up on runs until the program
//! ends, which should be soon.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

pub const TIME: Duration = Duration::from_secs(10);
/// Most bytes that one rendering may add to the program's memory, on systems that report it.
pub const MEMORY: u64 = 1 << 30;
/// Room for the deepest tree or value that a text of the longest length can make.
const STACK: usize = 512 << 20;

/// Does the work on a thread of its own, and gives up on it when it takes too much.
pub(super) fn bounded<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    const LOOKS: Duration = Duration::from_millis(5);
    let (done, result) = mpsc::channel();
    let (before, started) = (resident().unwrap_or(0), Instant::now());
    let thread = std::thread::Builder::new()
        .stack_size(STACK)
        // Nobody listens any more when this took too long.
        .spawn(move || drop(done.send(work())))
        .map_err(|error| format!("no thread to render it: {error}"))?;
    let answered = loop {
        match result.recv_timeout(LOOKS) {
            Ok(answer) => break Ok(answer),
            Err(RecvTimeoutError::Disconnected) => {
                break Err("the template engine fails on it".to_owned());
            }
            Err(RecvTimeoutError::Timeout) if started.elapsed() > TIME => {
                return Err(format!("it does not end within {} s", TIME.as_secs()));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if resident().is_some_and(|bytes| bytes > before + MEMORY) {
            return Err(format!("it takes more than {} MiB", MEMORY >> 20));
        }
    };
    // A thread that is let go while it ends can crash the program: `pthread_detach` of glibc 2.36 reads its memory, which
    // its end has unmapped. A panic of the thread is the failure above.
    let _ = thread.join();
    answered
}

/// Memory of the program, in bytes.
fn resident() -> Option<u64> {
    const PAGE: u64 = 4096;
    // On EIO the limit of time alone ends a template.
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(pages.split(' ').nth(1)?.parse::<u64>().ok()? * PAGE)
}
