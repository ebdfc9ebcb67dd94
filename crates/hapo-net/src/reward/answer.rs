//! The answer of a program or a server.

use crate::reward::Failure;
use hapo_core::excerpt;
use hapo_verify::{Reason, Verdict};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) reward: f64,
    pub(crate) verdict: Option<Verdict>,
    pub(crate) reason: Option<String>,
    pub(crate) parts: Vec<(String, f64)>,
    /// It names its line.
    pub(crate) has_id: bool,
}

/// Largest reward or part, either way.
const LARGEST: f64 = 1e6;
const MOST_PARTS: usize = 32;
const LONGEST_NAME: usize = 64;

/// An answer that is an object. No field in it is null but `verdict`, where null says that the program has failed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    #[serde(default, deserialize_with = "there")]
    id: Option<Value>,
    #[serde(default, deserialize_with = "there")]
    reward: Option<Number>,
    #[serde(default, deserialize_with = "there")]
    #[expect(clippy::option_option, reason = "`null` is told from a field that is not there")]
    verdict: Option<Option<Word>>,
    reason: Option<Value>,
    parts: Option<BTreeMap<String, Number>>,
    /// As the two below, a part of a grader's explanation.
    #[serde(rename = "extracted")]
    _extracted: Option<IgnoredAny>,
    #[serde(rename = "gold_parsed")]
    _gold_parsed: Option<IgnoredAny>,
    #[serde(rename = "answer_parsed")]
    _answer_parsed: Option<IgnoredAny>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Correct,
    Wrong,
    Unparsable,
}

/// A number; true is 1 and false is 0.
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged, expecting = "expected a number")]
enum Number {
    Truth(bool),
    Number(f64),
}

impl Number {
    fn value(self) -> f64 {
        match self {
            Self::Truth(truth) => f64::from(u8::from(truth)),
            Self::Number(number) => number,
        }
    }
}

fn there<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// Reads the answer to the line of that id: a number, true or false, or an object with a reward or a verdict.
pub(crate) fn parse(text: &str, id: &str) -> Result<Answer, Failure> {
    let text = text.trim();
    let read = if text.starts_with('{') {
        json::<Fields>(text).and_then(|fields| fields.answer(id))
    } else {
        json::<Number>(text).map(|reward| Answer { reward: reward.value(), ..Answer::default() })
    };
    let too_large = |number: f64| number.abs() > LARGEST;
    let checked = read.and_then(|answer| {
        if too_large(answer.reward) || answer.parts.iter().any(|part| too_large(part.1)) {
            let expected = format!("expected rewards from -{LARGEST:e} to {LARGEST:e}");
            return Err(Failure::of_one(expected));
        }
        Ok(answer)
    });
    checked.map_err(|failure| Failure {
        message: format!("{}, in the answer `{}`", failure.message, excerpt(text, 120)),
        ..failure
    })
}

const EXPECTED: &str = "expected a number, or an object with `reward` or `verdict`, as JSON";

fn json<T: DeserializeOwned>(from: &str) -> Result<T, Failure> {
    // Python's and JavaScript's spellings of numbers that JSON does not have.
    let bare = from.trim_start_matches(['-', '+']).to_ascii_lowercase();
    if ["nan", "inf", "infinity"].contains(&bare.as_str()) {
        return Err(Failure::of_one("expected a finite reward"));
    }
    let mut json = serde_json::Deserializer::from_str(from);
    let read = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let (path, error) = (error.path().to_string(), error.into_inner());
        let text = error.to_string();
        match &*path {
            _ if !error.is_data() || !from.starts_with('{') => EXPECTED.to_owned(),
            path if path == "." || text.contains(&format!("`{path}`")) => text,
            path => format!("{path}: {text}"),
        }
    });
    let ended = |value| json.end().map(|()| value).map_err(|_| EXPECTED.to_owned());
    read.and_then(ended).map_err(Failure::of_one)
}

