//! The pages' references exist: links, quoted paths, items in the table of functions.

use hapo_tidy::{Source, root, sources};

#[test]
fn links_and_quoted_paths_lead_to_files() {
    let mut missing = Vec::new();
    for page in pages() {
        let folder = root().join(&page.path);
        let folder = folder.parent().expect("a page in a folder");
        for link in page.text.split("](").skip(1) {
            let link = link.split([')', '#']).next().unwrap_or("");
            let is_elsewhere = link.contains("://") || link.starts_with("mailto:");
            if !is_elsewhere && !link.contains(' ') && !folder.join(link).exists() {
                missing.push(format!("{}: {link}", page.path));
            }
        }
        for quoted in page.text.split('`').skip(1).step_by(2) {
            let is_path = FOLDERS.iter().any(|it| quoted.starts_with(it));
            // The reader of the guide writes `mine.rs`.
            let is_pattern =
                quoted.contains(|it: char| "*…{< \n".contains(it)) || quoted.contains("mine");
            if is_path && !is_pattern && !root().join(quoted).exists() {
                missing.push(format!("{}: {quoted}", page.path));
            }
        }
    }
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
}

/// `hapo_core::advantages` is declared in `crates/hapo-core`, and so are both of `Type::{a, b}`.
#[test]
fn functions_of_the_architecture_are_declared() {
    let files = sources(&[".rs"]);
    let map = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut missing = Vec::new();
    for quoted in map.split('`').skip(1).step_by(2) {
        let Some((name, items)) = quoted.split_once("::").filter(|it| it.0.starts_with("hapo"))
        else {
            continue;
        };
        let name = name.replace('_', "-");
        let folders = ["crates", "verifier"].map(|top| format!("{top}/{name}/src/"));
        for item in items.split(|it: char| !it.is_alphanumeric() && it != '_') {
            let mut texts =
                files.iter().filter(|file| folders.iter().any(|it| file.path.starts_with(it)));
            if !item.is_empty() && !texts.any(|it| declares(&it.text, item)) {
                missing.push(format!("{name}: {item}"));
            }
        }
    }
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
}

/// Folders of the repository whose paths pages quote.
const FOLDERS: &[&str] = &[
    "crates/",
    "verifier/",
    "docs/",
    "recipes/",
    "scripts/",
    "testdata/",
    "examples/",
    "tidy/",
    "testing/",
    "models/base",
];

/// The pages that describe today's repository; the log and the change log name past things.
fn pages() -> Vec<Source> {
    let mut all = sources(&[".md"]);
    all.retain(|it| !["CHANGELOG.md", "docs/LOG.md"].contains(&it.path.as_str()));
    all.retain(|it| !it.path.contains("/tests/"));
    all
}

fn declares(text: &str, item: &str) -> bool {
    let keywords = ["fn ", "struct ", "enum ", "trait ", "const ", "type ", "mod "];
    text.match_indices(item).any(|(at, _)| {
        let after = text[at + item.len()..].chars().next();
        keywords.iter().any(|it| text[..at].ends_with(it))
            && !after.is_some_and(|it| it.is_alphanumeric() || it == '_')
    })
}
