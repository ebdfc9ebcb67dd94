//! From completions to verdicts and votes.

use hapo_core::{Refusal, Rollout, Truncated, Verdict};
use hapo_data::{Dataset, Example};
use hapo_verify::{Completion, Gold, GoldError, Grader, Judgement, Problem, grader, in_order};
use serde::{Deserialize, Serialize};

use crate::statistics::{Estimate, estimate};

/// Why a completion that was cut off gives no answer.
pub const CUT_OFF: &str = "cut off before its end token";

pub fn gold_of(grader: &dyn Grader, example: &Example) -> Result<Gold, GoldError> {
    let golds: Vec<&str> = example.golds().collect();
    let row = example.fields.as_deref();
    Gold::of(grader, &Problem { text: &example.problem, golds: &golds, row })
}

/// What a gold answer is, in the plural, where it is no mathematics: a date, an object in JSON, or words.
pub fn beside_mathematics(answer: &str) -> Option<&'static str> {
    let answer = answer.trim();
    let is_json = answer.starts_with(['{', '[']);
    let is_object = is_json
        && serde_json::from_str(answer).is_ok_and(|json: serde_json::Value| match json {
            serde_json::Value::Array(items) => items.iter().any(|it| !it.is_number()),
            json => json.is_object(),
        });
    let words = answer.split(|it: char| !it.is_alphanumeric()).filter(|it| !it.is_empty());
    let words: Vec<&str> = words.collect();
    let is_number = |word: &&str| word.bytes().all(|it| it.is_ascii_digit());
    let is_year = |word: &&str| word.len() == 4 && is_number(word);
    // Months by their first letters, in English.
    let is_month = |word: &&str| {
        const MONTHS: &str = "jan feb mar apr may jun jul aug sep oct nov dec";
        word.get(..3).is_some_and(|it| MONTHS.contains(&*it.to_lowercase()))
    };
    let separators = answer.chars().filter(|it| !it.is_alphanumeric());
    let is_joined = ['-', '/', '.'].iter().any(|it| separators.clone().eq([*it, *it]));
    let is_date = words.len() == 3
        && words.iter().any(is_year)
        && (is_joined && words.iter().all(is_number) || words.iter().any(is_month));
    let is_text = |word: &&str| word.len() >= 4 && word.chars().all(char::is_alphabetic);
    let is_plain = !answer.contains(['\\', '$', '=', '^', '_', '+', '*']);
    match is_plain && words.iter().any(is_text) && !words.iter().any(is_number) {
        _ if is_object => Some("objects"),
        _ if is_date => Some("dates"),
        true => Some("words"),
        false => None,
    }
}

/// The words of a number of things, where the grader takes any others for the same: `2.5 lb cheese`.
fn uncompared_words<'a>(by: &str, answer: &'a str) -> Option<Vec<&'a str>> {
    let has_number = answer.contains(|it: char| it.is_ascii_digit());
    let is_plain = !answer.contains(['\\', '$', '=', '^', '_', '+', '*', '(']);
    let words = answer.split(|it: char| !it.is_alphabetic());
    let words: Vec<&str> = words.filter(|it| it.len() >= 3).collect();
    let last = words.last().filter(|_| has_number && is_plain)?;
    let other = format!("\\boxed{{{}}}", answer.replace(last, "zebra"));
    let gold = Gold::new(grader(by).ok()?, answer).ok()?;
    gold.judge(&other).verdict.is_correct().then_some(words)
}