impl Fields {
    fn answer(self, id: &str) -> Result<Answer, Failure> {
        // An answer to another line would give every later completion the reward of the one before.
        if let Some(got) = self.id.as_ref().filter(|got| *got != id) {
            let got = excerpt(&got.to_string(), 40);
            return Err(Failure::fatal(format!("it answered line {got}, expected \"{id}\"")));
        }
        let reason = self.reason.as_ref().and_then(Value::as_str).map(|text| excerpt(text, 400));
        let verdict = match self.verdict {
            None => None,
            Some(Some(Word::Correct)) => Some(Verdict::Correct),
            Some(Some(Word::Wrong)) => Some(Verdict::Wrong),
            Some(Some(Word::Unparsable)) => Some(Verdict::Unparsable(Reason::Unreadable)),
            Some(None) => {
                let no_reason = || "verdict: expected a word, or a reason beside null".to_owned();
                return Err(Failure::of_one(reason.unwrap_or_else(no_reason)));
            }
        };
        let reward = self.reward.map(Number::value).or_else(|| Some(verdict?.reward()));
        let reward = reward.ok_or_else(|| Failure::of_one("expected `reward` or `verdict`"))?;
        let parts = self.parts.unwrap_or_default();
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
        let is_name =
            |name: &String| (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(is_plain);
        if parts.len() > MOST_PARTS || !parts.keys().all(is_name) {
            return Err(Failure::of_one(format!(
                "parts: expected at most {MOST_PARTS} numbers under names of at most {LONGEST_NAME} letters, digits, _, - and ."
            )));
        }
        let parts = parts.into_iter().map(|(name, part)| (name, part.value())).collect();
        Ok(Answer { reward, verdict, reason, parts, has_id: self.id.is_some() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_words_and_objects_are_answers() {
        let plain = |reward| Answer { reward, ..Answer::default() };
        for (text, reward) in
            [("1", 1.0), (" 0.25\n", 0.25), ("-2", -2.0), ("true", 1.0), ("false", 0.0)]
        {
            assert_eq!(parse(text, "a").unwrap(), plain(reward), "{text}");
        }
        let full = r#"{"id": "a", "reward": 0.5, "verdict": "wrong", "reason": "half", "parts": {"format": 1, "answer": false}}"#;
        let expected = Answer {
            reward: 0.5,
            verdict: Some(Verdict::Wrong),
            reason: Some("half".to_owned()),
            parts: vec![("answer".to_owned(), 0.0), ("format".to_owned(), 1.0)],
            has_id: true,
        };
        assert_eq!(parse(full, "a").unwrap(), expected);
        let graded = r#"{"answer_parsed":"2","extracted":"2","gold_parsed":"2","id":"a","reason":"equal","verdict":"correct"}"#;
        assert_eq!(parse(graded, "a").unwrap().reward, 1.0);
    }

    #[test]
    fn what_is_no_answer_says_what_was_expected() {
        let problems = [
            ("NaN", "expected a finite reward, in the answer `NaN`"),
            ("-Infinity", "expected a finite reward, in the answer `-Infinity`"),
            (
                "1e999",
                "expected a number, or an object with `reward` or `verdict`, as JSON, in the answer `1e999`",
            ),
            (
                "",
                "expected a number, or an object with `reward` or `verdict`, as JSON, in the answer ``",
            ),
            (
                "loading…",
                "expected a number, or an object with `reward` or `verdict`, as JSON, in the answer `loading…`",
            ),
            (
                "1 2",
                "expected a number, or an object with `reward` or `verdict`, as JSON, in the answer `1 2`",
            ),
            (
                "null",
                "expected a number, or an object with `reward` or `verdict`, as JSON, in the answer `null`",
            ),
            (
                "[1]",
                "expected a number, or an object with `reward` or `verdict`, as JSON, in the answer `[1]`",
            ),
            ("1e7", "expected rewards from -1e6 to 1e6, in the answer `1e7`"),
            ("{}", "expected `reward` or `verdict`, in the answer `{}`"),
            (
                r#"{"score": 1}"#,
                "unknown field `score`, expected one of `id`, `reward`, `verdict`, `reason`, `parts`, `extracted`, `gold_parsed`, `answer_parsed` at line 1 column 8, in the answer `{\"score\": 1}`",
            ),
            (
                r#"{"reward": "1"}"#,
                "reward: expected a number at line 1 column 15, in the answer `{\"reward\": \"1\"}`",
            ),
            (
                r#"{"reward": NaN}"#,
                "expected a number, or an object with `reward` or `verdict`, as JSON, in the answer `{\"reward\": NaN}`",
            ),
            (
                r#"{"reward": 0, "reward": 1}"#,
                "duplicate field `reward` at line 1 column 22, in the answer `{\"reward\": 0, \"reward\": 1}`",
            ),
            (
                r#"{"verdict": "good"}"#,
                "verdict: unknown variant `good`, expected one of `correct`, `wrong`, `unparsable` at line 1 column 18, in the answer `{\"verdict\": \"good\"}`",
            ),
        ];
        for (text, message) in problems {
            let failure = parse(text, "a").unwrap_err();
            assert_eq!((failure.message.as_str(), failure.fatal), (message, false), "{text}");
        }
        let parts = r#"{"reward": 1, "parts": {"a b": 1}}"#;
        assert!(parse(parts, "a").unwrap_err().message.starts_with("parts: expected at most 32"));
        let other = parse(r#"{"id": "b", "reward": 1}"#, "a").unwrap_err();
        assert!(other.fatal);
        assert!(other.message.starts_with("it answered line \"b\", expected \"a\""), "{other:?}");
        assert!(parse(&"[".repeat(10_000), "a").is_err());
    }
}
