//! `docs/generated/paper-map.md` is made from the comments that name an equation or a decision.
//!
//! Run with `UPDATE_EXPECT=1` to write it anew.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use expect_test::expect_file;

/// What the paper's formulas and the decisions where it is silent are about.
const ABOUT: &[(&str, &str)] = &[
    ("Algorithm 1", "one training step"),
    ("Eq. 2", "group-relative advantage"),
    ("Eq. 3", "clipped policy objective"),
    (
        "Eq. 4",
        "confidence: the posterior mean of a group's success",
    ),
    ("Eq. 5", "injection: one rollout gives way to the teacher"),
    ("Eq. 6", "the ladder of confidences"),
    ("Eq. 7", "thresholds that select S ≤ m"),
    ("Eq. 8", "the threshold at the cold start"),
    ("Eq. 9", "the threshold's fall"),
    ("Eq. 10", "the objective over mixed groups"),
    ("Eq. 11", "a rollout's clipped term, the teacher's λ·F"),
    (
        "Prop. 1",
        "which success counts the derived threshold selects",
    ),
    ("Prop. 2", "the gate closes for good"),
    ("Prop. 3", "injection fades as the policy improves"),
    ("D1", "integers decide"),
    ("D2", "m = 0 is a hard cut"),
    ("D3", "a threshold given by hand"),
    ("D4", "bounds of m; always-on is a mode of its own"),
    ("D5", "annealing off"),
    ("D6", "fewer than N samples"),
    ("D7", "which rollout is replaced"),
    ("D8", "hosts that inject always use a fixed slot"),
    ("D9", "a teacher is admitted once"),
    ("D10", "the teacher's end token"),
    ("D11", "the teacher's reward"),
    ("D12", "no division by the standard deviation"),
    ("D13", "advantages over the mixed group"),
    ("D14", "operators by their gradient weight"),
    ("D15", "λ"),
    ("D16", "the normaliser is global over the step"),
    ("D17", "entropy bonus"),
    ("D18", "KL is a metric, no term"),
    ("D19", "log-probabilities recorded at sampling"),
    ("D20", "groups without signal"),
    ("D21", "SRFT's weights"),
    ("D22", "TRAPO's own mechanisms"),
    ("D23", "guards against collapse"),
    ("D24", "answer-conditioned teacher prompts"),
    ("D25", "temperatures"),
];

/// Where a reference is named: a file and the item it belongs to.
type Place = (String, String);

#[derive(Default)]
struct Named {
    code: BTreeSet<Place>,
    tests: BTreeSet<Place>,
}

#[test]
fn the_paper_map_is_that_of_the_comments() {
    let root = hapo_tidy::root();
    let mut files = Vec::new();
    rust_files(&root.join("crates"), &mut files);
    files.sort();
    let mut found: BTreeMap<String, Named> = BTreeMap::new();
    for file in files {
        let name = file
            .strip_prefix(&root)
            .unwrap()
            .to_string_lossy()
            .replace('\\', "/");
        if !name.ends_with("tests/paper_map.rs") {
            read(&name, &std::fs::read_to_string(&file).unwrap(), &mut found);
        }
    }
    for it in found.keys() {
        assert!(
            ABOUT.iter().any(|known| known.0 == it),
            "{it} is named in a comment and unknown here"
        );
    }
    let mut text = String::from(
        "# From the paper to the code\n\nMade from the comments that name an equation or a decision (D1 to D25, [explained](../decisions.md): what this project does where the paper is silent, ambiguous or wrong); `UPDATE_EXPECT=1 cargo test -p hapo-tidy --test paper_map` writes it anew.\n\n| | what | code | tests |\n|---|---|---|---|\n",
    );
    for (reference, about) in ABOUT {
        let none = Named::default();
        let named = found.get(*reference).unwrap_or(&none);
        text += &format!(
            "| {reference} | {about} | {} | {} |\n",
            places(&named.code),
            places(&named.tests)
        );
    }
    expect_file![root.join("docs/generated/paper-map.md")].assert_eq(&text);
}

fn rust_files(folder: &Path, all: &mut Vec<PathBuf>) {
    for path in std::fs::read_dir(folder)
        .unwrap()
        .map(|it| it.unwrap().path())
    {
        if path.is_dir() {
            rust_files(&path, all);
        } else if path.extension().is_some_and(|it| it == "rs") {
            all.push(path);
        }
    }
}

