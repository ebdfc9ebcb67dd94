//! Spellings that the reference graders cannot read, rewritten as LaTeX: used with [`crate::Strictness::Truth`] alone.
//!
//! One pass over the characters; the price is that a spaced list of three-digit numbers (`1 200`) reads as one number.

/// `text` with signs as commands and thousands groups joined.
pub(crate) fn as_meant(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '√' | '∛' | '∜' => {
                let index = match c {
                    '∛' => "[3]",
                    '∜' => "[4]",
                    _ => root_index(&mut out),
                };
                out.push_str("\\sqrt");
                out.push_str(index);
                match chars.peek() {
                    Some('(') => {
                        // The parenthesis bounds the radicand.
                        chars.next();
                        out.push('{');
                        let mut level = 1_usize;
                        for c in chars.by_ref() {
                            match c {
                                '(' => level += 1,
                                ')' => level -= 1,
                                _ => {}
                            }
                            if level == 0 {
                                break;
                            }
                            out.push(c);
                        }
                        out.push('}');
                    }
                    Some(d) if d.is_ascii_digit() => {
                        out.push('{');
                        while let Some(d) = chars.next_if(|d| d.is_ascii_digit() || *d == '.') {
                            out.push(d);
                        }
                        out.push('}');
                    }
                    Some('{') | None => {}
                    Some(_) => {
                        out.push('{');
                        out.extend(chars.next());
                        out.push('}');
                    }
                }
            }
            '∞' => out.push_str("\\infty "),
            '°' | '˚' => out.push_str("^\\circ"),
            '·' => out.push_str("\\cdot "),
            '⁄' => out.push('/'),
            '\u{a0}' | '\u{2009}' | '\u{202f}' => out.push(' '),
            '\u{202a}'..='\u{202e}' | '\u{200b}'..='\u{200f}' => {}
            _ => {
                if let Some(fraction) = vulgar_fraction(c) {
                    out.push_str(fraction);
                } else if let Some(digit) = superscript(c) {
                    out.push_str("^{");
                    out.push(digit);
                    while let Some(next) = chars.peek().copied().and_then(superscript) {
                        out.push(next);
                        chars.next();
                    }
                    out.push('}');
                } else {
                    out.push(plain_digit(c));
                }
            }
        }
    }
    joined_thousands(&out.replace("\\mathrm{i}", "i").replace("\\text{i}", "i"))
}

/// A superscript just written before a root sign is its index.
fn root_index(out: &mut String) -> &'static str {
    for (power, index) in [("^{3}", "[3]"), ("^{4}", "[4]")] {
        let alone = out
            .strip_suffix(power)
            .is_some_and(|it| !it.ends_with(|c: char| c.is_alphanumeric() || c == ')'));
        if alone {
            out.truncate(out.len() - power.len());
            return index;
        }
    }
    ""
}

fn vulgar_fraction(c: char) -> Option<&'static str> {
    Some(match c {
        '½' => "\\frac{1}{2}",
        '⅓' => "\\frac{1}{3}",
        '⅔' => "\\frac{2}{3}",
        '¼' => "\\frac{1}{4}",
        '¾' => "\\frac{3}{4}",
        '⅕' => "\\frac{1}{5}",
        '⅙' => "\\frac{1}{6}",
        '⅛' => "\\frac{1}{8}",
        _ => return None,
    })
}

fn superscript(c: char) -> Option<char> {
    Some(match c {
        '⁰' => '0',
        '¹' => '1',
        '²' => '2',
        '³' => '3',
        '⁴'..='⁹' => char::from(b'4' + (c as u32 - '⁴' as u32) as u8),
        '⁻' => '-',
        _ => return None,
    })
}

/// Digits of the mathematical alphabets and full-width digits as plain ones.
fn plain_digit(c: char) -> char {
    match c as u32 {
        code @ 0x1D7CE..=0x1D7FF => char::from(b'0' + ((code - 0x1D7CE) % 10) as u8),
        code @ 0xFF10..=0xFF19 => char::from(b'0' + (code - 0xFF10) as u8),
        _ => c,
    }
}

/// `1\,625` and `1 625` as `1625`.
fn joined_thousands(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    // Digits of the number that `out` ends with, while it may still be a first group.
    let mut n_digits = 0_usize;
    while let Some(c) = rest.chars().next() {
        if c.is_ascii_digit() {
            n_digits += 1;
            out.push(c);
            rest = &rest[1..];
            continue;
        }
        if (1..=3).contains(&n_digits) {
            let separator =
                ["{\\,}", "\\,", "\\;", "\\ ", "~", " "].iter().find(|it| rest.starts_with(**it));
            if let Some(separator) = separator {
                let after = &rest[separator.len()..];
                let group = after.bytes().take_while(u8::is_ascii_digit).count();
                if group == 3 {
                    out.push_str(&after[..3]);
                    rest = &after[3..];
                    n_digits = 3;
                    continue;
                }
            }
        }
        // After a decimal point nothing is grouped.
        n_digits = if c == '.' && n_digits > 0 { 4 } else { 0 };
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    out
}
