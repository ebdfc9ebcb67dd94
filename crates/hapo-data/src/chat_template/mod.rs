//! A model's own chat template: Jinja text, in the dialect in which transformers renders it.
//!
//! Purpose: a published model was tuned on the exact bytes of its template, so minijinja renders the model's own text,
//! and `tests/it/chat_templates.rs` compares the result with transformers'. Who chooses a model runs its template, as
//! he runs its weights. A template may have [`MAX_SOURCE_BYTES`], and a rendering may execute [`FUEL`] instructions,
//! call [`RECURSION`] deep, write [`MAX_RENDERED_BYTES`] and take [`TIME`] and [`MEMORY`]. Price: minijinja is no
//! Python. Methods of strings, lists and mappings are those of `minijinja_contrib::pycompat`; a template that uses
//! another is refused by name and line.

mod bounds;
mod json;

use chrono::DateTime;
use chrono::format::{Item, StrftimeItems};
use hapo_core::Refusal;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Rest, Serde, Value, ValueKind};
use minijinja::{Environment, ErrorKind, State, UndefinedBehavior, filters};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

pub use bounds::{MEMORY, TIME};
use json::tojson;

/// Longest text of a template, in bytes; published ones have up to 40,000.
pub const MAX_SOURCE_BYTES: usize = 256 << 10;
/// Longest text that a rendering writes.
pub const MAX_RENDERED_BYTES: usize = 4 << 20;
/// Instructions that one rendering may execute. A dialogue of a thousand turns takes some 200,000.
pub const FUEL: u64 = 5_000_000;
pub const RECURSION: usize = 100;
/// The time of `strftime_now`, in Unix seconds, where results must not depend on the day: Llama 3.2's 26 July 2024.
pub const FIXED_TIME: i64 = 1_721_952_000;

#[derive(Clone, Debug)]
pub struct Rendering {
    /// End with the opening of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Further variables, such as Qwen3's `enable_thinking`.
    pub variables: serde_json::Map<String, serde_json::Value>,
    /// The time of `strftime_now`, in seconds of the Unix epoch; the day is that of UTC.
    pub unix_time: i64,
}

impl Rendering {
    /// A prompt: the assistant's turn is open, no further variables, the fixed day.
    pub fn prompt() -> Self {
        Self {
            add_generation_prompt: true,
            variables: serde_json::Map::new(),
            unix_time: FIXED_TIME,
        }
    }
}

#[derive(Clone, Debug)]
pub struct ChatTemplate {
    /// Whose it is, for messages.
    model: String,
    source: String,
    special_tokens: BTreeMap<String, String>,
    environment: Arc<Environment<'static>>,
}

impl ChatTemplate {
    /// Parses a template. `model` names its owner in messages; `special_tokens` are the variables
    /// `bos_token`, `eos_token` and the like, as `tokenizer_config.json` has them.
    pub fn new(
        model: &str,
        source: &str,
        special_tokens: BTreeMap<String, String>,
    ) -> Result<Self, Refusal> {
        let unusable = |problem: String| unusable(model, None, &problem);
        if source.len() > MAX_SOURCE_BYTES {
            let (got, most) = (source.len(), MAX_SOURCE_BYTES);
            return Err(unusable(format!("expected a text of at most {most} bytes, got {got}")));
        }
        let text = without_marks(source);
        let parsed = bounds::bounded(move || {
            let mut environment = environment();
            environment.add_template_owned(NAME, text).map(|()| environment)
        });
        let environment = parsed.map_err(unusable)?.map_err(|it| refused(model, &it))?;
        Ok(Self {
            model: model.to_owned(),
            source: source.to_owned(),
            special_tokens,
            environment: Arc::new(environment),
        })
    }

