//! Any completion has a verdict: the scanners neither panic nor skip text.
#![no_main]

use hapo_verify::{EXACT, FORMAT, Gold, MATH, OAT, grade};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static GOLD: LazyLock<Gold> = LazyLock::new(|| Gold::new(&MATH, "5").expect("a plain integer is a gold answer"));

fuzz_target!(|completion: &str| {
    let _ = GOLD.judge(completion);
    let _ = grade(&EXACT, "5", completion);
    let _ = grade(&FORMAT, "tags", completion);
    let _ = grade(&OAT, "5", completion);
});
