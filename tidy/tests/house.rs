//! How the workspace's texts are written: words of the field, no decision without its sentence, bounded sizes.

use hapo_tidy::{Source, lex, sources};

/// Words that are not the field's, with those that are.
const WORDS: &[(&str, &str)] = &[
    ("card", "GPU"),
    ("cards", "GPUs"),
    ("processor", "CPU"),
    ("processors", "CPUs"),
    ("under way", "running, in flight"),
    ("goes on", "resumes, continues"),
    ("in the midst", "mid-step"),
    ("turned around", "flipped"),
    ("of ours", "the workspace's, native"),
];

/// Where such a word means something else: part of a path, and what is allowed there.
const ALLOWED: &[(&str, &str)] = &[
    // Boxes of the report's page.
    ("crates/hapo-report/", "card"),
    ("crates/hapo-report/", "cards"),
    ("scripts/end-to-end/browser_test.py", "card"),
    ("scripts/end-to-end/browser_test.py", "cards"),
    // It names what was.
    ("CHANGELOG.md", ""),
    // The test itself.
    ("tidy/tests/house.rs", ""),
    // Formulas and completions of models and people.
    ("crates/hapo-verify/tests/tables/", ""),
];

/// What has not been gone over yet: its words and types are not checked.
const OPEN: &[&str] = &[];

/// Names that say a sentence in place of a thing.
const TYPES: &[&str] = &[
    "Said", "Asked", "Told", "Keep", "Shown", "Seen", "Trouble", "Dialogue", "Begin", "Patience",
    "Mark", "Place", "Draws", "OpenUpTo", "Sums", "Card", "CardFull",
];

const LONGEST_FUNCTION: usize = 130;
const FILE_P95: usize = 600;

#[test]
fn words_are_those_of_the_field() {
    let endings = [".rs", ".md", ".toml", ".py", ".sh", ".cu", ".cuh", ".html", ".js", ".css"];
    let mut found = Vec::new();
    for source in sources(&endings).iter().filter(|it| !is_open(it)) {
        for (number, line) in source.text.lines().enumerate() {
            for (word, instead) in wrong_words(line) {
                let is_allowed = ALLOWED.iter().any(|(path, allowed)| {
                    source.path.starts_with(path) && (allowed.is_empty() || *allowed == word)
                });
                if !is_allowed {
                    found.push(format!("{}:{}: `{word}`: {instead}", source.path, number + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn a_wrong_word_is_found_and_a_longer_one_is_not() {
    let words = |line| -> Vec<&str> { wrong_words(line).into_iter().map(|it| it.0).collect() };
    assert_eq!(words("the Card's `card_memory`"), ["card", "card"]);
    assert_eq!(words("discarded, postprocessor, golden, a model card"), [""; 0]);
    assert_eq!(words("requests under way; it goes on"), ["under way", "goes on"]);
}

#[test]
fn types_are_named_by_what_they_are() {
    let mut found = Vec::new();
    for source in rust().iter().filter(|it| !is_open(it)) {
        let lexed = lex(&source.text);
        for (number, line) in lexed.code.lines().enumerate() {
            let words: Vec<&str> = line
                .split(|it: char| !it.is_alphanumeric() && it != '_')
                .filter(|it| !it.is_empty())
                .collect();
            for pair in words.windows(2) {
                let declares = ["struct", "enum", "trait", "type", "union"].contains(&pair[0]);
                if declares && TYPES.contains(&pair[1]) {
                    found.push(format!("{}:{}: {}", source.path, number + 1, pair[1]));
                }
            }
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// A user has no page of decisions at hand: a message says the sentence.
#[test]
fn no_message_names_a_decision_by_its_number() {
    let mut found = Vec::new();
    for source in rust().iter().filter(|it| it.is_production()) {
        for (line, text) in lex(source.production()).strings {
            if names_a_decision(&text) {
                found.push(format!("{}:{line}: {text}", source.path));
            }
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn functions_and_files_are_not_too_long() {
    let (mut files, mut long) = (Vec::new(), Vec::new());
    for source in rust().iter().filter(|it| it.is_production()) {
        let text = source.production();
        files.push(text.lines().count());
        let is_kernel = ["crates/hapo-kernels/", "crates/hapo-cuda/"]
            .iter()
            .any(|it| source.path.starts_with(it));
        if !is_kernel && !is_open(source) {
            for (line, length) in functions(&lex(text).code) {
                if length > LONGEST_FUNCTION {
                    long.push(format!("{}:{line}: {length} lines", source.path));
                }
            }
        }
    }
    assert!(long.is_empty(), "\n{}", long.join("\n"));
    files.sort_unstable_by_key(|it| std::cmp::Reverse(*it));
    let p95 = files[files.len() / 20];
    assert!(p95 <= FILE_P95, "a twentieth of the files has more than {p95} lines");
}

#[test]
fn the_length_of_a_function_is_from_its_first_line_to_its_brace() {
    let code = "trait T {\n fn declared(&self);\n}\npub(crate) const fn one<T>(\n a: T,\n) {\n if a {\n }\n}\n";
    assert_eq!(functions(code), [(4, 6)]);
}

fn is_open(source: &Source) -> bool {
    OPEN.iter().any(|it| source.path.starts_with(it))
}

fn rust() -> Vec<Source> {
    sources(&[".rs"])
}

/// The words of [`WORDS`] in a line, each as often as it stands there.
fn wrong_words(line: &str) -> Vec<(&'static str, &'static str)> {
    let lower = line.to_lowercase();
    let mut found = Vec::new();
    for (word, instead) in WORDS {
        for (at, _) in lower.match_indices(word) {
            let before = lower[..at].chars().next_back();
            let after = lower[at + word.len()..].chars().next();
            let stands_alone = ![before, after].iter().flatten().any(|it| it.is_alphanumeric());
            // Model cards, and a key of tokenizer files.
            let is_a_term = ["model ", "post_"].iter().any(|it| lower[..at].ends_with(it));
            if stands_alone && !is_a_term {
                found.push((*word, *instead));
            }
        }
    }
    found
}

fn names_a_decision(text: &str) -> bool {
    let mut words = text.split(|it: char| !it.is_alphanumeric() && it != '_');
    words.any(|it| {
        let number = it.strip_prefix('D').and_then(|it| it.parse::<u32>().ok());
        number.is_some_and(|it| (1..=30).contains(&it))
    })
}

/// The line and the length of every function with a body.
fn functions(code: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = code.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_function = words.iter().position(|it| *it == "fn").is_some_and(|at| {
            let qualifiers = ["const", "unsafe", "async", "extern", "\"\""];
            words[..at].iter().all(|it| it.starts_with("pub") || qualifiers.contains(it))
        });
        if !is_function {
            continue;
        }
        let (mut depth, mut has_body) = (0_i64, false);
        for (length, line) in lines[at..].iter().enumerate() {
            depth += line.matches('{').count() as i64 - line.matches('}').count() as i64;
            has_body |= line.contains('{');
            if has_body && depth <= 0 {
                found.push((at + 1, length + 1));
                break;
            }
            if !has_body && line.trim_end().ends_with(';') {
                break;
            }
        }
    }
    found
}