    /// A dialogue as text; `messages` are [`Message`](crate::Message)s, or anything with the fields that it reads.
    pub fn render(
        &self,
        messages: &(impl Serialize + ?Sized),
        rendering: &Rendering,
    ) -> Result<String, Refusal> {
        let now = rendering.unix_time;
        let strftime_now = Value::from_function(move |format: &str| strftime(format, now));
        let mut variables: BTreeMap<String, Value> = BTreeMap::new();
        for (name, token) in &self.special_tokens {
            variables.insert(name.clone(), Value::from(token.as_str()));
        }
        for (name, value) in &rendering.variables {
            variables.insert(name.clone(), Value::from(Serde(value)));
        }
        let fixed = [
            ("messages", Value::from(Serde(messages))),
            ("tools", Value::from(())),
            ("documents", Value::from(())),
            ("add_generation_prompt", Value::from(rendering.add_generation_prompt)),
            ("strftime_now", strftime_now),
        ];
        variables.extend(fixed.map(|(name, value)| (name.to_owned(), value)));
        let (environment, model) = (self.environment.clone(), self.model.clone());
        let rendered = bounds::bounded(move || {
            let template =
                environment.get_template(NAME).expect("the template was added when this was made");
            let mut written = Bounded::default();
            let done = template.render_captured_to(Value::from(variables), &mut written);
            // A value may be as deep as this thread's stack allows: none leaves it, in an error neither.
            let done = done.map(drop).map_err(|it| refused(&model, &it));
            (done, written)
        });
        let unusable = |problem: String| unusable(&self.model, None, &problem);
        let (done, written) = rendered.map_err(unusable)?;
        if written.full {
            return Err(unusable(format!("it writes more than {} MiB", MAX_RENDERED_BYTES >> 20)));
        }
        done?;
        Ok(String::from_utf8(written.bytes).expect("a template writes strings"))
    }

    /// The tags that the template writes before a thought and behind it. Nothing where it writes no thoughts.
    pub(crate) fn thought_tags(&self) -> Result<Option<(String, String)>, Refusal> {
        const THOUGHT: &str = "the thought";
        const ANSWER: &str = "the answer";
        let asked = serde_json::json!({ "role": "user", "content": "a question" });
        let said = serde_json::json!({ "role": "assistant", "content": ANSWER,
            "reasoning_content": THOUGHT, "reasoning": THOUGHT, "thinking": THOUGHT });
        let prompt = self.render(&[&asked], &Rendering::prompt())?;
        let rendering = Rendering { add_generation_prompt: false, ..Rendering::prompt() };
        // A template may refuse what others do not know.
        let Ok(whole) = self.render(&[&asked, &said], &rendering) else { return Ok(None) };
        let tags = || {
            let (open, rest) = whole.strip_prefix(&prompt)?.split_once(THOUGHT)?;
            Some((open.to_owned(), rest.split_once(ANSWER)?.0.to_owned()))
        };
        Ok(tags())
    }

    /// SHA-256 over the text and the special tokens that it may name.
    pub(crate) fn digest(&self) -> Sha256 {
        let mut digest = Sha256::new().chain_update(&self.source);
        for (name, token) in &self.special_tokens {
            digest.update([0]);
            digest.update(name);
            digest.update([0]);
            digest.update(token);
        }
        digest
    }
}

const NAME: &str = "chat_template";

fn environment() -> Environment<'static> {
    let mut it = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .expect("these delimiters are the usual ones");
    it.set_syntax(syntax);
    it.set_undefined_behavior(UndefinedBehavior::Lenient);
    it.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    let format = Value::from_function(filters::format);
    it.add_filter("format", move |state: &mut State, arguments: Rest<Value>| {
        check_widths(arguments.first())?;
        format.call(state, &arguments)
    });
    it.set_unknown_method_callback(|state, value, method, arguments| {
        if method == "format" {
            check_widths(Some(value))?;
        }
        minijinja_contrib::pycompat::unknown_method_callback(state, value, method, arguments)
    });
    it.set_fuel(Some(FUEL));
    it.set_debug(false);
    it.set_recursion_limit(RECURSION);
    it.add_function("raise_exception", raise_exception);
    it.add_filter("tojson", tojson);
    // In Python a text is a sequence too, and templates order their tests accordingly.
    it.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map)
    });
    it.add_test("iterable", |value: &Value| value.try_iter().is_ok() || value.as_str().is_some());
    it
}

