//! The answer of a program or a server.

use hapo_core::{UniqueFields, excerpt};
use hapo_verify::{Reason, Verdict};
use serde_json::{Map, Value};

use crate::Failure;

/// An answer that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) reward: f64,
    pub(crate) verdict: Option<Verdict>,
    pub(crate) reason: Option<String>,
    pub(crate) parts: Vec<(String, f64)>,
    /// It names its line.
    pub(crate) has_id: bool,
}

/// Keys of an answer; the last three belong to a verdict's explanation and are ignored.
const KEYS: [&str; 8] =
    ["id", "reward", "verdict", "reason", "parts", "extracted", "gold_parsed", "answer_parsed"];
/// Largest reward or part, either way.
const LARGEST: f64 = 1e6;
/// Most parts of an answer.
const MOST_PARTS: usize = 32;
/// Longest name of a part.
const LONGEST_NAME: usize = 64;

/// Reads the answer to the line of that id: a number, true or false, or an object with a reward or a verdict.
pub(crate) fn parse(text: &str, id: &str) -> Result<Answer, Failure> {
    const EXPECTED: &str = "a number, or an object with `reward` or `verdict`";
    let text = text.trim();
    let bad = |why: String| Failure::of_one(format!("{why}, in the answer {}", quoted(text)));
    if is_not_finite(text) {
        return Err(Failure::of_one(format!("expected a finite reward, got {}", quoted(text))));
    }
    let value: Value = serde_json::from_str(text).map_err(|_| {
        Failure::of_one(format!("expected {EXPECTED}, as JSON, got {}", quoted(text)))
    })?;
    let answer = match value {
        Value::Object(_) => fields(text)
            .and_then(|it| of_object(&it, id))
            .map_err(|failure| Failure { fatal: failure.fatal, ..bad(failure.message) })?,
        other => match number(&other) {
            Some(reward) => Answer { reward, ..Answer::default() },
            None => return Err(bad(format!("expected {EXPECTED}"))),
        },
    };
    let too_large = |it: f64| it.abs() > LARGEST;
    if too_large(answer.reward) || answer.parts.iter().any(|it| too_large(it.1)) {
        return Err(bad(format!("expected rewards from -{LARGEST:e} to {LARGEST:e}")));
    }
    Ok(answer)
}

fn quoted(text: &str) -> String {
    format!("`{}`", excerpt(text, 120))
}

/// Python's and JavaScript's spellings of numbers that JSON does not have.
fn is_not_finite(text: &str) -> bool {
    let bare = text.trim_start_matches(['-', '+']).to_ascii_lowercase();
    ["nan", "inf", "infinity"].contains(&bare.as_str())
}

/// A number; true is 1 and false is 0.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Bool(it) => Some(f64::from(u8::from(*it))),
        value => value.as_f64(),
    }
}

/// The fields of an object, each once.
fn fields(text: &str) -> Result<Map<String, Value>, Failure> {
    let fields: Result<UniqueFields<Value>, _> = serde_json::from_str(text);
    fields.map(|it| it.0.into_iter().collect()).map_err(|it| Failure::of_one(it.to_string()))
}

fn of_object(object: &Map<String, Value>, id: &str) -> Result<Answer, Failure> {
    if let Some(key) = object.keys().find(|it| !KEYS.contains(&it.as_str())) {
        let known = KEYS[..5].join(", ");
        let key = excerpt(key, 40);
        return Err(Failure::of_one(format!("unknown key `{key}`, expected some of {known}")));
    }
    // An answer to another line would give every later completion the reward of the one before.
    if let Some(got) = object.get("id")
        && got != id
    {
        let got = excerpt(&got.to_string(), 40);
        return Err(Failure::fatal(format!("it answered line {got}, expected \"{id}\"")));
    }
    let reason = object.get("reason").and_then(Value::as_str).map(|it| excerpt(it, 400));
    let verdict = match object.get("verdict") {
        None => None,
        Some(Value::String(it)) => Some(match it.as_str() {
            "correct" => Verdict::Correct,
            "wrong" => Verdict::Wrong,
            "unparsable" => Verdict::Unparsable(Reason::Unreadable),
            _ => return Err(Failure::of_one("verdict: expected correct, wrong or unparsable")),
        }),
        Some(Value::Null) if reason.is_some() => {
            return Err(Failure::of_one(reason.unwrap_or_default()));
        }
        Some(_) => return Err(Failure::of_one("verdict: expected a word")),
    };
    let reward = match (object.get("reward"), verdict) {
        (Some(it), _) => number(it).ok_or_else(|| Failure::of_one("reward: expected a number"))?,
        (None, Some(verdict)) => verdict.reward(),
        (None, None) => return Err(Failure::of_one("expected `reward` or `verdict`")),
    };
    let has_id = object.contains_key("id");
    Ok(Answer { reward, verdict, reason, parts: parts(object.get("parts"))?, has_id })
}

fn parts(value: Option<&Value>) -> Result<Vec<(String, f64)>, Failure> {
    let bad = || {
        Failure::of_one(format!(
            "parts: expected at most {MOST_PARTS} numbers under names of at most {LONGEST_NAME} letters, digits, _, - and ."
        ))
    };
    let parts = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(it)) if it.len() <= MOST_PARTS => it,
        Some(_) => return Err(bad()),
    };
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "_-.".contains(it);
    let part = |(name, value): (&String, &Value)| {
        let named = (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(is_plain);
        Some((name.clone(), number(value).filter(|_| named)?))
    };
    parts.iter().map(part).collect::<Option<_>>().ok_or_else(bad)
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
            ("NaN", "expected a finite reward, got `NaN`"),
            ("-Infinity", "expected a finite reward, got `-Infinity`"),
            (
                "1e999",
                "expected a number, or an object with `reward` or `verdict`, as JSON, got `1e999`",
            ),
            ("", "expected a number, or an object with `reward` or `verdict`, as JSON, got ``"),
            (
                "loading…",
                "expected a number, or an object with `reward` or `verdict`, as JSON, got `loading…`",
            ),
            (
                "1 2",
                "expected a number, or an object with `reward` or `verdict`, as JSON, got `1 2`",
            ),
            (
                "null",
                "expected a number, or an object with `reward` or `verdict`, in the answer `null`",
            ),
            (
                "[1]",
                "expected a number, or an object with `reward` or `verdict`, in the answer `[1]`",
            ),
            ("1e7", "expected rewards from -1e6 to 1e6, in the answer `1e7`"),
            ("{}", "expected `reward` or `verdict`, in the answer `{}`"),
            (
                r#"{"score": 1}"#,
                "unknown key `score`, expected some of id, reward, verdict, reason, parts, in the answer `{\"score\": 1}`",
            ),
            (
                r#"{"reward": "1"}"#,
                "reward: expected a number, in the answer `{\"reward\": \"1\"}`",
            ),
            (
                r#"{"reward": NaN}"#,
                "expected a number, or an object with `reward` or `verdict`, as JSON, got `{\"reward\": NaN}`",
            ),
            (
                r#"{"reward": 0, "reward": 1}"#,
                "the field `reward` comes twice at line 1 column 26, in the answer `{\"reward\": 0, \"reward\": 1}`",
            ),
            (
                r#"{"verdict": "good"}"#,
                "verdict: expected correct, wrong or unparsable, in the answer `{\"verdict\": \"good\"}`",
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