/// True for a text with signs or digits that the grader cannot read, reads as words, or takes for a product of letters, so
/// that the letters of its words in any order are as right: `tail -n 6 a.csv`, `du -sh /srv/www`, `H2SO4`, `XIV`.
pub fn is_literal(by: &str, answer: &str) -> bool {
    let letters: Vec<char> = answer.trim().chars().collect();
    let runs = letters.chunk_by(|a, b| a.is_alphabetic() == b.is_alphabetic());
    let has_word = runs.clone().any(|it| it[0].is_alphabetic() && it.len() >= 3);
    let is_symbol = letters.iter().all(|it| it.is_alphanumeric())
        && letters.iter().filter(|it| it.is_uppercase()).count() >= 2;
    let is_known = answer.contains('\\') || beside_mathematics(answer).is_some();
    if is_known || !(has_word || is_symbol) || uncompared_words(by, answer).is_some() {
        return false;
    }
    let turned = |it: &[char]| -> String {
        let is_turned = it[0].is_alphabetic() && (it.len() >= 3 || !has_word);
        if is_turned { it.iter().rev().collect() } else { it.iter().collect() }
    };
    let turned: String = runs.map(turned).collect();
    let gold = grader(by).map(|it| Gold::new(it, answer));
    let is_right = |it: Gold| {
        let judged = it.judge(&format!("\\boxed{{{turned}}}"));
        judged.gold_read.starts_with("the text") || judged.verdict.is_correct()
    };
    gold.is_ok_and(|it| it.map_or(true, |it| turned != answer.trim() && is_right(it)))
}

/// True if at least half of the gold answers are numbers of things that the grader does not compare, and not all of the
/// same.
pub fn are_numbers_with_words<'a>(by: &str, answers: impl Iterator<Item = &'a str>) -> bool {
    let words: Vec<_> = answers.take(1000).map(|it| uncompared_words(by, it)).collect();
    let named: Vec<_> = words.iter().flatten().collect();
    2 * named.len() >= words.len() && named.windows(2).any(|it| it[0] != it[1])
}

/// A warning where a grader of mathematics meets gold answers that are none.
pub fn unsuited<'a>(
    grader: &str,
    answers: impl Iterator<Item = &'a str> + Clone,
) -> Option<String> {
    // Those that read an answer's words compare them as words.
    let reads_words = ["training", "benchmark"].contains(&grader);
    if !reads_words && !["math", "oat"].contains(&grader) {
        return None;
    }
    if are_numbers_with_words(grader, answers.clone()) {
        return Some(format!(
            "most gold answers are numbers of various things, and `{grader}` does not compare the things; `exact` compares texts"
        ));
    }
    let found = answers.clone().filter_map(|answer| Some((beside_mathematics(answer)?, answer)));
    let found: Vec<_> = found.filter(|it| it.0 != "words" || !reads_words).collect();
    let Some((kind, first)) = found.first() else {
        let sample: Vec<&str> = answers.take(1000).collect();
        let literal = sample.iter().filter(|it| is_literal(grader, it)).count();
        return (literal > 0 && 2 * literal >= sample.len()).then(|| format!(
            "most gold answers are texts that `{grader}` cannot read, or compares by their words or letters alone; `exact` compares texts"
        ));
    };
    let golds = hapo_core::counted(found.len(), "gold answer is", "gold answers are");
    let first = hapo_core::excerpt(first, 60);
    Some(format!(
        "{golds} no mathematics but {kind}, the first: `{first}`. `{grader}` is not made for them; `exact` compares texts"
    ))
}

/// One completion as its source gave it, or why there is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RawCompletion {
    pub text: Option<String>,
    /// The reasoning that a server returned apart from the text.
    #[serde(skip)]
    pub thought: Option<String>,
    /// Why there is no text.
    pub failed: Option<String>,
    /// Why it ended: `stop`, `length` and others.
    pub finish_reason: Option<String>,
    pub served_by: Option<String>,
    pub prompt_tokens: Option<u64>,
    pub completion_tokens: Option<u64>,
    pub requests: u32,
    pub milliseconds: u64,
    /// When it ended, in seconds since 1970.
    pub at: u64,
    /// The server was given up on.
    #[serde(skip)]
    pub(crate) given_up: bool,
    /// Of a local model, its tokens.
    #[serde(skip)]
    pub(crate) drawn: Option<(Rollout, hapo_sampler::Details)>,
}

impl RawCompletion {
    pub(crate) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    /// False if it was cut off.
    pub(crate) fn ended(&self) -> bool {
        self.finish_reason.as_deref() != Some("length")
    }