/// The text without `{% generation %}`, which marks for transformers the tokens that the assistant wrote: its body is
/// rendered in a scope of its own, as `{% with %}` does.
fn without_marks(source: &str) -> String {
    let mut parts = source.split("{%");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let tag = part.trim_start_matches(['-', '+', ' ', '\n', '\t']);
        let (word, rest) =
            tag.split_at(tag.find(|it: char| !it.is_alphabetic()).unwrap_or(tag.len()));
        let is_bare = rest.trim_start().trim_start_matches(['-', '+']).starts_with("%}");
        let word = match word {
            "generation" if is_bare => "with",
            "endgeneration" if is_bare => "endwith",
            other => other,
        };
        text.extend(["{%", &part[..part.len() - tag.len()], word, rest]);
    }
    text
}

/// Refuses widths that would reserve all memory at once.
fn check_widths(format: Option<&Value>) -> Result<(), minijinja::Error> {
    let format = format.and_then(Value::as_str).unwrap_or_default();
    let digits = format.split(|it: char| !it.is_ascii_digit()).map(str::len).max();
    if digits > Some(4) || format.contains('*') {
        let problem = "format: expected widths of at most 9999, written out";
        return Err(invalid(problem));
    }
    Ok(())
}

/// The time in C's format of dates, in English and UTC.
fn strftime(format: &str, unix_time: i64) -> Result<String, minijinja::Error> {
    let items: Vec<Item<'_>> = StrftimeItems::new(format).collect();
    if items.contains(&Item::Error) {
        return Err(invalid(format!("strftime_now: unknown directive in `{format}`")));
    }
    let time = DateTime::from_timestamp(unix_time, 0).unwrap_or_default();
    Ok(time.format_with_items(items.iter()).to_string())
}

fn raise_exception(message: &str) -> Result<Value, minijinja::Error> {
    Err(invalid(format!("the template refuses this dialogue: {message}")))
}

fn invalid(problem: impl Into<Cow<'static, str>>) -> minijinja::Error {
    minijinja::Error::new(ErrorKind::InvalidOperation, problem)
}

