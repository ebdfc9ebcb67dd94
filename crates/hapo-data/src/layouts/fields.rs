//! Fields that several layouts share: prompts of messages, golds, the last box of a solution.

use crate::example::{Example, Message, with_thought};
use crate::template::TEMPLATES;
use crate::value::{Object, Result, Value, fault, json_list, json_texts, unexpected};
use hapo_core::is_among;

pub(super) fn text(row: &Object, field: &str) -> Result<String> {
    match row.get(field) {
        Some(Value::Text(text)) if !text.trim().is_empty() => Ok(text.clone()),
        other => Err(unexpected(field, "a string that is not empty", other)),
    }
}

/// A text with something in it, or nothing.
pub(super) fn optional_text<'a>(row: &'a Object, field: &str) -> Option<&'a str> {
    row.get(field)?.text().filter(|text| !text.trim().is_empty())
}

/// A text or, unless `text_only`, a number, as text. A value of another type is no label, and no fault of its row.
pub(super) fn label(value: &Value, text_only: bool) -> Option<&str> {
    match value {
        Value::Text(text) => Some(text),
        Value::Number(digits) if !text_only => Some(digits),
        _ => None,
    }
}

/// The messages of a dialogue, at least one: `role` and `content`, or `ShareGPT`'s `from` and `value`. A thought beside the
/// content stands before it in `<think>`. A `developer` is the system.
pub(super) fn messages(value: Option<&Value>, field: &str) -> Result<Vec<Message>> {
    const EXPECTED: &str = "a list of messages with role and content";
    let Some(Value::List(items)) = value else { return Err(unexpected(field, EXPECTED, value)) };
    if items.is_empty() {
        return Err(fault(field, EXPECTED, "an empty list"));
    }
    let all = items.iter().enumerate();
    all.map(|(number, item)| message(item, &format!("{field}[{number}]"))).collect()
}

/// Keys of a message that no prompt here has a place for.
const NOT_TEXT: &str =
    "tool_calls function_call function_calls tools functions images image audio videos";
const THOUGHTS: [&str; 3] = ["reasoning_content", "reasoning", "thinking"];

fn message(item: &Value, place: &str) -> Result<Message> {
    let key = |name: &str| format!("{place}.{name}");
    let Value::Object(item) = item else {
        return Err(unexpected(place, "a message with role and content", Some(item)));
    };
    for name in NOT_TEXT.split(' ') {
        if let Some(value) = item.get(name).filter(|it| it.says_something()) {
            let expected = "nothing: neither tools nor pictures have a place in a prompt here";
            return Err(unexpected(key(name), expected, Some(value)));
        }
    }
    let is_turn = item.some("role").is_none() && item.some("from").is_some();
    let text = |name: &str| match item.get(name) {
        Some(Value::Text(text)) => Ok(text.clone()),
        other => Err(unexpected(key(name), "a string", other)),
    };
    let role = match (is_turn, text(if is_turn { "from" } else { "role" })?) {
        (false, role) if role == "developer" => "system".to_owned(),
        (false, role) => role,
        (true, from) => match from.as_str() {
            "human" | "user" => "user".to_owned(),
            "gpt" | "assistant" | "chatgpt" | "model" | "bot" => "assistant".to_owned(),
            "system" => from,
            other => {
                let got = format!("{other:?}");
                return Err(fault(key("from"), "human, gpt or system", &got));
            }
        },
    };
    let (mut content, mut thought) = (String::new(), String::new());
    match item.get("content").or(item.some("value")) {
        Some(Value::Text(text)) => content.clone_from(text),
        Some(Value::List(parts)) => {
            for (number, part) in parts.iter().enumerate() {
                let of = |name: &str| match part {
                    Value::Object(it) => it.get(name).and_then(Value::text),
                    _ => None,
                };
                match (of("type"), of("text").or(part.text()), of("thinking")) {
                    (None | Some("text"), Some(text), _) => content += text,
                    (_, _, Some(text)) => thought += text,
                    (kind, ..) => {
                        let kind = kind.map_or_else(|| part.to_string(), |it| format!("`{it}`"));
                        let field = key(&format!("content[{number}]"));
                        return Err(fault(field, "a part of text", &kind));
                    }
                }
            }
        }
        other => return Err(unexpected(key("content"), "a string", other)),
    }
    for name in THOUGHTS {
        match item.get(name).filter(|it| it.says_something()) {
            None => {}
            Some(Value::Text(text)) if role == "assistant" => thought.clone_from(text),
            other => return Err(unexpected(key(name), "a text of the assistant alone", other)),
        }
    }
    Ok(Message { role, content: with_thought(&thought, &content) })
}

