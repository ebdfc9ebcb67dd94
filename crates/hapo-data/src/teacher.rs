//! Which teacher's solution may be injected.
//!
//! Purpose: decided once, when the data are loaded (D9): a solution is admitted when the verifier calls it correct and
//! when it fits, with its end token, into the response limit. It is never cut. A prompt without an admissible solution
//! stays in the run and is never injected. Price: every solution is tokenised and graded before the first step.

use crate::dataset::Dataset;
use hapo_core::{TeacherTrajectory, TokenId, Verdict, admit_graded_teacher, admit_teacher};

/// The solutions that a run may inject, and counts of the others.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Admission {
    /// One entry per example of the dataset: its admitted solutions in their order, end tokens included (D10).
    pub teachers: Vec<Vec<TeacherTrajectory>>,
    /// How many examples have no solution in the data at all.
    pub without_teacher: usize,
    /// How many solutions stand behind the last that is wanted, in all examples; they are not looked at.
    pub unused: usize,
    pub refused: Vec<Refused>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    pub example: usize,
    /// Index of the solution in [`Example::teachers`](crate::Example::teachers).
    pub teacher: usize,
    pub why: String,
}

#[derive(Debug, Clone, Copy)]
pub struct AdmissionRule<'a> {
    /// Smallest reward that is admitted (D28).
    pub success_at: f64,
    /// Tokens that end a response; the first is appended to a solution (D10).
    pub stop: &'a [TokenId],
    /// In tokens, the end token counted.
    pub response_limit: usize,
    /// Most solutions of an example.
    pub most: usize,
}

/// Takes, for every example, its first solutions whose reward is a success and which fit (D9, D28), at most `rule.most`.
///
/// `grade` gives the reward and the verdict of a solution by the index of its example and its own; `encode` its tokens.
/// The first error of either ends it.
pub fn admit<E>(
    dataset: &Dataset,
    rule: AdmissionRule<'_>,
    mut grade: impl FnMut(usize, usize) -> Result<(f64, Verdict), E>,
    encode: impl Fn(&str) -> Result<Vec<TokenId>, E>,
) -> Result<Admission, E> {
    let AdmissionRule { success_at, stop, response_limit, most } = rule;
    let mut admission = Admission::default();
    for (example, row) in dataset.examples.iter().enumerate() {
        admission.without_teacher += usize::from(row.teachers.is_empty());
        let mut admitted = Vec::new();
        for (teacher, solution) in row.teachers.iter().enumerate() {
            if admitted.len() == most {
                admission.unused += row.teachers.len() - teacher;
                break;
            }
            let (reward, verdict) = grade(example, teacher)?;
            // A verdict says more than the reward that follows from it.
            let follows = reward == verdict.reward() && !verdict.is_correct();
            let trajectory = if follows && reward < success_at {
                admit_teacher(Vec::new(), stop, &verdict, response_limit)
            } else {
                admit_graded_teacher(encode(solution)?, stop, reward, success_at, response_limit)
            };
            match trajectory {
                Ok(trajectory) => admitted.push(trajectory),
                Err(refusal) => {
                    let why = refusal.to_string();
                    admission.refused.push(Refused { example, teacher, why });
                }
            }
        }
        admission.teachers.push(admitted);
    }
    Ok(admission)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::Example;

    fn example(answer: &str, teachers: &[&str]) -> Example {
        Example {
            answer: answer.to_owned(),
            teachers: teachers.iter().map(ToString::to_string).collect(),
            ..Example::default()
        }
    }

    #[test]
    fn d9_the_first_correct_solutions_that_fit_are_taken_whole() {
        let dataset = Dataset {
            examples: vec![
                example("2", &["=3", "long way =2", "1+1=2", "=2"]),
                example("5", &[]),
                example("7", &["=8"]),
                example("9", &["a very long way =9"]),
                example("4", &["123456=4"]),
            ],
        };
        let verdict = |example: usize, teacher: usize| {
            let Example { answer, teachers, .. } = &dataset.examples[example];
            let solution = &teachers[teacher];
            let verdict = Verdict::of::<&str>(Ok(solution.ends_with(&format!("={answer}"))));
            Ok::<_, std::convert::Infallible>((verdict.reward(), verdict))
        };
        let encode = |solution: &str| Ok(solution.bytes().map(u32::from).collect());
        let admitted = |response_limit, most| {
            let rule = AdmissionRule { success_at: 1.0, stop: &[0], response_limit, most };
            let Ok(admission) = admit(&dataset, rule, verdict, encode);
            let text = |it: &TeacherTrajectory| {
                String::from_utf8(it.tokens().iter().map(|it| *it as u8).collect()).unwrap()
            };
            let of_example = |all: &Vec<_>| all.iter().map(text).collect::<Vec<_>>();
            (admission.teachers.iter().map(of_example).collect::<Vec<_>>(), admission)
        };
        // A limit of 9 takes 8 characters and the end token.
        let (tokens, admission) = admitted(9, 1);
        assert_eq!(tokens, [vec!["1+1=2\0"], vec![], vec![], vec![], vec!["123456=4\0"]]);
        assert_eq!((admission.without_teacher, admission.unused), (1, 1));
        let (tokens, all) = admitted(9, usize::MAX);
        assert_eq!(tokens[0], ["1+1=2\0", "=2\0"]);
        assert_eq!((all.unused, &all.refused), (0, &admission.refused));
        let refused: Vec<_> =
            admission.refused.into_iter().map(|it| (it.example, it.teacher, it.why)).collect();
        let wrong =
            "teacher trajectory is not verified: expected a correct answer, got a wrong one"
                .to_owned();
        let too_long = |tokens| {
            format!(
                "teacher trajectory is too long: expected at most 9 tokens with the end token, got {tokens}"
            )
        };
        assert_eq!(
            refused,
            [(0, 0, wrong.clone()), (0, 1, too_long(12)), (2, 0, wrong), (3, 0, too_long(19))]
        );
        assert!(admitted(8, 1).0[4].is_empty());
    }
}
