//! Tells the binary the commit it was built from, for run folders and `--version`, and the pages of the methods.

use std::process::Command;

fn main() {
    // Outside a repository (a published package) there is no commit to tell.
    let commit = git(&["rev-parse", "--short=12", "HEAD"]);
    let version = match &commit {
        Some(it) => format!("{} ({it})", env!("CARGO_PKG_VERSION")),
        None => env!("CARGO_PKG_VERSION").to_owned(),
    };
    println!("cargo:rustc-env=HAPO_VERSION={version}");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=methods");
    let to = std::env::var("OUT_DIR").expect("Cargo names the folder");
    std::fs::write(format!("{to}/pages.rs"), pages()).expect("Cargo's folder is writable");
    if commit.is_some()
        && let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"])
    {
        println!("cargo:rerun-if-changed={log}");
    }
}

/// The slice of the pages in `methods`, each with its name.
fn pages() -> String {
    let files = std::fs::read_dir("methods").expect("the pages are there");
    // Beside the pages lies what editors and systems leave.
    let stem = |it: std::io::Result<std::fs::DirEntry>| {
        let name = it.expect("the folder can be read").file_name();
        let stem = name.to_str()?.strip_suffix(".md").filter(|it| !it.starts_with('.'));
        stem.map(str::to_owned)
    };
    let mut names: Vec<String> = files.filter_map(stem).collect();
    // A capital stands before small letters: README is the table.
    names.sort();
    let page = |name: &String| {
        format!(
            "({name:?}, include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/methods/{name}.md\"))),"
        )
    };
    format!("&[{}]", names.iter().map(page).collect::<String>())
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