/// Puts the messages of a prompt into an example: the last user's text is the problem, a system text
/// that begins is kept, and so is a whole dialogue of more turns.
pub(super) fn set_prompt(example: &mut Example, messages: Vec<Message>, field: &str) -> Result<()> {
    let Some(user) = messages.iter().rev().find(|it| it.role == "user") else {
        return Err(fault(field, "a message of the user", "none"));
    };
    if user.content.trim().is_empty() {
        let expected = "a message of the user that is not empty";
        return Err(fault(field, expected, "an empty one"));
    }
    example.problem.clone_from(&user.content);
    if let [first, ..] = &messages[..]
        && first.role == "system"
    {
        example.system = Some(first.content.clone());
    }
    if messages.len() > 1 + usize::from(example.system.is_some()) {
        example.messages = messages;
    }
    Ok(())
}

/// A prompt that is a text or a list of messages.
pub(super) fn set_text_or_messages(
    example: &mut Example,
    value: Option<&Value>,
    field: &str,
) -> Result<()> {
    let is_python = |text: &str| text.trim_start().starts_with("[{'");
    let listed = value.and_then(Value::text).and_then(json_list);
    match listed.as_ref().or(value) {
        Some(Value::Text(text)) if is_python(text) => {
            Err(unexpected(field, "messages, or a JSON list of them as text", value))
        }
        Some(Value::Text(text)) if !text.trim().is_empty() => {
            let inside = problem_in(text);
            example.rendered = inside.is_some().then(|| text.clone());
            example.problem = inside.unwrap_or_else(|| text.clone());
            Ok(())
        }
        Some(list @ Value::List(_)) => set_prompt(example, messages(Some(list), field)?, field),
        other => Err(unexpected(field, "a string that is not empty or a list of messages", other)),
    }
}

/// A dialogue that ends in the assistant's turn: the turns before it are the prompt, it is the teacher's solution.
pub(super) fn dialogue(example: &mut Example, mut turns: Vec<Message>, field: &str) -> Result<()> {
    let last = turns.pop().filter(|it| it.role == "assistant");
    let Some(last) = last.filter(|it| !it.content.trim().is_empty()) else {
        let expected = "an assistant's message that is not empty at the end";
        return Err(fault(field, expected, "another one"));
    };
    set_prompt(example, turns, field)?;
    example.teachers.push(without_end_token(&last.content).to_owned());
    Ok(())
}

/// The solutions in a value: a text, a list of them, or an assistant's messages. Null and empty values are skipped.
pub(super) fn solutions(value: &Value, field: &str) -> Result<Vec<String>> {
    const EXPECTED: &str = "a solution: a string, a list of them, or messages";
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Text(text) if text.trim().is_empty() => Ok(Vec::new()),
        Value::Text(text) => Ok(vec![without_end_token(text).to_owned()]),
        Value::List(items) if matches!(items.first(), Some(Value::Object(_))) => {
            let last = messages(Some(value), field)?.pop().map(|it| it.content);
            solutions(&Value::Text(last.unwrap_or_default()), field)
        }
        Value::List(items) => {
            let all = items.iter().map(|it| match it {
                Value::Null | Value::Text(_) => solutions(it, field),
                other => Err(unexpected(field, EXPECTED, Some(other))),
            });
            Ok(all.collect::<Result<Vec<_>, _>>()?.concat())
        }
        other => Err(unexpected(field, EXPECTED, Some(other))),
    }
}

/// Adds solutions to an example, but for those that it has and those that are its gold answer again: they show nothing.
pub(super) fn with_solutions(example: &mut Example, solutions: Vec<String>) {
    for it in solutions {
        // Of an object there is nothing to show but itself.
        let is_gold = !it.starts_with('{') && example.golds().any(|gold| it.trim() == gold);
        if !is_gold && !example.teachers.contains(&it) {
            example.teachers.push(it);
        }
    }
}

/// The first message of a target.
pub(super) fn solution(value: Option<&Value>, field: &str) -> Result<String> {
    let first = messages(value, field)?.swap_remove(0).content;
    let solution = without_end_token(&first);
    if solution.trim().is_empty() {
        let field = format!("{field}[0].content");
        return Err(fault(field, "a solution that is not empty", "an empty one"));
    }
    Ok(solution.to_owned())
}

