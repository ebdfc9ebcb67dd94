//! LaTeX as plain text.

use crate::cursor::Cursor;

/// LaTeX as the text that a reader of the source would type: `\frac{a}{b}` is `a/b` and `\sqrt[3]{x}` is `sqrt(x)`,
/// brackets and index lost.
pub(super) fn plain_text(s: &str) -> String {
    let s =
        s.replace("\\tfrac", "\\frac").replace("\\dfrac", "\\frac").replace("\\frac", " \\frac");
    let mut out = String::with_capacity(s.len());
    write_plain(&s, &mut out, 0);
    out.trim().to_owned()
}

const MAX_NESTING: usize = 48;

fn write_plain(s: &str, out: &mut String, depth: usize) {
    if depth > MAX_NESTING {
        out.push_str(s);
        return;
    }
    let mut cursor = Cursor::new(s);
    while let Some(c) = cursor.peek() {
        cursor.take(c.len_utf8());
        match c {
            '\\' => write_command(&mut cursor, out, depth),
            '{' | '}' => {}
            '~' => out.push(' '),
            '&' => out.push_str("   "),
            _ => out.push(c),
        }
    }
}

/// The argument here: a group, a command, or one character.
fn argument<'a>(cursor: &mut Cursor<'a>) -> &'a str {
    cursor.spaces();
    let start = *cursor;
    match cursor.peek() {
        None => "",
        Some('{') => match cursor.group() {
            Some(inner) => inner,
            None => &cursor.take(cursor.rest().len())[1..],
        },
        Some('\\') => {
            cursor.take(1);
            if cursor.letters().is_empty() {
                cursor.one(|_| true);
            }
            cursor.since(&start)
        }
        Some(c) => cursor.take(c.len_utf8()),
    }
}

/// Writes the command whose backslash was read.
fn write_command(cursor: &mut Cursor<'_>, out: &mut String, depth: usize) {
    match cursor.letters() {
        "" => match cursor.one(|_| true) {
            Some("," | ";" | ":" | " ") => out.push(' '),
            Some("\\") => out.push(';'),
            Some("!") | None => {}
            Some(sign) => out.push_str(sign),
        },
        "frac" | "cfrac" => {
            write_plain(argument(cursor), out, depth + 1);
            out.push('/');
            write_plain(argument(cursor), out, depth + 1);
        }
        "sqrt" => {
            let mut index = *cursor;
            index.spaces();
            if index.eat("[").is_some()
                && let Some(len) = index.rest().find(']')
            {
                index.take(len + 1);
                *cursor = index;
            }
            out.push_str("sqrt(");
            write_plain(argument(cursor), out, depth + 1);
            out.push(')');
        }
        name @ ("begin" | "end") => {
            out.push(if name == "begin" { '[' } else { ']' });
            argument(cursor);
        }
        name => {
            if FUNCTIONS.contains(&name) {
                out.push_str(name);
            } else if let Some((_, sign)) = SIGNS.iter().find(|it| it.0.contains(&name)) {
                out.push_str(sign);
            } else {
                // Any other symbol is a sign different from all others.
                out.extend(["\u{1}", name, "\u{1}"]);
            }
            // White space after a command belongs to it.
            cursor.spaces();
        }
    }
}

/// Commands that are written as their name.
#[rustfmt::skip]
const FUNCTIONS: [&str; 22] = [
    "pi", "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp", "arcsin", "arccos", "arctan", "sinh", "cosh",
    "tanh", "max", "min", "lim", "gcd", "det", "deg",
];

/// Commands that are written as a sign, or not at all.
#[rustfmt::skip]
const SIGNS: [(&[&str], &str); 13] = [
    (&["cdot", "times"], "*"), (&["div"], "÷"), (&["pm"], "±"), (&["infty"], "inf"), (&["cup"], "U"), (&["in"], "∈"),
    (&["le", "leq"], "≤"), (&["ge", "geq"], "≥"), (&["ne", "neq"], "≠"), (&["circ"], "∘"), (&["quad", "qquad"], " "),
    (&["left", "right", "displaystyle", "limits", "big", "Big", "bigg", "Bigg", "operatorname", "boxed", "fbox"], ""),
    (&["mathbf", "mathrm", "mathit", "text", "textbf", "textit", "textnormal", "textrm", "mbox", "rm"], ""),
];