/// Items by file: `file: item, item; file: item`.
fn places(all: &BTreeSet<Place>) -> String {
    let mut files: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (file, item) in all {
        files.entry(file).or_default().push(item);
    }
    let each: Vec<String> = files
        .into_iter()
        .map(|(file, items)| {
            let short = file.trim_start_matches("crates/");
            let items: Vec<String> = items
                .into_iter()
                .filter(|it| !it.is_empty())
                .map(|it| format!("`{it}`"))
                .collect();
            format!("[{short}](../../{file}) {}", items.join(", "))
                .trim_end()
                .to_owned()
        })
        .collect();
    if each.is_empty() {
        "–".to_owned()
    } else {
        each.join("; ")
    }
}

fn read(file: &str, text: &str, found: &mut BTreeMap<String, Named>) {
    let mut in_tests = file.contains("/tests/") || file.ends_with("/tests.rs");
    let mut function = String::new();
    // References of a doc comment wait for the item below it.
    let (mut waiting, mut attributes) = (BTreeSet::new(), String::new());
    for line in text.lines().map(str::trim) {
        if line == "#[cfg(test)]" {
            in_tests = true;
        } else if let Some(comment) = line.strip_prefix("///") {
            waiting.extend(references(comment));
        } else if let Some(comment) = line.strip_prefix("//") {
            // A module's header, or a remark within a function.
            let item = if comment.starts_with('!') {
                ""
            } else {
                &function
            };
            for it in references(comment) {
                note(found, it, in_tests, file, item);
            }
        } else if line.starts_with('#') {
            attributes += line;
        } else if !line.is_empty() {
            let item = item_of(line);
            let is_test = in_tests || attributes.contains("#[test]");
            for it in std::mem::take(&mut waiting) {
                note(found, it, is_test, file, &item);
            }
            if line.contains("fn ") && line.contains('(') {
                function = item;
            }
            attributes.clear();
        }
    }
}

fn note(
    found: &mut BTreeMap<String, Named>,
    reference: String,
    is_test: bool,
    file: &str,
    item: &str,
) {
    let named = found.entry(reference).or_default();
    let places = if is_test {
        &mut named.tests
    } else {
        &mut named.code
    };
    places.insert((file.to_owned(), item.to_owned()));
}

/// The name that a line declares.
fn item_of(line: &str) -> String {
    let words = line.split(|it: char| !it.is_alphanumeric() && it != '_');
    let keywords = [
        "pub", "crate", "super", "fn", "struct", "enum", "const", "static", "type", "trait", "mod",
        "impl", "unsafe", "async", "let", "mut", "",
    ];
    words
        .into_iter()
        .find(|it| !keywords.contains(it))
        .unwrap_or("")
        .to_owned()
}

/// The equations and decisions that a comment names; `Eq. 5–7` names three.
fn references(comment: &str) -> Vec<String> {
    let mut all = Vec::new();
    // A formula of another paper, named by its title.
    if comment.contains("\", Eq. ") || comment.contains("arxiv.org") {
        return all;
    }
    if comment.contains("Algorithm 1") {
        all.push("Algorithm 1".to_owned());
    }
    for word in ["Eq. ", "Prop. "] {
        for (at, _) in comment.match_indices(word) {
            let numbers = numbers(&comment[at + word.len()..]);
            all.extend(numbers.iter().map(|it| format!("{word}{it}")));
        }
    }
    for (at, _) in comment.match_indices('D') {
        let before = comment[..at].chars().next_back();
        if before.is_some_and(char::is_alphanumeric) {
            continue;
        }
        let digits = comment[at + 1..].chars().take_while(char::is_ascii_digit);
        let digits: String = digits.collect();
        let after = comment[at + 1 + digits.len()..].chars().next();
        if digits.parse().is_ok_and(|it: u32| (1..=25).contains(&it))
            && !after.is_some_and(char::is_alphanumeric)
        {
            all.push(format!("D{digits}"));
        }
    }
    all
}

/// The number that a text begins with, or all of a range.
fn numbers(text: &str) -> Vec<u32> {
    let number = |it: &str| -> Option<(u32, usize)> {
        let digits: String = it.chars().take_while(char::is_ascii_digit).collect();
        Some((digits.parse().ok()?, digits.len()))
    };
    let Some((first, length)) = number(text) else {
        return Vec::new();
    };
    let rest = text[length..].trim_start_matches(['–', '-']);
    match number(rest) {
        Some((last, _)) if rest.len() < text.len() - length => (first..=last).collect(),
        _ => vec![first],
    }
}
