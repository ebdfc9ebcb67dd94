//! Names of repositories, as users write them.

use hapo_core::{Refusal, found_at};
use std::{fmt, path::Path};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoId {
    /// `org/name`.
    pub id: String,
    /// A branch, a tag or a commit.
    pub revision: String,
}

impl fmt::Display for RepoId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.revision.as_str() {
            "main" => f.write_str(&self.id),
            revision => write!(f, "{}@{revision}", self.id),
        }
    }
}

/// A file of a data set; without a path its only data file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetFile {
    pub repo: RepoId,
    pub path: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParsedName {
    /// Something of the file system.
    Path,
    Model(RepoId),
    /// A data set of the hub: `hf://datasets/org/name@revision[/file]`.
    Dataset(DatasetFile),
}

/// Parses `name`: a path that exists, otherwise a name on the hub.
pub fn parse_name(name: &str) -> Result<ParsedName, Refusal> {
    if found_at(Path::new(name))?.is_some() {
        return Ok(ParsedName::Path);
    }
    let bad = |problem: &str| {
        Refusal::input(format!("{name}: {problem}")).hint("give a folder or file that exists, org/name@revision of a model, or hf://datasets/org/name@revision[/file]")
    };
    let Some(address) = name.strip_prefix("hf://") else {
        let model = repo(name).map(ParsedName::Model);
        return model.ok_or_else(|| bad("no such file or folder, and no name of the hub"));
    };
    let Some(address) = address.strip_prefix("datasets/") else {
        let address = address.strip_prefix("models/").unwrap_or(address);
        let model = repo(address).map(ParsedName::Model);
        return model.ok_or_else(|| bad("expected hf://org/name@revision or hf://datasets/…"));
    };
    let wanted = "expected hf://datasets/org/name@revision[/file]";
    let mut parts = address.splitn(3, '/');
    let (Some(org), Some(rest)) = (parts.next(), parts.next()) else { return Err(bad(wanted)) };
    let repo = repo(&format!("{org}/{rest}")).ok_or_else(|| bad(wanted))?;
    let path = parts.next().filter(|it| !it.is_empty());
    if path.is_some_and(|it| !is_plain_path(it)) {
        return Err(bad("the file's path leaves the repository"));
    }
    Ok(ParsedName::Dataset(DatasetFile { repo, path: path.map(str::to_owned) }))
}

/// `org/name` or `org/name@revision`, by the hub's rules for names; a path of that form is none the less one.
pub fn repo(text: &str) -> Option<RepoId> {
    let (id, revision) = text.split_once('@').unwrap_or((text, "main"));
    let (org, name) = id.split_once('/')?;
    let is_name = |it: &str| {
        !it.is_empty()
            && it.len() <= 96
            && it.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
            && !it.starts_with(['-', '.'])
            && !it.ends_with(['-', '.'])
            && !it.contains("--")
            && !it.contains("..")
    };
    // A revision names a file below `refs/`.
    let is_revision = is_plain_path(revision)
        && revision.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./+".contains(&b));
    (is_name(org) && is_name(name) && is_revision)
        .then(|| RepoId { id: id.to_owned(), revision: revision.to_owned() })
}

/// True if a path stays below its folder.
pub(crate) fn is_plain_path(path: &str) -> bool {
    let leaves = |part: &str| matches!(part, "" | "." | "..") || part.contains(['\\', '\0', ':']);
    !path.split('/').any(leaves)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, expected: &str) {
        let found = match parse_name(name) {
            Ok(ParsedName::Path) => "path".to_owned(),
            Ok(ParsedName::Model(it)) => format!("model {} {}", it.id, it.revision),
            Ok(ParsedName::Dataset(it)) => {
                format!("data {} {} {:?}", it.repo.id, it.repo.revision, it.path)
            }
            Err(it) => it.to_string(),
        };
        assert_eq!(found, expected, "{name}");
    }

    #[test]
    fn names_are_read_as_users_of_the_hub_write_them() {
        check("src", "path");
        check("src/lib.rs", "path");
        check("Qwen/Qwen2.5-0.5B", "model Qwen/Qwen2.5-0.5B main");
        check("org/name@v1.0", "model org/name v1.0");
        check("org/name@refs/pr/3", "model org/name refs/pr/3");
        check("hf://org/name@dev", "model org/name dev");
        check("hf://datasets/org/name", "data org/name main None");
        check(
            "hf://datasets/org/name@dev/data/a.parquet",
            r#"data org/name dev Some("data/a.parquet")"#,
        );
        let neither = |name: &str| {
            check(name, &format!("{name}: no such file or folder, and no name of the hub"));
        };
        for name in [
            "",
            "gpt2",
            "./nothing",
            "/no/such",
            "a/b/c",
            "../x/y",
            "a b/c",
            "org/name@",
            "org/name@../x",
            "org/-name",
            "org/na--me",
            "org/name.",
            "~/models",
            "C:\\models",
        ] {
            neither(name);
        }
        check(
            "hf://datasets/org",
            "hf://datasets/org: expected hf://datasets/org/name@revision[/file]",
        );
        check(
            "hf://datasets/org/name/../../x",
            "hf://datasets/org/name/../../x: the file's path leaves the repository",
        );
    }
}
