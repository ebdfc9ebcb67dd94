//! A read error is not "not there": results of system calls on files are not turned into nothing.

use hapo_tidy::{Source, lex, sources};

/// Places that may: each has a comment beside it that says what happens on EIO.
const MOST: usize = 25;

/// What asks the system about a file.
const CALLS: [&str; 13] = [
    "fs::",
    "File::",
    ".open(",
    "read_dir",
    "metadata(",
    "found_at(",
    "canonicalize(",
    "read_link(",
    "read_to_string(",
    "read_json(",
    "entries(",
    "list_checkpoints(",
    "history_until(",
];

/// What turns an error into nothing.
const LOSSES: [&str; 13] = [
    ".ok()",
    "Result::ok",
    "let Ok(",
    "is_ok()",
    "is_ok_and(",
    "is_err()",
    "unwrap_or(",
    "unwrap_or_else(",
    "unwrap_or_default(",
    ".map_or(",
    ".map_or_else(",
    ".flatten()",
    "Err(_) =>",
];

#[test]
fn read_errors_are_told_from_absence() {
    let (mut bare, mut reasoned) = (Vec::new(), Vec::new());
    for source in sources(&[".rs"]) {
        if !source.path.starts_with("crates/") || !source.is_production() {
            continue;
        }
        for (line, has_reason) in losses(&source) {
            let place = format!("{}:{line}", source.path);
            if has_reason { reasoned.push(place) } else { bare.push(place) }
        }
    }
    let rule = "hand the result to hapo_core::if_there, or say in a comment what happens on EIO";
    assert!(bare.is_empty(), "{rule}:\n{}", bare.join("\n"));
    assert!(reasoned.len() <= MOST, "at most {MOST}:\n{}", reasoned.join("\n"));
}

/// The lines on which an error of the system is lost, and whether a comment there says what that does.
fn losses(source: &Source) -> Vec<(usize, bool)> {
    let text: Vec<&str> = source.production().lines().collect();
    let code = lex(source.production()).code;
    let (mut found, mut line) = (Vec::new(), 1);
    for statement in code.split_inclusive([';', '{', '}']) {
        let first = line + statement.len() - statement.trim_start().len();
        let begin = line + statement[..first - line].matches('\n').count();
        line += statement.matches('\n').count();
        if !loses(statement) {
            continue;
        }
        let beside = &text[begin.saturating_sub(6)..line.min(text.len())];
        found.push((begin, beside.iter().any(|it| it.contains("//") && it.contains("EIO"))));
    }
    found
}

fn loses(statement: &str) -> bool {
    let is_word = |it: char| it.is_alphanumeric() || it == '_';
    // Also a body of HTTP has a method of that name.
    let is_method =
        |at: usize, call: &str| call == "read_to_string(" && statement[..at].ends_with('.');
    let begins = |at: usize| !statement[..at].ends_with(is_word);
    let asks = CALLS.iter().any(|call| {
        let mut found = statement.match_indices(call);
        found.any(|(at, _)| (!call.starts_with(is_word) || begins(at)) && !is_method(at, call))
    });
    let is_lost = LOSSES.iter().any(|loss| statement.contains(loss));
    // `if_there` has told the errors from absence.
    let is_told = statement.contains("if_there(") || statement.contains("map_err(");
    // Asked of a path, not of what was found there.
    let of_a_path = [".is_file()", ".is_dir()", ".is_symlink()"].iter().any(|question| {
        statement.match_indices(question).any(|(at, _)| {
            let before = &statement[..at];
            let start = before.rfind(|it: char| !it.is_alphanumeric() && it != '_');
            let receiver = &before[start.map_or(0, |at| at + 1)..];
            let is_metadata = ["found", "benchmark"].contains(&receiver);
            let asks_for_it = ["metadata(", "found_at("].iter().any(|it| statement.contains(it));
            !is_metadata && !asks_for_it
        })
    });
    statement.contains(".exists()") || of_a_path || asks && is_lost && !is_told
}

#[test]
fn losses_are_found_and_their_reasons() {
    let of = |text: &str| {
        let path = "crates/a/src/b.rs".to_owned();
        losses(&Source { path, text: text.to_owned() })
    };
    assert_eq!(of("fn a() {\n    let b = fs::read(c).ok();\n}\n"), [(2, false)]);
    assert_eq!(
        of("fn a() {\n    // On EIO nothing.\n    let b = fs::read(c)\n        .ok();\n}"),
        [(3, true)]
    );
    assert_eq!(of("fn a() {\n    if path.exists() {\n    }\n}"), [(2, false)]);
    assert_eq!(of("fn a() {\n    if path.is_dir() && b {\n    }\n}"), [(2, false)]);
    assert!(of("fn a() {\n    if found.is_dir() {\n    }\n    if_there(p, fs::read(p))?.unwrap_or_default();\n}").is_empty());
    assert!(of("fn a() {\n    let b = text.parse().ok();\n}").is_empty());
    assert_eq!(of("fn a() {\n    let b = found_at(c).ok();\n}"), [(2, false)]);
    assert!(
        of("fn a() {\n    if found_at(c)?.is_some_and(|it| it.is_dir()) {\n    }\n}").is_empty()
    );
}
