//! Ctrl-C and SIGTERM: the first asks for a save, the second ends the program. Where there is nothing to save yet,
//! the first ends it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::progress::tell;

/// True while a run loads: nothing of it would be saved.
static LOADING: AtomicBool = AtomicBool::new(false);

pub(crate) fn set_loading(loading: bool) {
    LOADING.store(loading, Ordering::Relaxed);
}

/// Takes the signals that batch systems send before the end as SIGTERM. A write beyond `ulimit -f` fails, by name.
#[cfg(unix)]
pub fn settle_signals() {
    extern "C" fn settle(signal: libc::c_int) {
        if signal != libc::SIGXFSZ {
            // SAFETY: a system call that is allowed in a handler.
            unsafe { libc::raise(libc::SIGTERM) };
        }
    }
    let settle = settle as extern "C" fn(libc::c_int) as libc::sighandler_t;
    for it in [libc::SIGUSR1, libc::SIGXCPU, libc::SIGXFSZ] {
        // SAFETY: the handler does nothing but the call above.
        unsafe { libc::signal(it, settle) };
    }
}

/// The flag that the first signal sets.
pub fn flag() -> anyhow::Result<Arc<AtomicBool>> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    if let Some(it) = FLAG.get() {
        return Ok(it.clone());
    }
    let flag = Arc::new(AtomicBool::new(false));
    let seen = flag.clone();
    ctrlc::set_handler(move || {
        if LOADING.load(Ordering::Relaxed) {
            tell("\nstopped before the first step; nothing is lost");
            std::process::exit(130);
        }
        if seen.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        tell("\nstopping after this step, with a checkpoint; once more to stop at once");
    })?;
    Ok(FLAG.get_or_init(|| flag).clone())
}
