//! Tells the binary the commit it was built from, for run folders and `--version`.

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
    if commit.is_some()
        && let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"])
    {
        println!("cargo:rerun-if-changed={log}");
    }
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
