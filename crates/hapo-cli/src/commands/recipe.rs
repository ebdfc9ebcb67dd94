//! `hapo recipe`: what the keys of a recipe mean, and recipes as files.

use std::path::PathBuf;

use anyhow::{Context, Result};
use hapo_core::METHODS;
use hapo_train::recipe::{KeyEntry, key_entries};
use serde_json::json;

use crate::failure::bad_input;

/// What the keys of a recipe mean, and recipes as files.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    before_help = "Example: hapo recipe sampling\n         hapo recipe hapo.turn_off_epoch\n         hapo recipe upgrade my-recipe.toml"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// A key (optim.lr), a section (optim) or part of a name; all keys if absent
    key: Option<String>,
    /// Print JSON: a list of keys with section, default and meaning
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Rewrite the spellings of earlier versions in place; comments and layout stay
    Upgrade {
        /// The recipe
        file: PathBuf,
    },
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.command {
        Some(Command::Upgrade { file }) => upgrade(file),
        None => explain(args),
    }
}

fn explain(args: &Args) -> Result<()> {
    let all = key_entries();
    let found = match &args.key {
        None => all,
        Some(key) => matching(all, key)?,
    };
    if args.json {
        let of = |it: &KeyEntry| json!({"key": it.path(), "default": it.default, "meaning": plain(it.meaning)});
        outln!("{}", found.iter().map(of).collect::<serde_json::Value>());
        return Ok(());
    }
    let mut section = None;
    for it in &found {
        if section != Some(it.section) {
            if section.is_some() {
                outln!();
            }
            if !it.section.is_empty() {
                outln!("[{}]", it.section);
            }
            section = Some(it.section);
        }
        let default = match it.default.as_str() {
            "" => String::new(),
            "required" => "  (required)".to_owned(),
            default => format!(" = {default}"),
        };
        outln!("{}{default}", it.name);
        outln!("    {}", plain(it.meaning));
    }
    if args.key.is_none() {
        outln!("\nTables of single methods:");
        for it in METHODS.iter().filter(|it| !it.own_keys.is_empty()) {
            outln!("  [{}]  {}", it.name, it.own_keys.join(", "));
        }
    }
    Ok(())
}

/// The key of that path; or the keys of that section; or those whose path has it as a part.
fn matching(all: Vec<KeyEntry>, asked: &str) -> Result<Vec<KeyEntry>> {
    let asked = asked.trim_matches(['[', ']']);
    let is_key = |it: &KeyEntry| it.path() == asked;
    let is_section = |it: &KeyEntry| {
        !it.section.is_empty()
            && (it.section == asked || it.section.starts_with(&format!("{asked}.")))
    };
    let has_part = |it: &KeyEntry| it.path().contains(asked);
    let kept = if all.iter().any(is_key) {
        all.into_iter().filter(is_key).collect()
    } else if all.iter().any(is_section) {
        all.into_iter().filter(is_section).collect()
    } else {
        all.into_iter().filter(has_part).collect::<Vec<_>>()
    };
    if kept.is_empty() {
        return Err(bad_input(
            format!("no key of a recipe is called `{asked}`"),
            "`hapo recipe` lists every key",
        ));
    }
    Ok(kept)
}

/// Markdown as a terminal shows it: links by their text.
fn plain(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, target)) = rest.split_once("](") {
        let link = before.rsplit_once('[').zip(target.split_once(')'));
        let Some(((before, label), (_, after))) = link else { break };
        text += before;
        text += label;
        rest = after;
    }
    text + rest
}

fn upgrade(file: &std::path::Path) -> Result<()> {
    let name = file.display();
    let before = std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
    let after = hapo_train::recipe::upgrade(&before)
        .map_err(|it| bad_input(format!("{name}: {it}"), "a recipe is a TOML file"))?;
    if after == before {
        outln!("{name}: nothing to rewrite");
        return Ok(());
    }
    hapo_run::write_atomically(file, after.as_bytes())?;
    let lines = before.lines().zip(after.lines());
    let changed = lines.filter(|it| it.0 != it.1).count();
    outln!("{name}: {changed} lines rewritten");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn links_are_their_texts() {
        assert_eq!(plain("a [b](c.md), `[x]` and [d](e)"), "a b, `[x]` and d");
    }
}