fn refused(model: &str, error: &minijinja::Error) -> Refusal {
    // The innermost cause says what went wrong; the outer one says where.
    let mut cause = error;
    let mut line = error.line();
    while let Some(inner) =
        std::error::Error::source(cause).and_then(|it| it.downcast_ref::<minijinja::Error>())
    {
        cause = inner;
        line = inner.line().or(line);
    }
    let problem = match (cause.kind(), cause.detail()) {
        (ErrorKind::OutOfFuel, _) => format!("it does not end within {FUEL} instructions"),
        (ErrorKind::InvalidOperation, Some(detail)) => detail.to_owned(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    unusable(model, line, &problem)
}

/// A template that is none, or refuses a dialogue: at a line of its own, where there is one to name.
fn unusable(model: &str, line: Option<usize>, problem: &str) -> Refusal {
    let line = line.map_or_else(String::new, |it| format!(", line {it}"));
    Refusal::input(format!("chat template of {model}{line}: {problem}"))
}

#[derive(Default)]
struct Bounded {
    bytes: Vec<u8>,
    full: bool,
}

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + bytes.len() > MAX_RENDERED_BYTES {
            self.full = true;
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::json::python_float;
    use super::*;
    use crate::example::Message;

    fn render(source: &str, messages: &[Message]) -> Result<String, Refusal> {
        ChatTemplate::new("tiny", source, BTreeMap::new())?.render(&messages, &Rendering::prompt())
    }

    fn check_refused(source: &str, expected: &str) {
        let error = render(source, &[Message::new("user", "x")]).unwrap_err();
        assert_eq!(error.to_string(), expected, "{source}");
    }

    #[test]
    fn a_namespace_outlives_its_loop_and_marks_of_the_assistant_are_left_out() {
        let source = "{% set ns = namespace(n=1) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% set ns.t %}<{{ m.content }}>{% endset %}{% endfor %}{{ ns.n }}{{ ns.t }}{{ ns.x is defined }}";
        assert_eq!(render(source, &[Message::new("user", "x")]).unwrap(), "2<x>False");
        let marked =
            "{%- generation -%}\n x {% endgeneration %}{{ 'generation' }}{% set generation = 1 %}";
        assert_eq!(render(marked, &[]).unwrap(), "x generation");
    }

    #[test]
    fn a_refusal_names_the_model_the_line_and_the_cause() {
        check_refused(
            "{{ 1 }}\n{{ raise_exception('roles must alternate') }}",
            "chat template of tiny, line 2: the template refuses this dialogue: roles must alternate",
        );
        check_refused(
            "\n\n{% for m in messages %}",
            "chat template of tiny, line 3: syntax error: unexpected end of input, expected end of block",
        );
        check_refused(
            "{{ messages[0].content.swapcase() }}",
            "chat template of tiny, line 1: unknown method: string has no method named swapcase",
        );
        check_refused(
            "{{ strftime_now('%Q') }}",
            "chat template of tiny, line 1: strftime_now: unknown directive in `%Q`",
        );
        check_refused(
            "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
            "chat template of tiny, line 1: it does not end within 5000000 instructions",
        );
        check_refused(
            "{% set long = 'x' * 9999 * 99 %}{% for a in range(999) %}{{ long }}{% endfor %}",
            "chat template of tiny: it writes more than 4 MiB",
        );
        for source in ["{{ '%10000000000d'|format(1) }}", "{{ '{:>99999}'.format(1) }}"] {
            let problem = "format: expected widths of at most 9999, written out";
            check_refused(source, &format!("chat template of tiny, line 1: {problem}"));
        }
        let error =
            render("{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}", &[]).unwrap_err();
        assert!(error.to_string().contains("recursion limit"), "{error}");
    }

    #[test]
    fn the_longest_texts_are_parsed_or_refused() {
        if hapo_testing::slow() {
            return;
        }
        check_refused(
            &" ".repeat(300_000),
            "chat template of tiny: expected a text of at most 262144 bytes, got 300000",
        );
        // Trees as deep as a text can make them: whatever becomes of them, the program lives.
        for (start, part, end) in [
            ("{{ 1", "+1", " }}"),
            ("{{ 1", "~1", " }}"),
            ("{{ m", ".a", " }}"),
            ("{{ 1", "|d", " }}"),
            ("{{ 1", " and 1", " }}"),
            ("{{ ", "(", "1 }}"),
            ("{{ ", "[", "1 }}"),
            ("{{ ", "not(", "1 }}"),
            ("{{ ", "not ", "1 }}"),
            ("{{ ", "-", "1 }}"),
            ("{% if 0 %}", "{% elif 0 %}", "{% endif %}"),
            ("", "{% if 1 %}", ""),
            ("{{ 1", " if 1 else 1", " }}"),
        ] {
            let room = MAX_SOURCE_BYTES - start.len() - end.len();
            let source = [start, &part.repeat(room / part.len()), end].concat();
            let _ = render(&source, &[Message::new("user", "x")]);
        }
        // A value as deep as instructions can make it.
        let deep = "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% for j in range(9) %}{% set ns.x = [ns.x] %}{% endfor %}{% endfor %}";
        let _ = render(deep, &[]);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let check = |time: i64, format: &str, expected: &str| {
            assert_eq!(strftime(format, time).unwrap(), expected, "{time} {format}");
        };
        check(FIXED_TIME, "%d %b %Y", "26 Jul 2024");
        check(0, "%A %-d %B %Y %H:%M:%S %j", "Thursday 1 January 1970 00:00:00 001");
        // From `date -u -d @N +FORMAT`.
        check(951_827_696, "%F %T %j %I %p %a", "2000-02-29 12:34:56 060 12 PM Tue");
        check(-86_400, "%D %e|%y|%w%%", "12/31/69 31|69|3%");
        check(4_102_444_799, "%j %-m/%-d %R", "365 12/31 23:59");
    }

    #[test]
    fn numbers_are_pythons() {
        for (number, expected) in [
            (0.0, "0.0"),
            (1.5, "1.5"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.25e-5, "1.25e-05"),
            (0.0001, "0.0001"),
            (-1e300, "-1e+300"),
        ] {
            assert_eq!(python_float(number), expected);
        }
    }
}
