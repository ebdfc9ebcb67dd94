//! Any text can be given as a gold answer. One that can be read is compared with itself.
#![no_main]

use hapo_verify::{Gold, Grader, MATH, OAT};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for grader in [&MATH as &dyn Grader, &OAT] {
        if let Ok(gold) = Gold::new(grader, text) {
            let _ = gold.judge(&format!("\\boxed{{{text}}}"));
        }
    }
});
