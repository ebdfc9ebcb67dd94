//! Modules of a crate import each other in one direction: no circles among the modules of a folder.
//!
//! An edge is a path that begins with `crate::` or `super::`, in a `use` or in code. A name that a `mod.rs` or `lib.rs`
//! re-exports leads to the module that has it. A folder and the modules within it are one room for those outside.

use std::collections::{BTreeMap, BTreeSet};

use hapo_tidy::{Source, lex, sources};

type Path = Vec<String>;

#[derive(Default)]
struct Module {
    /// Re-exported names of the module, each with its path.
    exports: BTreeMap<String, Path>,
    /// Paths from the crate's root that its code names.
    uses: BTreeSet<Path>,
}

#[test]
fn no_module_imports_one_that_imports_it() {
    let files = sources(&[".rs"]);
    let folders: BTreeSet<&str> =
        files.iter().filter_map(|file| crate_folder(&file.path)).collect();
    assert!(folders.len() > 15, "{folders:?}");
    let mut found = Vec::new();
    for folder in folders {
        let production = files.iter().filter(|file| file.is_production());
        let modules = production.filter_map(|file| {
            Some((file.path.strip_prefix(folder)?.strip_prefix("/src/")?, file))
        });
        found.extend(circles(&crate_of(modules)).into_iter().map(|circle| (folder, circle)));
    }
    assert!(found.is_empty(), "{found:?}");
}

/// The folder of the crate that a file of `crates/` or `lab/` belongs to.
fn crate_folder(path: &str) -> Option<&str> {
    let end = path.find("/src/")?;
    ["crates/", "verifier/", "lab/"].iter().any(|top| path.starts_with(top)).then_some(&path[..end])
}

#[test]
fn a_planted_circle_is_found() {
    let file = |text: &str| Source { path: String::new(), text: text.to_owned() };
    let texts = [
        ("lib.rs", "mod a; mod b; mod c; pub use b::{B, deep::D};"),
        ("a.rs", "use crate::c::C; pub struct A(crate::B);"),
        ("b/mod.rs", "mod deep; pub struct B; use super::c;"),
        (
            "b/deep.rs",
            "use super::B; pub struct D;\n#[cfg(test)]\nmod tests {\n use crate::a::A;\n}",
        ),
        ("c.rs", "/// Not [`crate::a::A`].\npub struct C;"),
    ];
    let mut files: Vec<(&str, Source)> = texts.iter().map(|it| (it.0, file(it.1))).collect();
    let found = |files: &[(&str, Source)]| circles(&crate_of(files.iter().map(|it| (it.0, &it.1))));
    assert_eq!(found(&files), Vec::<String>::new());
    files[4].1.text += "use crate::D as E;\n";
    assert_eq!(found(&files), ["b → c → b"]);
}

fn crate_of<'a>(files: impl Iterator<Item = (&'a str, &'a Source)>) -> BTreeMap<Path, Module> {
    let files: Vec<(Path, &Source)> = files.map(|(path, it)| (module_of(path), it)).collect();
    let known: BTreeSet<Path> = files.iter().map(|it| it.0.clone()).collect();
    let read = files.into_iter().map(|(path, source)| {
        let module = read(&path, &lex(source.production()).code, &known);
        (path, module)
    });
    read.collect()
}

/// `step/hints.rs` is `step::hints`, `lib.rs` the root.
fn module_of(path: &str) -> Path {
    let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
    match path {
        "lib" | "main" | "mod" => Vec::new(),
        _ => path.split('/').map(str::to_owned).collect(),
    }
}

fn read(at: &Path, code: &str, known: &BTreeSet<Path>) -> Module {
    let mut module = Module::default();
    let mut rest = code.replace("pub(crate)", "pub").replace("pub(super)", "pub");
    while let Some(start) = find_use(&rest) {
        let end = start + rest[start..].find(';').expect("a `use` ends");
        let is_export = rest[..start].trim_end().ends_with("pub");
        let tree: String = rest[start + 4..end].to_owned();
        for (path, name) in leaves(&tree) {
            let Some(path) = from_root(&path, at, known) else {
                continue;
            };
            if is_export {
                module.exports.insert(name, path.clone());
            }
            module.uses.insert(path);
        }
        rest.replace_range(start..=end, "");
    }
    for word in ["crate::", "super::"] {
        for (start, _) in rest.match_indices(word) {
            if rest[..start].ends_with(|it: char| it.is_alphanumeric() || it == '_' || it == ':') {
                continue;
            }
            let end =
                rest[start..].find(|it: char| !it.is_alphanumeric() && it != '_' && it != ':');
            let path = &rest[start..end.map_or(rest.len(), |it| start + it)];
            let path: Path = path.trim_end_matches(':').split("::").map(str::to_owned).collect();
            module.uses.extend(from_root(&path, at, known));
        }
    }
    module
}

