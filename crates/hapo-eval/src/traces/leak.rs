//! Traces that let on that the answer was told.
//!
//! A policy that imitates "this matches the given answer" learns to appeal to an answer that it will not have. The
//! price of a list of phrases is that it knows only these.

/// Phrases that reveal a leak, in lower case and single spaces.
pub const LEAKS: &[&str] = &[
    "the given answer",
    "the provided answer",
    "the stated answer",
    "the expected answer",
    "the target answer",
    "the desired answer",
    "the required answer",
    "the known answer",
    "the supplied answer",
    "the reference answer",
    "the answer given",
    "the answer provided",
    "the answer we were given",
    "the answer is given",
    "the answer you gave",
    "the answer you provided",
    "the answer must be exactly",
    "boxed{} must be exactly",
    "as provided",
    "answer as given",
    "told the answer",
    "told that the answer",
    "given the answer",
    "given that the answer",
    "know the answer is",
    "know that the answer is",
    "the problem says the answer",
    "the prompt says",
    "leads to this answer",
    "supposed to be the answer",
    "matches the answer",
    "match the answer",
];

/// The first phrase of [`LEAKS`] in a trace that its problem does not hold itself. Case and white space do not matter.
pub fn leak(trace: &str, problem: &str) -> Option<&'static str> {
    let (trace, problem) = (plain(trace), plain(problem));
    LEAKS.iter().find(|it| trace.contains(**it) && !problem.contains(**it)).copied()
}

fn plain(text: &str) -> String {
    let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases_are_found_whatever_their_case_and_breaks() {
        let check = |trace: &str, problem: &str, expected: Option<&str>| {
            assert_eq!(leak(trace, problem), expected, "{trace}");
        };
        check("so it is 4, The Given\n answer.", "2+2?", Some("the given answer"));
        check("We are told the answer is 4.", "2+2?", Some("told the answer"));
        check("As provided, \\boxed{4}", "2+2?", Some("as provided"));
        check("The answer is \\boxed{4}.", "2+2?", None);
        check("Given the equation, x = 4", "2+2?", None);
        check("By the given answer key, 4", "Use the given answer key to find 2+2", None);
        check("", "", None);
    }

    #[test]
    fn phrases_are_written_as_they_are_compared() {
        for it in LEAKS {
            assert_eq!(*it, plain(it));
        }
    }
}
