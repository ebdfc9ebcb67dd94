//! `hapo recipe`: what the keys of a recipe mean.

use anyhow::Result;
use hapo_train::recipe::{KeyEntry, did_you_mean, key_entries, key_of_word};
use serde_json::json;

use crate::{failure::bad_input, support::arguments::KEYS};

/// Explain the keys of a recipe.
#[derive(clap::Args)]
#[command(before_help = "Example: hapo recipe sampling\n         hapo recipe hapo.turn_off_epoch")]
pub(crate) struct Args {
    /// A key (optim.lr), a section (optim) or part of a name; all keys if absent
    #[arg(hide_possible_values = true, value_parser = KEYS)]
    key: Option<String>,
    /// Print JSON: a list of keys with section, default and meaning
    #[arg(long)]
    json: bool,
    /// Print the JSON schema of a recipe, for editors
    #[arg(long, conflicts_with_all = ["key", "json"])]
    schema: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.schema {
        outln!("{}", serde_json::to_string_pretty(&hapo_train::recipe::schema())?);
        return Ok(());
    }
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
        match it.default.as_str() {
            "" => outln!("{}", it.name),
            "required" => outln!("{}  (required)", it.name),
            default => outln!("{} = {default}", it.name),
        }
        outln!("    {}", plain(it.meaning));
    }
    if args.key.is_none() {
        outln!("\nTables of single methods:");
        for it in hapo_core::METHODS.iter().filter(|it| !it.own_keys.is_empty()) {
            outln!("  [{}]  {}", it.name, it.own_keys.join(", "));
        }
    }
    Ok(())
}

/// The key of that path; or the keys of that section; or those whose path has it as a part, and the one for which it is
/// another trainer's word.
fn matching(all: Vec<KeyEntry>, asked: &str) -> Result<Vec<KeyEntry>> {
    let asked = asked.trim_matches(['[', ']']);
    let is_key = |it: &KeyEntry| it.path() == asked;
    let below = format!("{asked}.");
    let is_section = |it: &KeyEntry| {
        !it.section.is_empty() && (it.section == asked || it.section.starts_with(&below))
    };
    let meant = key_of_word(asked);
    let has_part = |it: &KeyEntry| it.path().contains(asked) || meant.as_ref() == Some(&it.path());
    let kept: Vec<KeyEntry> = if all.iter().any(is_key) {
        all.into_iter().filter(is_key).collect()
    } else if all.iter().any(is_section) {
        all.into_iter().filter(is_section).collect()
    } else {
        all.into_iter().filter(has_part).collect()
    };
    if kept.is_empty() {
        let hint = match asked {
            "output_dir" | "run_dir" => "the folder of a run is an option: --run-dir DIR".into(),
            _ => did_you_mean(asked, &(KEYS.0)(), "", "`hapo recipe` lists every key"),
        };
        return Err(bad_input(format!("no key of a recipe is called `{asked}`"), hint));
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
        match before.strip_suffix(", see ") {
            // A page that an installed program does not have.
            Some(before) if label.split('.').next_back() == Some("md") => text += before,
            _ => text += &format!("{before}{label}"),
        }
        rest = after;
    }
    text += rest;
    // Numbers of decisions are a page's too.
    while let Some(at) =
        text.find(" (D").filter(|at| text[at + 3..].starts_with(|it: char| it.is_ascii_digit()))
        && let Some(end) = text[at..].find(')')
    {
        text.replace_range(at..=at + end, "");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn links_are_their_texts() {
        assert_eq!(plain("a [b](c.md), `[x]` and [d](e)"), "a b, `[x]` and d");
        assert_eq!(plain("Read (D27, D31), see [own.md](guides/own.md)."), "Read.");
    }
}
