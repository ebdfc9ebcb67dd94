//! Any two answers can be compared, in both directions and under every option.
#![no_main]

use hapo_verify::{Gold, Grader, MATH, Math, MathOptions, OAT, Policy, Variables};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|pair: (&str, &str)| {
    let (a, b) = pair;
    let wild = Math::new(MathOptions {
        policy: Policy::Training,
        allow_set_relation: true,
        variables: Variables::ByPosition,
        ..MathOptions::DEFAULT
    });
    for (gold, answer) in [(a, b), (b, a)] {
        for grader in [&MATH as &dyn Grader, &wild, &OAT] {
            if let Ok(gold) = Gold::new(grader, gold) {
                let _ = gold.judge(&format!("\\boxed{{{answer}}}"));
            }
        }
    }
});