/// Where the next `use` stands as a word of its own.
fn find_use(code: &str) -> Option<usize> {
    code.match_indices("use ").map(|it| it.0).find(|&it| {
        let before = code[..it].chars().next_back();
        before.is_none_or(char::is_whitespace) || before == Some(';')
    })
}

/// `a::{b, c::{self, d as e}}` is `a::b`, `a::c` and `a::c::d`, each with the name that it gets.
fn leaves(tree: &str) -> Vec<(Path, String)> {
    let tree = tree.trim();
    let Some((prefix, rest)) = tree.split_once('{') else {
        let (path, name) = match tree.split_once(" as ") {
            Some((path, name)) => (path, Some(name)),
            None => (tree, None),
        };
        let mut path: Path = path.trim().split("::").map(|it| it.trim().to_owned()).collect();
        if path.len() > 1 && path.last().is_some_and(|it| it == "self") {
            path.pop();
        }
        let name = name
            .map_or_else(|| path.last().cloned().unwrap_or_default(), |it| it.trim().to_owned());
        return vec![(path, name)];
    };
    let inner = &rest[..rest.rfind('}').expect("braces close")];
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for it in inner.chars() {
        match it {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().expect("one part at least").push(it);
    }
    let parts = parts.iter().filter(|it| !it.trim().is_empty());
    parts.flat_map(|it| leaves(&format!("{prefix}{}", it.trim()))).collect()
}

/// A path as the module `at` writes it, from the crate's root; `None` for other crates.
fn from_root(path: &[String], at: &Path, known: &BTreeSet<Path>) -> Option<Path> {
    let (mut base, mut rest) = match path.first()?.as_str() {
        "crate" => (Vec::new(), &path[1..]),
        "self" => (at.clone(), &path[1..]),
        "super" => (at[..at.len().checked_sub(1)?].to_vec(), &path[1..]),
        first => {
            let mut child = at.clone();
            child.push(first.to_owned());
            known.contains(&child).then(|| (at.clone(), path))?
        }
    };
    while rest.first().is_some_and(|it| it == "super") {
        base.pop()?;
        rest = &rest[1..];
    }
    base.extend_from_slice(rest);
    Some(base)
}

/// The module that a path leads to: the longest prefix that is a module, through re-exports.
fn target(path: &[String], modules: &BTreeMap<Path, Module>, hops: usize) -> Path {
    let length = (0..=path.len()).rev().find(|&it| modules.contains_key(&path[..it]));
    let module = &path[..length.unwrap_or(0)];
    let exported = path.get(module.len()).and_then(|it| modules.get(module)?.exports.get(it));
    match exported {
        Some(it) if hops > 0 => target(it, modules, hops - 1),
        _ => module.to_vec(),
    }
}

/// Every circle among the modules of one folder, `a → b → a`.
fn circles(modules: &BTreeMap<Path, Module>) -> Vec<String> {
    let mut edges: BTreeMap<Path, BTreeSet<Path>> = BTreeMap::new();
    for (from, module) in modules {
        for path in &module.uses {
            let to = target(path, modules, 8);
            let common = from.iter().zip(&to).take_while(|it| it.0 == it.1).count();
            if common < from.len() && common < to.len() {
                let from = from[..=common].to_vec();
                edges.entry(from).or_default().insert(to[..=common].to_vec());
            }
        }
    }
    let mut found = Vec::new();
    let mut named = BTreeSet::new();
    for start in edges.keys() {
        if let Some(circle) = circle_from(start, &edges) {
            let mut members: Vec<&Path> = circle.iter().collect();
            members.sort();
            members.dedup();
            if named.insert(format!("{members:?}")) {
                let names: Vec<String> = circle.iter().map(|it| it.join("::")).collect();
                found.push(names.join(" → "));
            }
        }
    }
    found
}

/// The shortest way from a module back to itself.
fn circle_from(start: &Path, edges: &BTreeMap<Path, BTreeSet<Path>>) -> Option<Vec<Path>> {
    let mut ways = std::collections::VecDeque::from([vec![start.clone()]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        let last = way.last().expect("a way has a start");
        for next in edges.get(last).into_iter().flatten() {
            let mut longer = way.clone();
            longer.push(next.clone());
            if next == start {
                return Some(longer);
            }
            if seen.insert(next.clone()) {
                ways.push_back(longer);
            }
        }
    }
    None
}
