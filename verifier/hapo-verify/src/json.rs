//! The answer of an object of JSON.

const MAX_ELEMENTS: usize = 16;

const MAX_LINE: usize = 32_768;

/// The value behind a key of JSON that names the answer, and where it ends in `rest`.
pub(crate) fn json_value(before: &str, rest: &str) -> Option<(String, usize)> {
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let key = before.rsplit(quote).next().filter(|it| it.len() < before.len())?;
    let is_key =
        key.len() < 16 && key.chars().all(|c| c.is_ascii_alphabetic() || "_ -".contains(c));
    let value = rest[1..].trim_start().strip_prefix(':').filter(|_| is_key)?.trim_start();
    let (value, left) = json(value, 0)?;
    let holds = |c: char| c.is_alphanumeric() || c == '\\';
    value.contains(holds).then(|| (value, rest.len() - left.len()))
}

/// A value of JSON as text, the elements of a list joined by commas, and what follows it.
fn json(text: &str, depth: usize) -> Option<(String, &str)> {
    let quote = text.chars().next()?;
    if matches!(quote, '"' | '\'') {
        return json_string(&text[1..], quote);
    }
    if !matches!(quote, '[' | '{') {
        let end = text.find([',', '}', ']', '\n']).unwrap_or(text.len());
        return Some((text[..end].trim().to_owned(), &text[end..]));
    }
    let (mut values, mut rest) = (Vec::new(), text[1..].trim_start());
    while !rest.starts_with([']', '}']) && values.len() < MAX_ELEMENTS && depth < 2 {
        if quote == '{' {
            rest = rest[rest.find(':')? + 1..].trim_start();
        }
        let (value, after) = json(rest, depth + 1)?;
        values.push(value);
        rest = after.trim_start().trim_start_matches(',').trim_start();
    }
    // Names tell several values apart, and nothing says which one is asked.
    let rest = rest.strip_prefix([']', '}']).filter(|_| quote == '[' || values.len() == 1)?;
    let is_list_of_lists = quote == '[' && depth > 0;
    let joined = values.join(", ");
    Some((if is_list_of_lists { format!("({joined})") } else { joined }, rest))
}

fn json_string(text: &str, quote: char) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut chars = text.char_indices().take(MAX_LINE);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next()?.1 {
                it @ ('\\' | '"' | '\'' | '/') => out.push(it),
                // Commands of LaTeX are often written with one backslash.
                'n' if !text[at + 2..].starts_with(|c: char| c.is_ascii_lowercase()) => {
                    out.push('\n');
                }
                it => out.extend(['\\', it]),
            },
            c if c == quote => return Some((out, &text[at + 1..])),
            c => out.push(c),
        }
    }
    None
}
