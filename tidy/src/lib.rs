//! The workspace's files as the tests about it read them.
//!
//! Purpose: rules that no compiler checks (arrows between crates, circles of modules, sizes, citations in the
//! documentation) are tests like any other. The price is a small lexer of Rust in place of a parser: it knows strings,
//! comments and braces, and nothing of types.

use std::path::{Path, PathBuf};

/// A file of the repository.
pub struct Source {
    /// Its path from the repository's root, with `/`.
    pub path: String,
    /// The contents.
    pub text: String,
}

/// True for a Rust file's path.
pub fn is_rust(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|it| it == "rs")
}

impl Source {
    /// True if the file is Rust of a program or a library, not a test.
    pub fn is_production(&self) -> bool {
        ["crates/", "verifier/", "lab/"].iter().any(|folder| self.path.starts_with(folder))
            && is_rust(&self.path)
            && self.path.contains("/src/")
            && !self.path.contains("/tests/")
            && !self.path.ends_with("/tests.rs")
    }

    /// The text without its test modules.
    pub fn production(&self) -> &str {
        let tests = self.text.match_indices("\n#[cfg(test)]\nmod ");
        let end = tests.map(|it| it.0).find(|&at| {
            let line = self.text[at + 1..].lines().nth(1);
            line.is_some_and(|it| it.ends_with('{'))
        });
        &self.text[..end.unwrap_or(self.text.len())]
    }
}

/// The repository's root.
///
/// # Panics
/// Where this package does not lie in the repository.
pub fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("a package in a folder").to_owned()
}

/// All files of the repository with one of these endings, in the order of their paths. Build outputs, runs, models and
/// recorded data are left out.
///
/// # Panics
/// Where a folder or a file cannot be read.
pub fn sources(endings: &[&str]) -> Vec<Source> {
    let mut all = Vec::new();
    read_folder(&root(), &root(), endings, &mut all);
    all.sort_by(|a, b| a.path.cmp(&b.path));
    all
}

fn read_folder(folder: &Path, root: &Path, endings: &[&str], all: &mut Vec<Source>) {
    const SKIPPED: [&str; 5] = [".git", "target", "runs", "models", "fixtures"];
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !SKIPPED.contains(&name.as_str()) {
                read_folder(&path, root, endings, all);
            }
        } else if endings.iter().any(|it| name.ends_with(it)) {
            let relative = path.strip_prefix(root).unwrap().to_string_lossy();
            all.push(Source {
                path: relative.replace('\\', "/"),
                text: std::fs::read_to_string(&path).unwrap(),
            });
        }
    }
}

/// A Rust text in two parts of the same lines.
pub struct Lexed {
    /// The code: comments are left out and strings are empty.
    pub code: String,
    /// The string literals, each with the line on which it begins, counted from 1.
    pub strings: Vec<(usize, String)>,
}

/// Separates code from comments and strings.
pub fn lex(text: &str) -> Lexed {
    let bytes: Vec<char> = text.chars().collect();
    let mut lexed = Lexed { code: String::new(), strings: Vec::new() };
    let (mut at, mut line) = (0, 1);
    while at < bytes.len() {
        let end = token_end(&bytes, at);
        let token: String = bytes[at..end].iter().collect();
        let lines = token.matches('\n').count();
        if token.starts_with("//") || token.starts_with("/*") {
            lexed.code.push_str(&"\n".repeat(lines));
        } else if token.starts_with('\'') && token.len() > 1 {
            lexed.code.push_str("' '");
        } else if token.contains('"') {
            lexed.code.push_str("\"\"");
            lexed.code.push_str(&"\n".repeat(lines));
            let inner = token.trim_matches(|it| "rb#".contains(it)).trim_matches('"');
            lexed.strings.push((line, inner.to_owned()));
        } else {
            lexed.code.push_str(&token);
        }
        line += lines;
        at = end;
    }
    lexed
}

/// Where the token that begins at `at` ends: a comment, a string, a character, a word, or one character of anything else.
fn token_end(text: &[char], at: usize) -> usize {
    let rest = &text[at..];
    let is_word = |it: &char| it.is_alphanumeric() || *it == '_';
    let until = |from: usize, stop: &dyn Fn(usize) -> bool| {
        (from..rest.len()).find(|&it| stop(it)).unwrap_or(rest.len())
    };
    let length = match rest {
        ['/', '/', ..] => until(2, &|it| rest[it] == '\n'),
        ['/', '*', ..] => until(2, &|it| rest[it..].starts_with(&['*', '/'])) + 2,
        ['"', ..] => quoted(rest, 0),
        ['\'', '\\', ..] => until(3, &|it| rest[it] == '\'') + 1,
        ['\'', _, '\'', ..] => 3,
        [first, ..] if is_word(first) => {
            let word = until(1, &|it| !is_word(&rest[it]));
            let hashes = until(word, &|it| rest[it] != '#') - word;
            let is_prefix = matches!(&rest[..word], ['b' | 'r'] | ['b', 'r']);
            match rest.get(word + hashes) {
                Some('"') if is_prefix && rest[..word].contains(&'r') => {
                    let close: Vec<char> =
                        std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
                    let open = word + hashes + 1;
                    until(open, &|it| rest[it..].starts_with(&close)) + close.len()
                }
                Some('"') if is_prefix && hashes == 0 => quoted(rest, word),
                _ => word,
            }
        }
        _ => 1,
    };
    (at + length).min(text.len())
}

/// The length of a string literal whose opening quote is at `open`.
fn quoted(text: &[char], open: usize) -> usize {
    let mut at = open + 1;
    while at < text.len() && text[at] != '"' {
        at += if text[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_comments_and_lifetimes_are_told_apart() {
        let text = "fn f<'a>(x: &'a str) { // \"no\"\n  g('\"', r#\"a \"b\" // c\"#, \"d\\\"e\"); /* { */ }";
        let lexed = lex(text);
        assert_eq!(lexed.code, "fn f<'a>(x: &'a str) { \n  g(' ', \"\", \"\");  }");
        let strings: Vec<(usize, &str)> =
            lexed.strings.iter().map(|it| (it.0, it.1.as_str())).collect();
        assert_eq!(strings, [(2, "a \"b\" // c"), (2, "d\\\"e")]);
    }
}
