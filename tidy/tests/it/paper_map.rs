//! `docs/generated/paper-map.md` is made from the comments that name an equation or a decision.
//!
//! Run with `UPDATE_EXPECT=1` to write it anew.

use std::collections::{BTreeMap, BTreeSet};

use expect_test::expect_file;
use hapo_tidy::{root, sources};

/// Subjects of the paper's formulas and of the decisions where it is silent.
const ABOUT: &[(&str, &str)] = &[
    ("Algorithm 1", "one training step"),
    ("Eq. 2", "group-relative advantage"),
    ("Eq. 3", "clipped policy objective"),
    ("Eq. 4", "confidence: the posterior mean of a group's success"),
    ("Eq. 5", "injection: one rollout is replaced by the teacher"),
    ("Eq. 6", "the ladder of confidences"),
    ("Eq. 7", "thresholds that select S ≤ m"),
    ("Eq. 8", "the threshold at the cold start"),
    ("Eq. 9", "the threshold's fall"),
    ("Eq. 10", "the objective over mixed groups"),
    ("Eq. 11", "a rollout's clipped term, the teacher's λ·F"),
    ("Prop. 1", "which success counts the derived threshold selects"),
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
    ("D26", "what counts as an answer"),
    ("D27", "a response without its end token"),
    ("D28", "rewards that are not 0 or 1"),
    ("D29", "rollouts older than the weights"),
    ("D30", "engines that recompute old log-probabilities"),
    ("D31", "an answer without a verdict"),
    ("D32", "a masked response"),
    ("D33", "which checkpoint a stage hands on"),
    ("D34", "a teacher's weight is never negative"),
    ("D35", "how a group grows"),
    ("D36", "a hint is part of the prompt, a prefix of the response"),
    ("D37", "more than one foreign member"),
    ("D38", "a second model"),
    ("D39", "memory between steps"),
    ("D40", "one arithmetic"),
    ("D41", "rollouts of an engine that is not ours"),
    ("D42", "gates that are no tables"),
    ("D43", "imitation between the steps shares the optimiser"),
    ("D44", "the order of prompts reads no memory"),
    ("D45", "the grader of a recipe that names none"),
    ("D46", "one end token, and the chat template decides"),
    ("D47", "Table 2 has two readings"),
];

/// Decisions that are announced and not made, so that no test can name them.
const PLANNED: &[&str] = &["D26", "D27", "D29", "D30"];

/// Where a reference is named: a file and the item it belongs to.
type Site = (String, String);

#[derive(Default)]
struct Named {
    code: BTreeSet<Site>,
    tests: BTreeSet<Site>,
}

#[test]
fn the_paper_map_is_that_of_the_comments() {
    let mut found: BTreeMap<String, Named> = BTreeMap::new();
    let files = sources(&[".rs"]);
    for it in files
        .iter()
        .filter(|it| ["crates/", "verifier/"].iter().any(|top| it.path.starts_with(top)))
    {
        read(&it.path, &it.text, &mut found);
    }
    for it in found.keys() {
        assert!(
            ABOUT.iter().any(|known| known.0 == it),
            "{it} is named in a comment and unknown here"
        );
    }
    let decisions = std::fs::read_to_string(root().join("docs/decisions.md")).unwrap();
    for (reference, file, test) in named_tests(&decisions) {
        found.entry(reference).or_default().tests.insert((file, test));
    }
    let mut text = String::from(
        "# From the paper to the code\n\nMade from the comments that name an equation or a decision ([D1 to D47](../decisions.md): what this project does where the paper is silent, ambiguous or wrong), from the names of the tests, and from the tests that the page of decisions names; `UPDATE_EXPECT=1 cargo test -p hapo-tidy --test it paper_map` writes it anew.\n\n| | what | code | tests |\n|---|---|---|---|\n",
    );
    let mut untested = Vec::new();
    for (reference, about) in ABOUT {
        let none = Named::default();
        let named = found.get(*reference).unwrap_or(&none);
        if named.tests.is_empty() && !PLANNED.contains(reference) {
            untested.push(*reference);
        }
        let link = match reference.strip_prefix('D') {
            Some(number) => format!("[{reference}](../decisions.md#d{number})"),
            None => (*reference).to_owned(),
        };
        text +=
            &format!("| {link} | {about} | {} | {} |\n", sites(&named.code), sites(&named.tests));
    }
    assert_eq!(untested, Vec::<&str>::new(), "without a test");
    expect_file![root().join("docs/generated/paper-map.md")].assert_eq(&text);
}