/// A text, or a list of them, none empty.
pub(super) fn teachers(value: Option<&Value>, field: &str) -> Result<Vec<String>> {
    const EXPECTED: &str = "a string or a list of strings, none empty";
    let texts = match value {
        None | Some(Value::Null) => &[],
        Some(Value::List(values)) => &values[..],
        Some(other) => std::slice::from_ref(other),
    };
    let text = |value: &Value| match value {
        Value::Text(text) if text.trim().is_empty() => {
            Err(fault(field, EXPECTED, "an empty string"))
        }
        // The template adds the end token; a second one would be trained on.
        Value::Text(text) => match END_TOKENS.iter().find(|end| text.trim_end().ends_with(**end)) {
            Some(end) => {
                let expected = "a solution without its end token";
                Err(fault(field, expected, &format!("one that ends in {end}")))
            }
            None => Ok(text.clone()),
        },
        other => Err(unexpected(field, EXPECTED, Some(other))),
    };
    texts.iter().map(text).collect()
}

/// The text inside of `<think>`, or all of it without that tag.
pub(super) fn thought(text: &str) -> &str {
    text.split_once("<think>")
        .and_then(|(_, rest)| rest.split_once("</think>"))
        .map_or_else(|| without_end_token(text), |(thought, _)| thought)
}

/// True if a text is a worked solution rather than an answer: it marks its answer.
pub(super) fn is_worked(text: &str) -> bool {
    let boxed = last_boxed(text).is_some_and(|it| text.trim().len() > it.len() + 12);
    boxed || after_hashes(text).is_some()
}

/// The final answer of a worked solution: its last box, or what follows its last `####`, without thousands separators.
pub(super) fn gold_of_solution(text: &str, field: &str) -> Result<String> {
    let found = match last_boxed(text) {
        Some(it) => Some(it.trim().to_owned()),
        None => after_hashes(text),
    };
    found.filter(|it| !it.is_empty()).ok_or_else(|| {
        let expected = "a solution that ends in \\boxed{…} or #### and the gold";
        fault(field, expected, &Value::Text(text.to_owned()).to_string())
    })
}

pub(super) fn line_after_hashes(text: &str) -> Option<&str> {
    let (_, rest) = text.rsplit_once("####")?;
    Some(rest.trim().lines().next().unwrap_or_default().trim_end())
}

/// The text after the last `####`, without thousands separators.
fn after_hashes(text: &str) -> Option<String> {
    let gold = line_after_hashes(text)?;
    let is_number = gold.bytes().all(|it| it.is_ascii_digit() || b"-+.,$%".contains(&it));
    Some(if is_number { gold.replace(',', "") } else { gold.to_owned() })
}

/// The problem inside a prompt that some template was already put around; `None` for a text that shows no sign of one.
pub(super) fn problem_in(text: &str) -> Option<String> {
    for template in TEMPLATES {
        let (before, after) = template.text.split_once("{input}")?;
        if before.len() + after.len() > 0
            && let Some(problem) = text.strip_prefix(before)
            && let Some(problem) = problem.strip_suffix(after)
        {
            return Some(problem.to_owned());
        }
    }
    // Another template of the same dialect: the last turn of the user.
    let (_, turn) = text.rsplit_once("<|im_start|>user\n")?;
    let (problem, _) = turn.split_once("<|im_end|>")?;
    Some(problem.to_owned())
}

/// Gold answers: a text, a number, or a list of alternatives. The first and the others.
pub(super) fn gold(value: Option<&Value>, field: &str) -> Result<(String, Vec<String>)> {
    const EXPECTED: &str =
        "a gold answer: a string that is not empty, a finite number or a list of them";
    let one = |value: &Value| match value {
        Value::Text(text) if !is_missing(text) => Ok(answer_line(text).to_owned()),
        Value::Text(text) if !text.trim().is_empty() => Err(unexpected(
            field,
            "a gold answer, not a word for a missing one or the tests of a program",
            Some(value),
        )),
        other => other.number().ok_or_else(|| unexpected(field, EXPECTED, Some(other))),
    };
    let texts = value.and_then(Value::text).and_then(json_texts);
    match texts.as_ref().or(value) {
        Some(Value::List(items)) if !items.is_empty() => {
            let mut golds = items.iter().map(one).collect::<Result<Vec<_>, _>>()?;
            let first = golds.remove(0);
            golds.retain(|it| *it != first);
            Ok((first, golds))
        }
        Some(value) => Ok((one(value)?, Vec::new())),
        None => Err(unexpected(field, EXPECTED, None)),
    }
}

