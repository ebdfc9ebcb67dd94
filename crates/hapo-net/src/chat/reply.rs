//! A server's answer: a reply, or an error in many forms.

use hapo_core::excerpt;
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The text; empty where the server gave a reason to finish and no text.
    pub text: String,
    /// What the model thought, where the server keeps it apart.
    pub thought: Option<String>,
    /// Why it ended: `stop`, `length` and others.
    pub finish_reason: Option<String>,
    pub model: Option<String>,
    pub prompt_tokens: Option<u64>,
    pub completion_tokens: Option<u64>,
}

/// The first choice of an answer.
pub(super) fn read_reply(body: &[u8]) -> Result<Reply, String> {
    let text = std::str::from_utf8(body).map_err(|it| format!("the answer is no UTF-8: {it}"))?;
    let value: Value = serde_json::from_str(&hapo_core::without_lone_surrogates(text))
        .map_err(|it| format!("the answer is no JSON: {it}"))?;
    if let Some(error) = value.get("error").filter(|it| !it.is_null()) {
        return Err(excerpt(&format!("an error in a good answer: {error}"), 300));
    }
    let choices =
        value.get("choices").and_then(Value::as_array).ok_or("the answer has no list `choices`")?;
    let first = choices.iter().find(|it| it["index"] == 0).or(choices.first());
    let choice = first.ok_or("the answer's `choices` is empty")?;
    let finish_reason = choice.get("finish_reason").and_then(Value::as_str).map(str::to_owned);
    let message = choice.get("message").filter(|it| it.is_object());
    let message = message.ok_or("the answer's first choice has no `message`")?;
    let text = match message.get("content") {
        Some(Value::String(it)) => it.clone(),
        Some(Value::Array(parts)) => {
            parts.iter().filter_map(|it| it.get("text").and_then(Value::as_str)).collect()
        }
        // A model that thinks until its limit, or a filter: a reason to finish, and no text.
        None | Some(Value::Null) if finish_reason.is_some() => String::new(),
        _ => return Err("the answer's message has no text `content`".to_owned()),
    };
    let thought = ["reasoning_content", "reasoning", "thinking"];
    let thought = thought.iter().find_map(|it| message.get(it)?.as_str());
    let tokens = |name: &str| value.get("usage")?.get(name)?.as_u64();
    Ok(Reply {
        text,
        thought: thought.filter(|it| !it.trim().is_empty()).map(str::to_owned),
        finish_reason,
        model: value.get("model").and_then(Value::as_str).map(str::to_owned),
        prompt_tokens: tokens("prompt_tokens"),
        completion_tokens: tokens("completion_tokens"),
    })
}

pub(super) fn complaint(body: &[u8]) -> (String, String) {
    let text = String::from_utf8_lossy(body);
    let value: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
    let error = value.get("error").unwrap_or(&value);
    let field = |name: &str| error.get(name).and_then(Value::as_str).map(str::to_owned);
    let message = field("message")
        .or_else(|| field("detail"))
        .or_else(|| error.as_str().map(str::to_owned))
        .unwrap_or_else(|| text.trim().to_owned());
    let message = if message.is_empty() { "(no message)".to_owned() } else { message };
    (excerpt(&message, 300), field("code").or_else(|| field("type")).unwrap_or_default())
}

/// True of an error that concerns this prompt alone: it is too long, or a filter refuses it. Few servers have a code of
/// their own for a prompt that is too long; the others say it in words.
pub(super) fn is_of_prompt(message: &str, code: &str) -> bool {
    const CODES: [&str; 4] = [
        "context_length_exceeded",
        "exceed_context_size_error",
        "content_filter",
        "invalid_prompt",
    ];
    const WORDS: [&str; 8] = [
        "context length",
        "context size",
        "context window",
        "maximum model length",
        "prompt is too long",
        "input token count",
        "`inputs` tokens + `max_new_tokens`",
        // What a prompt leaves of the context, in vLLM.
        "must be at least 1, got -",
    ];
    let message = message.to_lowercase();
    CODES.contains(&code) || WORDS.iter().any(|it| message.contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers_without_an_answer_are_faults() {
        let check = |body: &str, expected: Result<&str, &str>| {
            let it = read_reply(body.as_bytes()).map(|it| it.text);
            match expected {
                Ok(text) => assert_eq!(it.as_deref(), Ok(text), "{body}"),
                Err(part) => assert!(it.unwrap_err().contains(part), "{body}"),
            }
        };
        check(r#"{"choices":[{"message":{"content":"a"}}]}"#, Ok("a"));
        check(
            r#"{"choices":[{"index":1,"message":{"content":"b"}},{"index":0,"message":{"content":"a"}}]}"#,
            Ok("a"),
        );
        check(
            r#"{"choices":[{"message":{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}}]}"#,
            Ok("ab"),
        );
        check(r#"{"choices":[{"message":{"content":"a\ud800"}}]}"#, Ok("a\u{fffd}"));
        check(r#"{"choices":[{"message":{"content":null},"finish_reason":"length"}]}"#, Ok(""));
        check(r#"{"choices":[{"message":{"content":null}}]}"#, Err("`content`"));
        check(
            r#"{"choices":[{"message":{"content":7},"finish_reason":"stop"}]}"#,
            Err("`content`"),
        );
        check(r#"{"choices":[{"message":null}]}"#, Err("`message`"));
        check(r#"{"choices":[]}"#, Err("empty"));
        check(r#"{"choices":{}}"#, Err("no list"));
        check(r#"{"error":{"code":502}}"#, Err("502"));
        check("[]", Err("no list"));
        check(r#"{"choices":[{"mess"#, Err("no JSON"));
        check("", Err("no JSON"));
        check(&"[".repeat(100_000), Err("no JSON"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_reply_or_a_reason(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_reply(&body);
            let _ = complaint(&body);
        }
    }
}
