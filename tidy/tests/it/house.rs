//! How the workspace's texts are written: no decision without its sentence, bounded sizes.

use hapo_tidy::{Source, lex, sources};

const LONGEST_FUNCTION: usize = 110;
const FILE_P95: usize = 430;
/// Production lines of each folder. A change that adds more than 200 says in its commit what it takes away, or why
/// nothing can go.
const MOST_LINES: [(&str, usize); 2] = [("crates/", 69_910), ("verifier/", 13_054)];

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
        if !is_kernel {
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
fn folders_keep_their_number_of_production_lines() {
    let files = rust();
    let of_tests = modules_of_tests(&files);
    for (folder, most) in MOST_LINES {
        let lines: usize = files
            .iter()
            .filter(|file| file.path.starts_with(folder) && file.is_production())
            .filter(|file| !of_tests.iter().any(|module| file.path.starts_with(module)))
            .map(|file| file.production().lines().count())
            .sum();
        assert!(lines <= most, "{folder} has {lines} production lines, at most {most}");
    }
}

/// Files and folders of modules that are declared for tests alone.
fn modules_of_tests(files: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        let path = file.path.trim_end_matches(".rs");
        let is_root = ["/lib", "/main", "/mod"].iter().any(|name| path.ends_with(name));
        let folder = if is_root { path.rsplit_once('/').map_or("", |it| it.0) } else { path };
        for (_, declared) in
            file.text.match_indices("#[cfg(test)]\n").map(|it| file.text.split_at(it.0))
        {
            let line = declared.lines().skip(1).find(|line| !line.starts_with("#["));
            let name = line.and_then(|line| line.strip_suffix(';')?.rsplit_once("mod "));
            if let Some((_, name)) = name {
                found.extend([format!("{folder}/{name}.rs"), format!("{folder}/{name}/")]);
            }
        }
    }
    found
}

#[test]
fn the_length_of_a_function_is_from_its_first_line_to_its_brace() {
    let code = "trait T {\n fn declared(&self);\n}\npub(crate) const fn one<T>(\n a: T,\n) {\n if a {\n }\n}\n";
    assert_eq!(functions(code), [(4, 6)]);
}

fn rust() -> Vec<Source> {
    sources(&[".rs"])
}

fn names_a_decision(text: &str) -> bool {
    let mut words = text.split(|it: char| !it.is_alphanumeric() && it != '_');
    words.any(|it| {
        let number = it.strip_prefix('D').and_then(|it| it.parse::<u32>().ok());
        number.is_some_and(|it| (1..=60).contains(&it))
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