/// The links of the page of decisions are right: ``[`item`](../file)`` names a file that declares the item.
#[test]
fn what_the_decisions_name_exists() {
    let page = std::fs::read_to_string(root().join("docs/decisions.md")).unwrap();
    for (reference, _) in ABOUT {
        if let Some(number) = reference.strip_prefix('D') {
            let anchor = format!("<a id=\"d{number}\"></a>\n### D{number}. ");
            assert!(page.contains(&anchor), "{reference} has no paragraph");
        }
    }
    for target in page.split("](../").skip(1) {
        let target = target.split([')', '#']).next().unwrap_or("");
        assert!(root().join(target).exists(), "docs/decisions.md: no {target}");
    }
    for (item, file) in links(&page) {
        let path = root().join("docs").join(&file);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let is_declared = text.match_indices(&item).any(|(at, _)| {
            let before = text[..at].trim_end_matches("r#");
            let declares = ["fn ", "struct ", "enum ", "trait ", "const ", "type ", "pub "];
            let rest = &text[at + item.len()..];
            declares.iter().any(|it| before.ends_with(it))
                && !rest.starts_with(|it: char| it.is_alphanumeric() || it == '_')
        });
        assert!(is_declared, "docs/decisions.md: {file} has no {item}");
    }
}

/// Each ``[`item`](../file)`` of a text.
fn links(text: &str) -> Vec<(String, String)> {
    let parts = text.split("[`").skip(1);
    let links = parts.filter_map(|it| {
        let (item, rest) = it.split_once("`](")?;
        let file = rest.split_once(')')?.0;
        let is_ours = file.starts_with("../") && hapo_tidy::is_rust(file);
        is_ours.then(|| (item.to_owned(), file.to_owned()))
    });
    links.collect()
}

/// The tests named on the page: reference, file, test. A paragraph's are those after `Tests:`, a table's those of its
/// row.
fn named_tests(page: &str) -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    let mut decision = String::new();
    for line in page.lines() {
        let (reference, tests) = if let Some(heading) = line.strip_prefix("### ") {
            heading.split('.').next().unwrap_or("").clone_into(&mut decision);
            continue;
        } else if let Some((_, tests)) = line.split_once("Tests: ") {
            (decision.clone(), tests)
        } else if let Some((reference, tests)) =
            line.strip_prefix("| ").and_then(|it| it.split_once(" | "))
        {
            (reference.to_owned(), tests)
        } else {
            continue;
        };
        for (test, file) in links(tests) {
            let file = file.trim_start_matches("../").to_owned();
            all.push((reference.clone(), file, test));
        }
    }
    all
}

/// Items by file: `file: item, item; file: item`.
fn sites(all: &BTreeSet<Site>) -> String {
    let mut files: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (file, item) in all {
        files.entry(file).or_default().push(item);
    }
    let each: Vec<String> = files
        .into_iter()
        .map(|(file, items)| {
            let short = file.trim_start_matches("crates/").trim_start_matches("verifier/");
            let items: Vec<String> =
                items.into_iter().filter(|it| !it.is_empty()).map(|it| format!("`{it}`")).collect();
            format!("[{short}](../../{file}) {}", items.join(", ")).trim_end().to_owned()
        })
        .collect();
    if each.is_empty() { "–".to_owned() } else { each.join("; ") }
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
            let item = if comment.starts_with('!') { "" } else { &function };
            for it in references(comment) {
                note(found, it, in_tests, file, item);
            }
        } else if line.starts_with('#') {
            attributes += line;
        } else if !line.is_empty() {
            let item = item_of(line);
            let is_test = in_tests || attributes.contains("#[test]");
            if is_test && line.contains("fn ") && attributes.contains("#[test]") {
                waiting.extend(references_of_name(&item));
            }
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
    let sites = if is_test { &mut named.tests } else { &mut named.code };
    sites.insert((file.to_owned(), item.to_owned()));
}

/// The name that a line declares.
fn item_of(line: &str) -> String {
    let words = line.split(|it: char| !it.is_alphanumeric() && it != '_');
    let keywords = [
        "pub", "crate", "super", "fn", "struct", "enum", "const", "static", "type", "trait", "mod",
        "impl", "unsafe", "async", "let", "mut", "",
    ];
    words.into_iter().find(|it| !keywords.contains(it)).unwrap_or("").to_owned()
}

/// The references in a test's name: `d16_d17_normaliser` and `proposition_1_d3_holds` have two each.
fn references_of_name(name: &str) -> Vec<String> {
    let mut words = name.split('_').peekable();
    let mut all = Vec::new();
    let is_number = |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit());
    while let Some(word) = words.next() {
        match (word, words.peek()) {
            ("proposition", Some(number)) if is_number(number) => {
                all.push(format!("Prop. {number}"));
                words.next();
            }
            ("eq", Some(number)) if is_number(number) => {
                all.push(format!("Eq. {number}"));
                words.next();
            }
            _ => match word.strip_prefix('d') {
                Some(number) if is_number(number) => all.push(format!("D{number}")),
                _ => break,
            },
        }
    }
    all
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
        if digits.parse().is_ok_and(|it: u32| (1..=30).contains(&it))
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
