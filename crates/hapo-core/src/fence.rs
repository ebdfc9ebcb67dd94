//! A fence around a library that may panic on damaged files. It asserts what its format promises; a damaged file breaks
//! the promise. A panic inside it becomes an error that names the file. No code of ours runs inside the fence, and what
//! panicked is dropped or unchanged, so no half-changed state is seen.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::words::panic_message;

thread_local! {
    static FENCED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `read`; a panic becomes its message, and nothing is printed.
pub fn fenced<T>(read: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    // The default hook prints every panic, also one that is caught; inside the fence it is silent.
    HOOK.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |it| {
            if !FENCED.get() {
                others(it);
            }
        }));
    });
    FENCED.set(true);
    let done = catch_unwind(AssertUnwindSafe(read));
    FENCED.set(false);
    done.map_err(|it| format!("the file contradicts itself ({})", panic_message(&*it)))
}