/// True of what files hold in place of an answer: nothing, a word for it, or the tests of a program. A problem whose answer
/// is such a word has it in LaTeX: `\text{None}`.
fn is_missing(text: &str) -> bool {
    const WORDS: &str = "nan none null n/a n.a. notfound not_found proof tbd todo <na>";
    let text = text.trim();
    text.is_empty()
        || text == "NA"
        || is_among(WORDS, &text.to_lowercase().replace(' ', "_"))
        || text.starts_with('{')
            && serde_json::from_str::<Object>(text)
                .is_ok_and(|object| TESTS.iter().any(|key| object.has(key)))
}

/// Keys of an object that holds a program's tests; any other object is an answer.
const TESTS: [&str; 5] = ["inputs", "test_cases", "test_list", "tests", "assert_case"];

/// An answer without the line behind it that `MetaMathQA` ends with.
pub(crate) fn answer_line(text: &str) -> &str {
    text.rsplit_once("\nThe answer is").map_or(text, |(answer, _)| answer).trim()
}

/// The gold answers in a text: one, or those of a JSON list of texts.
pub fn golds_in(text: &str) -> Vec<String> {
    match gold(Some(&Value::Text(text.to_owned())), "") {
        Ok((first, others)) => std::iter::once(first).chain(others).collect(),
        Err(_) => vec![text.to_owned()],
    }
}

/// The gold in the first of the fields that the row has, if it has one; of a worked solution, its last box.
pub(super) fn gold_of(row: &Object, fields: &[&str]) -> Result<Option<(String, Vec<String>)>> {
    let Some(field) = fields.iter().find(|it| row.has(it)) else { return Ok(None) };
    let (answer, others) = gold(row.get(field), field)?;
    if after_hashes(&answer).is_some() {
        return Ok(Some((gold_of_solution(&answer, field)?, others)));
    }
    Ok(Some((unboxed(answer, field)?, others)))
}

/// The contents of a text's last box; the text itself if it has none.
fn unboxed(text: String, field: &str) -> Result<String> {
    match last_boxed(&text) {
        None => Ok(text),
        Some(answer) if answer.trim().is_empty() => {
            Err(fault(field, "an answer in the last box", "an empty box"))
        }
        Some(answer) => Ok(answer.trim().to_owned()),
    }
}

/// Fills an example's missing gold with the final answer of its teacher's solution, if that marks one.
pub(super) fn gold_from_teacher(example: &mut Example) {
    if let Some(Ok(answer)) = example.teachers.first().map(|it| gold_of_solution(it, "")) {
        example.answer = answer;
    }
}

/// The contents of the last `\boxed` of a text, braces balanced; `\boxed 5` holds `5`.
pub(crate) fn last_boxed(text: &str) -> Option<&str> {
    let (_, rest) = text.rsplit_once("\\boxed")?;
    let rest = rest.trim_start();
    let Some(inside) = rest.strip_prefix('{') else {
        let end = rest
            .find(|it: char| it.is_whitespace() || it == '$' || it == '\\')
            .unwrap_or(rest.len());
        return Some(rest[..end].trim_end_matches(['.', ',']));
    };
    let (mut depth, mut escaped) = (1_u32, false);
    for (place, it) in inside.char_indices() {
        match it {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(&inside[..place]);
                }
            }
            _ => {}
        }
    }
    None
}

const END_TOKENS: [&str; 2] = ["<|im_end|>", "<|endoftext|>"];

/// A teacher's solution without the end token that the template adds again.
pub(super) fn without_end_token(text: &str) -> &str {
    let trimmed = text.trim_end();
    END_TOKENS.iter().find_map(|end| trimmed.strip_suffix(end)).unwrap_or(text)
}

/// An assistant's text: a string, or messages, the last one the assistant's.
pub(super) fn completion_of(row: &Object, field: &str) -> Result<String> {
    let found = match row.get(field) {
        Some(value @ (Value::Text(_) | Value::List(_))) => solutions(value, field)?,
        other => return Err(unexpected(field, "a string or a list of messages", other)),
    };
    let empty = || fault(field, "a completion that is not empty", "an empty one");
    found.into_iter().next().ok_or_else(empty)
}
