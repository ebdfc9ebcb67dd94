//! Any text can be asked to be a gold, and equals itself where it is one and says so as text.
#![no_main]

use hapo_verify::{Gold, MATH, OAT};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for grader in [&MATH, &OAT] {
        if let Ok(gold) = Gold::new(grader, text) {
            let _ = gold.judge(&format!("\\boxed{{{text}}}"));
        }
    }
});