    pub(crate) fn local(text: String, tokens: usize, ended: bool) -> Self {
        let finish_reason = if ended { "stop" } else { "length" };
        Self {
            text: Some(text),
            finish_reason: Some(finish_reason.to_owned()),
            completion_tokens: Some(tokens as u64),
            ..Self::default()
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProblemResult {
    pub id: String,
    pub gold: String,
    pub completions: Vec<GradedCompletion>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GradedCompletion {
    pub text: String,
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The reward, if it differs from the verdict's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<Verdict>,
    pub answer: Option<String>,
    /// The first completion that gives the same answer, by the grader's equivalence; `None` without an answer.
    pub vote: Option<usize>,
    pub tokens: Option<usize>,
    pub ended: bool,
}

impl ProblemResult {
    pub fn correct(&self) -> usize {
        self.completions.iter().filter(|it| it.verdict.is_correct()).count()
    }

    /// True if a completion has another reward than 0 and 1.
    pub fn is_graded(&self) -> bool {
        self.completions.iter().any(|it| it.reward.is_some_and(|it| it != 0.0 && it != 1.0))
    }

    pub fn reward(&self) -> f64 {
        let rewards = self.completions.iter().map(|it| it.reward.unwrap_or(it.verdict.reward()));
        rewards.sum::<f64>() / self.completions.len().max(1) as f64
    }

    /// Share of the completions that are correct: the problem's part of avg@k.
    pub fn success(&self) -> f64 {
        self.correct() as f64 / self.completions.len().max(1) as f64
    }
}

/// avg@k with its interval over problems; `None` for no problems.
pub fn average(results: &[ProblemResult], seed: u64) -> Option<Estimate> {
    let values: Vec<f64> = results.iter().map(ProblemResult::success).collect();
    estimate(&values, seed)
}

pub struct Judge<'a> {
    pub(crate) dataset: &'a Dataset,
    grader: &'a dyn Grader,
    golds: Vec<Gold>,
    others: Option<Vec<Option<Gold>>>,
    truncated: Truncated,
}

impl<'a> Judge<'a> {
    /// Reads every gold for `grader`, and for `other` where it can: the one that is only compared with.
    pub fn new(
        dataset: &'a Dataset,
        grader: &'a dyn Grader,
        other: Option<&dyn Grader>,
        truncated: Truncated,
    ) -> Result<Self, Refusal> {
        let gold = |example: &Example| {
            gold_of(grader, example).map_err(|reason| {
                let Example { answer, row, id, .. } = example;
                let unread = format!("the grader cannot read the gold answer `{answer}`");
                Refusal::input(format!("{unread} (row {row}, id {id}): {reason}")).hint(
                    "`hapo data check` names all such rows, --drop-bad -o OUT writes the others",
                )
            })
        };
        let golds = dataset.examples.iter().map(gold).collect::<Result<_, _>>()?;
        let others = other.map(|grader| {
            dataset.examples.iter().map(|example| gold_of(grader, example).ok()).collect()
        });
        Ok(Self { dataset, grader, golds, others, truncated })
    }

    /// The judgement on a completion of a problem; `None` where it was cut off and is not judged (D27).
    pub(crate) fn judge(
        &self,
        problem: usize,
        text: &str,
        ended: bool,
    ) -> Result<Option<Judgement>, Refusal> {
        if !self.truncated.is_judged(ended) {
            return Ok(None);
        }
        let completion = Completion { text, truncated: !ended };
        let judged = self.golds[problem].judge_completion(completion);
        match judged.failure() {
            Some(problem) => Err(Refusal::input(format!("the reward failed: {problem}")).hint(
                "what it printed is above; with a journal the same command resumes where it stopped",
            )),
            None => Ok(Some(judged)),
        }
    }

    pub fn grade(
        &self,
        problem: usize,
        completions: Vec<RawCompletion>,
    ) -> Result<ProblemResult, Refusal> {
        let example = &self.dataset.examples[problem];
        let judged = in_order(self.grader.workers(), &completions, |completion| {
            self.judge(problem, completion.text(), completion.ended())
        })?;
        let votes = votes(self.grader, &judged, &completions);
        let cut_off = || Verdict::Unparsable(CUT_OFF.to_owned());
        let of = |judgement: &Judgement| Verdict::of(judgement.verdict.compared());
        let other = |text: &str, judged: bool| {
            let others = self.others.as_ref()?;
            Some(match &others[problem] {
                _ if !judged => cut_off(),
                Some(gold) => of(&gold.judge(text)),
                None => Verdict::Unparsable("the gold answer cannot be read".to_owned()),
            })
        };
        let names_rewards = hapo_net::reward::is_own(self.grader.name());
        let graded = completions.into_iter().zip(judged).zip(votes);
        let graded = graded.map(|((raw, judged), vote)| GradedCompletion {
            verdict: judged.as_ref().map_or_else(cut_off, of),
            reward: judged.as_ref().map_or(names_rewards.then_some(0.0), |it| it.reward),
            other: other(raw.text(), judged.is_some()),
            answer: judged.and_then(|judgement| judgement.extracted),
            vote,
            ended: raw.ended(),
            tokens: raw.completion_tokens.map(|tokens| tokens as usize),
            text: raw.text.unwrap_or_default(),
        });
        Ok(ProblemResult {
            id: example.id.clone(),
            gold: example.answer.clone(),
            completions: graded.collect(),
        })
    }
}

/// For each completion that counts the first one with the same answer. Correct answers are equal to each other; of the wrong ones,
/// one that the grader can read as a gold answer is compared with the later completion by the grader, others are compared
/// as text.
fn votes(
    grader: &dyn Grader,
    judged: &[Option<Judgement>],
    completions: &[RawCompletion],
) -> Vec<Option<usize>> {
    let answer_of = |it: &Judgement| match it.verdict {
        hapo_verify::Verdict::Unparsable(_) => None,
        _ => it.extracted.clone(),
    };
    // The first of each group, and its answer as a gold answer.
    let mut groups: Vec<(usize, &Judgement, Option<Gold>)> = Vec::new();
    let mut votes = Vec::with_capacity(judged.len());
    for (n, it) in judged.iter().enumerate() {
        let Some((it, answer)) = it.as_ref().and_then(|it| Some((it, answer_of(it)?))) else {
            votes.push(None);
            continue;
        };
        let (text, is_correct) = (completions[n].text(), it.verdict.is_correct());
        let same = groups.iter().find(|(_, first, gold)| {
            let is_equal = |gold: &Gold| gold.judge(text).verdict.is_correct();
            first.verdict.is_correct() == is_correct
                && (is_correct
                    || first.extracted.as_ref() == Some(&answer)
                    || gold.as_ref().is_some_and(is_equal))
        });
        let vote = same.map_or(n, |it| it.0);
        if vote == n {
            // A judge of whole completions has no gold answers to check.
            let is_gold = !is_correct && grader.reads_answers();
            let gold = is_gold.then(|| Gold::new(grader, &answer).ok());
            groups.push((n, it, gold.flatten()));
        }
        votes.push(Some(vote));
    }
    votes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_objects_and_words_are_no_mathematics() {
        for (kind, answers) in [
            (
                "dates",
                &["2019-10-08", "8 October 2019", "Oct 8, 2019", "10/08/2019", "8.10.2019"][..],
            ),
            ("objects", &[r#"{"name": "Frank", "age": 83}"#, r#"["red", "blue"]"#, "[true]"]),
            ("words", &["hardware", "Paris, France", "the quick brown fox", "größer"]),
        ] {
            for answer in answers {
                assert_eq!(beside_mathematics(answer), Some(kind), "{answer}");
            }
        }
        let mathematics = "42, 1/2, 3:4, -1.5, x^2 + 1, [1, 2], (1, 2), \\frac{1}{2}, \\text{even}, {1, 2}, 12 cm, 3 apples, sin x, B, 2019, 12:30, 1-2-3";
        for answer in mathematics.split(", ") {
            assert_eq!(beside_mathematics(answer), None, "{answer}");
        }
        let said = unsuited("math", ["2019-10-08", "42", "2019-10-09"].into_iter()).unwrap();
        assert!(
            said.starts_with(
                "2 gold answers are no mathematics but dates, the first: `2019-10-08`"
            )
        );
        assert_eq!(unsuited("exact", ["2019-10-08"].into_iter()), None);
        assert!(unsuited("math", ["hardware"].into_iter()).is_some());
        assert_eq!(unsuited("training", ["hardware"].into_iter()), None);
        let letters =
            "du -sh /srv/www, find /usr -name '*.mp3' -mtime +7, tail -n 6 a.csv, H2SO4, XIV";
        for answer in letters.split(", ") {
            assert!(is_literal("training", answer), "{answer}");
        }
        let others = "42, 2ab, sin x, 12 cm, 3 apples, hardware, \\text{even}, \\frac{1}{2}, 1e-5, B, 12:30, x^2 + 1, \\pi";
        for answer in others.split(", ") {
            assert!(!is_literal("training", answer), "{answer}");
        }
        let warned = unsuited("training", ["du -sh a.log", "rm -rf b.log", "2"].into_iter());
        assert!(warned.is_some_and(|it| it.contains("by their words or letters alone")));
        for (answers, expected) in [
            (["2.5 lb cheese", "5 ml vinegar", "3 birds"], true),
            (["2 red apples", "3 green pears", "12"], true),
            // One thing that is counted throughout, and units, which are compared.
            (["3 apples", "12 apples", "7 apples"], false),
            (["12 meters", "3 feet", "5 seconds"], false),
            (["12", "2x + 3", "4 apples"], false),
        ] {
            assert_eq!(
                are_numbers_with_words("training", answers.into_iter()),
                expected,
                "{answers:?}"
            );
        }
    }

    #[test]
    fn equal_answers_share_a_vote_however_they_are_written() {
        let example = Example {
            id: "a".into(),
            problem: "p".into(),
            answer: "1/2".into(),
            ..Example::default()
        };
        let dataset = Dataset { examples: vec![example] };
        let judge = |truncated| {
            Judge::new(&dataset, &hapo_verify::MATH, Some(&hapo_verify::EXACT), truncated).unwrap()
        };
        let texts = [
            "\\boxed{0.25}",
            "\\boxed{0.5}",
            "\\boxed{\\frac14}",
            "\\boxed{1/2}",
            "no idea",
            "\\boxed{x+1}",
            "\\boxed{1+x}",
        ];
        let completions = texts.map(|text| RawCompletion::local(text.into(), 1, true));
        let it = judge(Truncated::Wrong).grade(0, completions.to_vec()).unwrap();
        let votes: Vec<Option<usize>> = it.completions.iter().map(|it| it.vote).collect();
        assert_eq!(votes, [Some(0), Some(1), Some(0), Some(1), None, Some(5), Some(5)]);
        let others: Vec<&Option<Verdict>> = it.completions.iter().map(|it| &it.other).collect();
        assert_eq!(others[1], &Some(Verdict::Wrong));
        assert_eq!(others[3], &Some(Verdict::Correct));
        assert_eq!(it.correct(), 2);
        // The fourth was cut off: no answer, and no vote.
        let mut completions = completions.to_vec();
        completions[3].finish_reason = Some("length".into());
        let it = judge(Truncated::Wrong).grade(0, completions.clone()).unwrap();
        let votes: Vec<Option<usize>> = it.completions.iter().map(|it| it.vote).collect();
        assert_eq!(votes, [Some(0), Some(1), Some(0), None, None, Some(5), Some(5)]);
        let cut_off = Verdict::Unparsable("cut off before its end token".to_owned());
        assert_eq!(it.completions[3].verdict, cut_off);
        assert_eq!(it.completions[3].other, Some(cut_off));
        assert_eq!(it.correct(), 1);
        let graded = judge(Truncated::Grade).grade(0, completions).unwrap();
        assert_eq!(graded.correct(), 2);
    }
}
