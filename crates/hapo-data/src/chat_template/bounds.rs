//! Limits of a template: its text, its stack, its time and its memory.
//!
//! Purpose: minijinja counts the instructions of a rendering, not the work of each. So functions that expand text check
//! the length first; everything else runs on a thread with a stack that the longest text cannot fill, and the caller
//! abandons that thread after [`TIME`] or [`MEMORY`].
//!
//! Price: a thread per rendering, some 30 µs. A thread cannot be stopped from outside: an abandoned one runs until the
//! program ends, which should be soon.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use minijinja::value::{Kwargs, Rest, Value};
use minijinja::{Environment, Error, ErrorKind, State, filters};

/// Longest text of a template, in bytes; published ones have up to 40,000.
pub const MAX_SOURCE_BYTES: usize = 256 << 10;
/// Longest time of one rendering.
pub const TIME: Duration = Duration::from_secs(10);
/// Most bytes that one rendering may add to the program's memory, on systems that report it.
pub const MEMORY: u64 = 1 << 30;
/// Longest text that a filter or method makes, and that a rendering writes.
pub const MAX_RENDERED_BYTES: usize = 4 << 20;
/// `not`, `-` and `+` before one value.
const UNARY: usize = 100;
/// Room for the recursion of a parser over the longest text.
const STACK: usize = 256 << 20;
/// Columns that a text is indented or padded by.
const WIDTH: usize = 9999;

/// Refuses texts on which the parser would recurse without end.
pub(super) fn check_source(source: &str) -> Result<(), String> {
    if source.len() > MAX_SOURCE_BYTES {
        let (got, most) = (source.len(), MAX_SOURCE_BYTES);
        return Err(format!("expected a text of at most {most} bytes, got {got}"));
    }
    let longest = longest_unary_run(source);
    if longest > UNARY {
        return Err(format!("expected at most {UNARY} signs before a value, got {longest}"));
    }
    Ok(())
}

/// The most `not`, `-` and `+` in a row inside the tags of a template.
fn longest_unary_run(source: &str) -> usize {
    let bytes = source.as_bytes();
    let (mut at, mut in_tag, mut run, mut longest) = (0, false, 0, 0);
    while at < bytes.len() {
        let rest = &bytes[at..];
        let word = rest.iter().take_while(|it| it.is_ascii_alphanumeric() || **it == b'_').count();
        at += match rest {
            [b'{', b'#', ..] if !in_tag => source[at..].find("#}").map_or(rest.len(), |it| it + 2),
            [b'{', b'{' | b'%', ..] if !in_tag => {
                (in_tag, run) = (true, 0);
                2
            }
            _ if !in_tag => 1,
            [b'}' | b'%', b'}', ..] => {
                in_tag = false;
                2
            }
            [quote @ (b'"' | b'\''), text @ ..] => {
                run = 0;
                1 + end_of_text(text, *quote)
            }
            [b'-' | b'+', ..] => {
                run += 1;
                1
            }
            [it, ..] if it.is_ascii_whitespace() => 1,
            _ if word > 0 => {
                run = if &rest[..word] == b"not" { run + 1 } else { 0 };
                word
            }
            _ => {
                run = 0;
                1
            }
        };
        longest = longest.max(run);
    }
    longest
}

/// How many bytes of a text come up to its closing quote, that included.
pub(super) fn end_of_text(text: &[u8], quote: u8) -> usize {
    let mut escaped = false;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            it if *it == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Does the work on a thread with room for it, and gives up on it when it takes too much.
pub(super) fn bounded<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    const FIRST_LOOK: Duration = Duration::from_millis(20);
    const LOOKS: Duration = Duration::from_millis(5);
    let (done, result) = mpsc::channel();
    let before = resident().unwrap_or(0);
    let started = Instant::now();
    let thread = std::thread::Builder::new()
        .name("chat template".to_owned())
        .stack_size(STACK)
        .spawn(move || {
            // Nobody listens any more when this took too long.
            let _ = done.send(work());
        })
        .map_err(|it| format!("no thread to render it: {it}"))?;
    let mut wait = FIRST_LOOK;
    let answered = loop {
        match result.recv_timeout(wait) {
            Ok(it) => break Ok(it),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                break Err("the template engine fails on it".to_owned());
            }
            Err(mpsc::RecvTimeoutError::Timeout) => wait = LOOKS,
        }
        if started.elapsed() > TIME {
            return Err(format!("it does not end within {} s", TIME.as_secs()));
        }
        if resident().is_some_and(|it| it > before + MEMORY) {
            return Err(format!("it takes more than {} MiB", MEMORY >> 20));
        }
    };
    // A thread that is let go while it ends can crash the program: `pthread_detach` of glibc 2.36 reads its memory, which
    // its end has unmapped. A panic of the thread is the failure above.
    let _ = thread.join();
    answered
}

