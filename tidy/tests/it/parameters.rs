//! Functions have few parameters, and no tuple or array hides one.
//!
//! A tuple parameter, or a pattern that opens an array, counts as its members; `self` does not count.

use hapo_tidy::{Source, lex, sources};

const MOST: usize = 5;

/// Number formats, shapes and spans of a kernel, and the signatures of Python.
const FREE: &[&str] =
    &["crates/hapo-kernels/", "crates/hapo-cuda/", "crates/hapo-python/", "/src/kernels/"];

#[test]
fn functions_have_at_most_five_parameters_with_tuples_and_arrays_opened() {
    let mut found = Vec::new();
    for source in sources(&[".rs"]).iter().filter(|source| is_counted(source)) {
        for (name, line, parameters) in functions(&lex(source.production()).code) {
            if parameters > MOST {
                found.push(format!("{}:{line}: {name} has {parameters}", source.path));
            }
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn tuples_arrays_generics_and_self_are_counted_as_they_should_be() {
    let code = "
        fn plain(&self, a: usize, b: Option<(u8, u8)>) {}
        fn opened((a, b): (u8, u8), [c, d]: [u8; 2], e: (f64, &[u8])) {}
        pub(crate) fn generic<T: Fn(u8, u8) -> u8>(mut self, f: impl Fn(u8, u8), g: [f32; 3]) {}
        fn typed(x: Vec<HashMap<u8, u8>>, Pair { a, b }: Pair, y: fn(u8, u8) -> u8) {}
        trait T { fn none(self: &Arc<Self>); }";
    let found: Vec<(String, usize)> =
        functions(code).into_iter().map(|(name, _, count)| (name, count)).collect();
    let expected = [("plain", 2), ("opened", 6), ("generic", 2), ("typed", 3), ("none", 0)];
    assert_eq!(found, expected.map(|(name, count)| (name.to_owned(), count)));
}

fn is_counted(source: &Source) -> bool {
    source.is_production() && !FREE.iter().any(|folder| source.path.contains(folder))
}

/// Every function's name, line and number of parameters.
fn functions(code: &str) -> Vec<(String, usize, usize)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_') {
            continue;
        }
        let rest = &code[at + 3..];
        let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (name, mut rest) = rest.split_at(length);
        if rest.starts_with('<') {
            rest = &rest[bracketed(rest)..];
        }
        // Not the type of a function.
        if name.is_empty() || !rest.starts_with('(') {
            continue;
        }
        let parameters = split(&rest[1..bracketed(rest) - 1]);
        let count = parameters.iter().map(|parameter| opened(parameter)).sum();
        found.push((name.to_owned(), code[..at].matches('\n').count() + 1, count));
    }
    found
}

/// The number of values in a parameter.
fn opened(parameter: &str) -> usize {
    let parameter = parameter.trim_start_matches(['&', ' ']).trim_start_matches("mut ");
    let word = parameter.split([' ', ':']).next().unwrap_or_default();
    if word == "self" || parameter.starts_with('\'') && parameter.ends_with("self") {
        return 0;
    }
    let (pattern, kind) = parts(parameter);
    let (of_pattern, of_type) = (values(pattern, "(["), values(kind, "("));
    of_pattern.max(of_type)
}

/// The number of values in a pattern or type that begins with one of the brackets.
fn values(text: &str, brackets: &str) -> usize {
    let text = text.trim();
    if !text.starts_with(|c| brackets.contains(c)) {
        return 1;
    }
    let inner = split(&text[1..bracketed(text) - 1]);
    inner.iter().map(|part| values(part, brackets)).sum()
}

/// A parameter's pattern and type.
fn parts(parameter: &str) -> (&str, &str) {
    let mut depth = 0;
    for (at, c) in parameter.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ':' if depth == 0 => return (&parameter[..at], &parameter[at + 1..]),
            _ => {}
        }
    }
    (parameter, "")
}

/// The parts between commas outside brackets.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut at) = (vec![String::new()], 0);
    while let Some(c) = text[at..].chars().next() {
        let end = if "([{<".contains(c) { at + bracketed(&text[at..]) } else { at + c.len_utf8() };
        match c {
            ',' => parts.push(String::new()),
            _ => parts.last_mut().expect("one part at least").push_str(&text[at..end]),
        }
        at = end;
    }
    let parts = parts.into_iter().map(|part| part.trim().to_owned());
    parts.filter(|part| !part.is_empty()).collect()
}

/// The length of the bracket that a text begins with, both ends included. An arrow closes nothing.
fn bracketed(text: &str) -> usize {
    let (mut depth, mut before) = (0, ' ');
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            '>' if before == '-' || before == '=' => {}
            ')' | ']' | '}' | '>' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + c.len_utf8();
        }
        before = c;
    }
    text.len()
}
