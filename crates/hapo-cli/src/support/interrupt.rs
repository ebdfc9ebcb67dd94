//! Ctrl-C and SIGTERM: the first asks for a save, the second ends the program.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::Result;

/// The flag that the first signal sets.
pub(crate) fn flag() -> Result<Arc<AtomicBool>> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    if let Some(it) = FLAG.get() {
        return Ok(it.clone());
    }
    let flag = Arc::new(AtomicBool::new(false));
    let seen = flag.clone();
    ctrlc::set_handler(move || {
        if seen.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        eprintln!("\nstopping after this step, with a checkpoint; once more to stop at once");
    })?;
    Ok(FLAG.get_or_init(|| flag).clone())
}
