//! LaTeX as plain text.

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
    let mut rest = s;
    while let Some(c) = rest.chars().next() {
        match c {
            '\\' => rest = write_command(rest, out, depth),
            '{' | '}' => rest = &rest[1..],
            '~' => {
                out.push(' ');
                rest = &rest[1..];
            }
            '&' => {
                out.push_str("   ");
                rest = &rest[1..];
            }
            _ => {
                out.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
}

/// The argument at the start of `rest`: a group, a command, or one character; and what follows it.
fn argument(rest: &str) -> (&str, &str) {
    let rest = rest.trim_start();
    let Some(first) = rest.chars().next() else {
        return ("", "");
    };
    if first == '{' {
        return match crate::normalise::closing_brace(rest, 0, rest.len()) {
            Some(close) => (&rest[1..close], &rest[close + 1..]),
            None => (&rest[1..], ""),
        };
    }
    if first == '\\' {
        let letters = rest[1..].bytes().take_while(u8::is_ascii_alphabetic).count().max(1);
        let end = (1 + letters).min(rest.len());
        let end = (end..=rest.len()).find(|it| rest.is_char_boundary(*it)).unwrap_or(rest.len());
        return rest.split_at(end);
    }
    rest.split_at(first.len_utf8())
}

/// Writes the command at the start of `rest` and gives what follows it.
fn write_command<'a>(rest: &'a str, out: &mut String, depth: usize) -> &'a str {
    let letters = rest[1..].bytes().take_while(u8::is_ascii_alphabetic).count();
    if letters == 0 {
        let Some(c) = rest[1..].chars().next() else {
            return "";
        };
        match c {
            ',' | ';' | ':' | ' ' => out.push(' '),
            '\\' => out.push(';'),
            '!' => {}
            _ => out.push(c),
        }
        return &rest[1 + c.len_utf8()..];
    }
    let name = &rest[1..=letters];
    let after = &rest[1 + letters..];
    // White space after a command belongs to it.
    let next = after.trim_start();
    match name {
        "frac" | "cfrac" => {
            let (upper, after) = argument(after);
            let (lower, after) = argument(after);
            write_plain(upper, out, depth + 1);
            out.push('/');
            write_plain(lower, out, depth + 1);
            after
        }
        "sqrt" => {
            let index = next.strip_prefix('[').and_then(|it| it.split_once(']'));
            let (inner, after) = argument(index.map_or(after, |it| it.1));
            out.push_str("sqrt(");
            write_plain(inner, out, depth + 1);
            out.push(')');
            after
        }
        "mathbf" => {
            let (inner, after) = argument(after);
            out.extend(inner.chars().map(bold));
            after
        }
        "begin" | "end" => {
            out.push(if name == "begin" { '[' } else { ']' });
            argument(after).1
        }
        _ => {
            if FUNCTIONS.contains(&name) {
                out.push_str(name);
            } else if let Some((_, sign)) = SIGNS.iter().find(|it| it.0.contains(&name)) {
                out.push_str(sign);
            } else {
                // Any other symbol is a sign different from all others.
                out.push('\u{1}');
                out.push_str(name);
                out.push('\u{1}');
            }
            next
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
    (&["mathrm", "mathit", "text", "textbf", "textit", "textnormal", "textrm", "mbox", "rm"], ""),
];

/// The letter or digit of the bold mathematical alphabet.
fn bold(c: char) -> char {
    let bold = match c {
        '0'..='9' => char::from_u32(0x1D7CE + (c as u32 - '0' as u32)),
        'a'..='z' => char::from_u32(0x1D41A + (c as u32 - 'a' as u32)),
        'A'..='Z' => char::from_u32(0x1D400 + (c as u32 - 'A' as u32)),
        _ => None,
    };
    bold.unwrap_or(c)
}
