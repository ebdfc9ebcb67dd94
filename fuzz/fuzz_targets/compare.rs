//! Any two answers can be compared, in both directions and under every option.
#![no_main]

use hapo_verify::{Gold, MATH, MathOptions, OAT, Percent, Strictness, Variables};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|pair: (&str, &str)| {
    let (a, b) = pair;
    let wild = MathOptions {
        percent: Percent::V08,
        strict: Strictness::Truth,
        allow_set_relation: true,
        variables: Variables::ByPosition,
        ..MathOptions::default()
    };
    for (gold, answer) in [(a, b), (b, a)] {
        for (grader, options) in [(&MATH, &MathOptions::default()), (&MATH, &wild), (&OAT, &MathOptions::default())] {
            if let Ok(gold) = Gold::with_options(grader, gold, options) {
                let _ = gold.judge(&format!("\\boxed{{{answer}}}"));
            }
        }
    }
});
