//! Which teacher's solution may be injected.
//!
//! Purpose: decided once, when the data are loaded (D9): a solution is admitted when the verifier
//! calls it correct and when it fits, with its end token, into the response limit. It is never cut.
//! A prompt without an admissible solution stays in the run and is never injected.
//!
//! Price: every solution is tokenised and graded before the first step.

use crate::Dataset;

/// The admitted solution of one prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// Which of [`Example::teachers`](crate::Example::teachers) it is.
    pub teacher: usize,
    /// Its tokens, with the end token that the template ends a turn with (D10).
    pub tokens: Vec<u32>,
}

/// The solutions a run may inject, and what became of the others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Admission {
    /// One entry per example of the dataset.
    pub teachers: Vec<Option<Admitted>>,
    /// Examples that have no solution at all.
    pub without_teacher: usize,
    /// Solutions that the verifier does not call correct, as (example, teacher).
    pub not_correct: Vec<(usize, usize)>,
    /// Solutions that are correct but longer than the limit, as (example, teacher).
    pub too_long: Vec<(usize, usize)>,
}

/// Takes, for every example, its first solution that is correct and fits (D9).
///
/// `is_correct` is given the solution and the gold answer; `encode` gives the tokens of a solution
/// **with** its end token; `response_limit` is in tokens.
pub fn admit(
    dataset: &Dataset,
    response_limit: usize,
    is_correct: impl Fn(&str, &str) -> bool,
    encode: impl Fn(&str) -> Vec<u32>,
) -> Admission {
    let mut admission = Admission::default();
    for (number, example) in dataset.examples.iter().enumerate() {
        let mut admitted = None;
        admission.without_teacher += usize::from(example.teachers.is_empty());
        for (teacher, solution) in example.teachers.iter().enumerate() {
            if !is_correct(solution, &example.answer) {
                admission.not_correct.push((number, teacher));
                continue;
            }
            let tokens = encode(solution);
            if tokens.len() > response_limit {
                admission.too_long.push((number, teacher));
                continue;
            }
            admitted = Some(Admitted { teacher, tokens });
            break;
        }
        admission.teachers.push(admitted);
    }
    admission
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Example;

    fn example(answer: &str, teachers: &[&str]) -> Example {
        Example {
            answer: answer.to_owned(),
            teachers: teachers.iter().map(ToString::to_string).collect(),
            ..Example::default()
        }
    }

    #[test]
    fn d9_first_correct_solution_that_fits_is_taken_whole() {
        let dataset = Dataset {
            examples: vec![
                example("2", &["=3", "long way =2", "1+1=2", "=2"]),
                example("5", &[]),
                example("7", &["=8"]),
                example("9", &["a very long way =9"]),
                example("4", &["123456=4"]),
            ],
        };
        let correct = |solution: &str, answer: &str| solution.ends_with(&format!("={answer}"));
        let encode = |solution: &str| solution.bytes().map(u32::from).chain([0]).collect::<Vec<_>>();
        // A limit of 9 takes 8 characters and the end token.
        let admission = admit(&dataset, 9, correct, encode);
        let chosen: Vec<_> = admission.teachers.iter().map(|it| it.as_ref().map(|it| it.teacher)).collect();
        assert_eq!(chosen, [Some(2), None, None, None, Some(0)]);
        assert_eq!(admission.teachers[0].as_ref().unwrap().tokens, [49, 43, 49, 61, 50, 0]);
        assert_eq!(admission.teachers[4].as_ref().unwrap().tokens.len(), 9);
        assert_eq!(admission.without_teacher, 1);
        assert_eq!(admission.not_correct, [(0, 0), (2, 0)]);
        assert_eq!(admission.too_long, [(0, 1), (3, 0)]);
        assert_eq!(admit(&dataset, 8, correct, encode).teachers[4], None);
    }
}
