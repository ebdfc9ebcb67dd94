//! The writing of the built-in teacher: exact, or imperfect in one of two ways, for studies.
//!
//! Every trace ends in the true answer within [`RESPONSE_LIMIT`] tokens, so a grader admits it; only the way there is
//! imperfect. The price: no model wrote these traces, and real teachers err in more ways.

use super::{Family, Problem, RESPONSE_LIMIT, keyed_hash};
use hapo_core::{CounterRng, RngCounter, RngStream};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TeacherSteps {
    /// Every step once, all of them true.
    #[default]
    Exact,
    /// A step whose last digit is below 5 is written twice. At the hard levels only about 58 % of the problems can be
    /// finished within [`RESPONSE_LIMIT`] in this way, and only those have a trace: who follows it succeeds no oftener.
    Repeated,
    /// Two teachers: the exact one, and one that writes as the base model does.
    Two,
    /// In 30 % of the traces one step ends in a wrong digit; the answer is right all the same.
    Flawed,
}

/// Where the flaws are drawn, apart from documents and sets of problems.
const FLAWS: u64 = 3;
/// Share of [`TeacherSteps::Flawed`]'s traces that have a flaw.
const FLAWED_SHARE: f64 = 0.3;

impl TeacherSteps {
    /// The trace of a problem of that family, without an end token. `None` where there is none within the limit.
    pub fn trace(self, family: &Family, problem: &Problem, seed: u64) -> Option<String> {
        let exact = family.teacher(problem);
        let text = match self {
            Self::Exact | Self::Two => exact,
            Self::Repeated => repeated(&exact),
            Self::Flawed => flawed(&exact, problem, seed),
        };
        (tokens(&text) <= RESPONSE_LIMIT).then_some(text)
    }

    /// True if a response has this form. A flawed one looks exact.
    pub fn wrote(self, response: &str) -> bool {
        let steps: Vec<&str> = response.split(',').filter(|it| it.contains(':')).collect();
        match self {
            Self::Exact | Self::Two | Self::Flawed => !steps.is_empty(),
            Self::Repeated => steps.windows(2).any(|it| it[0] == it[1]),
        }
    }
}

/// Tokens of a solution of the built-in task, its end token included: characters, but for `\boxed{`, which is one.
fn tokens(solution: &str) -> usize {
    let boxes = solution.matches("\\boxed{").count();
    solution.chars().count() - boxes * ("\\boxed{".len() - 1) + 1
}

fn repeated(exact: &str) -> String {
    let again = |step: &&str| step.ends_with(['0', '1', '2', '3', '4']);
    let steps =
        exact.split(',').flat_map(|it| std::iter::repeat_n(it, 1 + usize::from(again(&it))));
    steps.collect::<Vec<_>>().join(",")
}

fn flawed(exact: &str, problem: &Problem, seed: u64) -> String {
    let prompt = keyed_hash("hapo built-in task: flaw", &problem.prompt);
    let counter = RngCounter { step: FLAWS, prompt, ..RngCounter::default() };
    let mut rng = CounterRng::new(seed, RngStream::Task, counter);
    if rng.uniform() >= FLAWED_SHARE {
        return exact.to_owned();
    }
    let mut steps: Vec<String> = exact.split(',').map(ToOwned::to_owned).collect();
    // The last part is the answer.
    let step = rng.below(steps.len() as u64 - 1) as usize;
    let digit = steps[step].pop().and_then(|it| it.to_digit(10)).expect("a step ends in a digit");
    let wrong = (u64::from(digit) + 1 + rng.below(9)) % 10;
    steps[step] += &wrong.to_string();
    steps.join(",")
}

#[cfg(test)]
mod tests {
    use tokenizers::Tokenizer;

    use super::*;
    use crate::task::{Split, find_family, problems};

    const HARD: [(&str, u32); 3] = [("multiply", 6), ("add", 5), ("linear", 4)];

    fn hard(count: usize) -> impl Iterator<Item = (&'static Family, Problem)> {
        HARD.into_iter().flat_map(move |(name, level)| {
            let family = find_family(name).unwrap();
            let all = problems(3, family, level, Split::Train, count).unwrap();
            all.into_iter().map(move |it| (family, it))
        })
    }

    fn in_box(text: &str) -> &str {
        text.rsplit_once("\\boxed{").unwrap().1.strip_suffix('}').unwrap()
    }

    #[test]
    fn every_trace_is_right_and_within_the_limit() {
        let tokenizer =
            Tokenizer::from_file(hapo_testing::repository("models/base/tokenizer.json")).unwrap();
        for (family, problem) in hard(200) {
            for steps in [TeacherSteps::Exact, TeacherSteps::Repeated, TeacherSteps::Flawed] {
                let Some(text) = steps.trace(family, &problem, 7) else {
                    assert_eq!(steps, TeacherSteps::Repeated, "{problem:?}");
                    continue;
                };
                assert_eq!(in_box(&text), problem.answer);
                let counted = tokenizer.encode_fast(text.clone() + "<|im_end|>", false).unwrap();
                assert_eq!(tokens(&text), counted.get_ids().len(), "{text}");
                assert!(tokens(&text) <= RESPONSE_LIMIT);
            }
        }
    }

    /// The ceiling: shares of 1,000 problems each that the repeated style can finish.
    #[test]
    fn the_repeated_style_finishes_little_more_than_half_of_the_hard_problems() {
        let share = |name: &str, level: u32| {
            let family = find_family(name).unwrap();
            let all = problems(0, family, level, Split::Train, 1000).unwrap();
            let fits = |it: &&Problem| TeacherSteps::Repeated.trace(family, it, 0).is_some();
            all.iter().filter(fits).count()
        };
        let shares = HARD.map(|(name, level)| share(name, level));
        assert_eq!(shares, [652, 526, 560]);
    }

    #[test]
    fn a_step_is_repeated_by_its_last_digit() {
        assert_eq!(
            repeated(r"9*6+0:54,2*6+5:17,8*6+1:49,\boxed{941}"),
            r"9*6+0:54,9*6+0:54,2*6+5:17,8*6+1:49,\boxed{941}"
        );
        let wrote = |text| TeacherSteps::Repeated.wrote(text);
        assert!(wrote(r"9*6+0:54,9*6+0:54,2*6+5:17,\boxed{1}"));
        assert!(!wrote(r"9*6+0:54,2*6+5:17,9*6+0:54,\boxed{1}"));
        assert!(TeacherSteps::Exact.wrote(r"9*6+0:54,\boxed{1}"));
        assert!(!TeacherSteps::Exact.wrote(r"4792482;\boxed{2842974}"));
    }

    /// 3,000 draws with probability .3: 900 ± 25.
    #[test]
    fn three_traces_in_ten_have_one_flaw_and_the_draws_are_the_problems_own() {
        let mut flawed = 0;
        for (family, problem) in hard(1000) {
            let exact = family.teacher(&problem);
            let text = TeacherSteps::Flawed.trace(family, &problem, 11).unwrap();
            assert_eq!(TeacherSteps::Flawed.trace(family, &problem, 11).unwrap(), text);
            let others = exact.chars().zip(text.chars()).filter(|(a, b)| a != b).count();
            assert!(others <= 1 && exact.len() == text.len(), "{exact} {text}");
            flawed += others;
        }
        assert_eq!(flawed, 921);
    }
}