/// Memory of the program, in bytes.
fn resident() -> Option<u64> {
    const PAGE: u64 = 4096;
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(pages.split(' ').nth(1)?.parse::<u64>().ok()? * PAGE)
}

/// Length of a value's output if it is a text, a guess otherwise.
fn length(value: &Value) -> usize {
    value.as_str().map_or(64, str::len)
}

/// Refuses texts beyond the limit before they are made.
fn fits(length: Option<usize>, what: &str) -> Result<(), Error> {
    match length {
        Some(it) if it <= MAX_RENDERED_BYTES => Ok(()),
        _ => Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("{what} makes more than {} MiB", MAX_RENDERED_BYTES >> 20),
        )),
    }
}

fn check_replace(text: &str, arguments: &[Value]) -> Result<(), Error> {
    let [from, to, ..] = arguments else { return Ok(()) };
    let matches = text.matches(from.as_str().unwrap_or("\0")).count();
    let added = matches.checked_mul(length(to));
    fits(added.and_then(|it| it.checked_add(text.len())), "replace")
}

fn check_format(text: &str, arguments: &[Value]) -> Result<(), Error> {
    let longest = text.split(|it: char| !it.is_ascii_digit()).map(str::len).max().unwrap_or(0);
    if longest > 4 || text.contains('*') {
        let problem = format!("format: expected widths of at most {WIDTH}, written out");
        return Err(Error::new(ErrorKind::InvalidOperation, problem));
    }
    let places = text.matches(['%', '{']).count();
    let each = arguments.iter().map(length).max().unwrap_or(0) + WIDTH;
    fits(places.checked_mul(each).and_then(|it| it.checked_add(text.len())), "format")
}

fn check_join(joiner: usize, items: Option<&Value>) -> Result<(), Error> {
    let mut total = Some(0_usize);
    for it in items.into_iter().filter_map(|it| it.try_iter().ok()).flatten() {
        total = total.and_then(|sum| sum.checked_add(length(&it) + joiner));
        fits(total, "join")?;
    }
    Ok(())
}

/// A check of a filter's arguments: the value, then the others.
type Check = fn(&[Value]) -> Result<(), Error>;

/// Puts limits on the filters and methods that make long texts out of short ones.
pub(super) fn limit(environment: &mut Environment<'static>) {
    let filters: [(&str, Value, Check); 4] = [
        ("replace", Value::from_function(filters::replace), |it| {
            check_replace(text(it), it.get(1..).unwrap_or_default())
        }),
        ("format", Value::from_function(filters::format), |it| {
            check_format(text(it), it.get(1..).unwrap_or_default())
        }),
        ("join", Value::from_function(filters::join), |it| {
            check_join(it.get(1).map_or(0, length), it.first())
        }),
        ("indent", Value::from_function(filters::indent), |it| {
            let width = it.get(1..).unwrap_or_default().iter().map(width).max();
            check_indent(text(it), width.unwrap_or(4))
        }),
    ];
    for (name, original, check) in filters {
        let limited = move |state: &mut State, arguments: Rest<Value>, named: Kwargs| {
            let mut all = arguments.to_vec();
            if named.args().next().is_some() {
                all.push(Value::from(named));
            }
            check(&all)?;
            original.call(state, &all)
        };
        environment.add_filter(name, limited);
    }
    environment.set_unknown_method_callback(|state, value, method, arguments| {
        match (value.as_str(), method) {
            (Some(it), "replace") => check_replace(it, arguments)?,
            (Some(it), "format") => check_format(it, arguments)?,
            (Some(it), "join") => check_join(it.len(), arguments.first())?,
            _ => {}
        }
        minijinja_contrib::pycompat::unknown_method_callback(state, value, method, arguments)
    });
}

fn text(arguments: &[Value]) -> &str {
    arguments.first().and_then(Value::as_str).unwrap_or_default()
}

/// The width among the arguments of `indent`, by place or by name.
fn width(argument: &Value) -> usize {
    let named = argument.get_attr("width").ok().and_then(|it| it.as_usize());
    argument.as_usize().or(named).unwrap_or(0)
}

fn check_indent(text: &str, width: usize) -> Result<(), Error> {
    let lines = text.matches('\n').count() + 1;
    fits(width.checked_mul(lines).and_then(|it| it.checked_add(text.len())), "indent")
}

#[cfg(test)]
mod tests {
    use super::longest_unary_run;

    #[test]
    fn only_signs_in_a_row_before_a_value_count() {
        for (source, expected) in [
            ("---- not not {# {{ ---- #}", 0),
            ("{{ not not - 1 }} {{- 1 -}}", 3),
            ("{%- if not a and not b -%}--{% endif %}", 1),
            ("{{ '----' ~ \"\\\"----\" - -1 }}", 2),
            ("{{ not_a not", 1),
            ("{{ é - - '", 2),
        ] {
            assert_eq!(longest_unary_run(source), expected, "{source}");
        }
    }
}
