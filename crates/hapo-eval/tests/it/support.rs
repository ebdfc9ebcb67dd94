//! The scripted server and prompts for it.

#![allow(
    dead_code,
    unused_imports,
    reason = "every test binary uses its own part, so no expectation holds in all"
)]

use hapo_data::{Dataset, Example};
pub(crate) use hapo_testing::server::{Mood, Server};

/// Sums with gold answers.
pub(crate) fn prompts(count: usize) -> Dataset {
    let example = |i: usize| Example {
        id: format!("p{i}"),
        problem: format!("What is {i} + {}?", i + 7),
        answer: (2 * i + 7).to_string(),
        level: i.is_multiple_of(2).then(|| "1".to_owned()),
        ..Example::default()
    };
    Dataset { examples: (0..count).map(example).collect() }
}
