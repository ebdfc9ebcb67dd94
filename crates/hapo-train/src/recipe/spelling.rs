//! Spellings of earlier versions: refused in recipes, rewritten by [`upgrade`], read in run folders.

use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

/// Keys: as they were, as they are.
const KEYS: &[(&str, &str)] = &[
    ("hapo.failure_level", "hapo.success_limit"),
    ("sampling.refill", "sampling.dynamic_sampling"),
    ("optim.recompute", "optim.activation_checkpointing"),
    ("optim.schedule", "optim.lr_schedule"),
    ("loss.ratio", "loss.importance_ratio_level"),
    ("data.flip_verdicts", "data.verdict_noise"),
    ("trapo.hints", "trapo.prefixes"),
];

/// Words: their key, as they were, as they are.
const WORDS: &[(&str, &str, &str)] = &[
    ("loss.normaliser", "token_mean", "token-mean"),
    ("loss.normaliser", "sequence_mean", "sequence-mean"),
];

/// An old spelling that was found.
pub(super) struct OldSpelling {
    /// The key that it is, or the value of.
    pub(super) key: &'static str,
    pub(super) old: &'static str,
    pub(super) new: &'static str,
}

/// The value of a key.
pub(super) fn find<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    match key.split_once('.') {
        None => table.get(key),
        Some((section, rest)) => find(table.get(section)?.as_table()?, rest),
    }
}

/// The first old spelling in a recipe.
pub(super) fn first_old(table: &Table) -> Option<OldSpelling> {
    let key = KEYS.iter().find(|it| find(table, it.0).is_some());
    let word = WORDS.iter().find(|it| find(table, it.0).and_then(Value::as_str) == Some(it.1));
    let key = key.map(|&(old, new)| OldSpelling { key: old, old, new });
    key.or_else(|| word.map(|&(key, old, new)| OldSpelling { key, old, new }))
}

/// Why a run whose kept recipe is `resolved` cannot be resumed by this version; `None` if it can.
pub fn of_earlier_version(resolved: &str) -> Option<String> {
    let old = first_old(&resolved.parse().ok()?)?;
    Some(format!(
        "the run was made by an earlier version, in whose recipes `{}` was spelled `{}`: it can be shown and \
         replayed, not resumed",
        old.new, old.old
    ))
}

/// A recipe's text with the spellings of this version; comments and layout stay. Old spellings that are
/// left stand where they cannot be rewritten in place.
pub fn upgrade(text: &str) -> Result<String, toml::de::Error> {
    let mut text = text.to_owned();
    // One change at a time: each moves what stands behind it.
    loop {
        let changed = {
            let parsed = DeTable::parse(&text)?;
            let stages = parsed.get_ref().get("stage").map(Spanned::get_ref);
            let stages = stages.and_then(DeValue::as_array).into_iter().flatten();
            let stages = stages.filter_map(|it| it.get_ref().as_table());
            let mut tables = std::iter::once(parsed.get_ref()).chain(stages);
            tables.find_map(|it| upgrade_one(it, &text))
        };
        match changed {
            Some(it) => text = it,
            None => return Ok(text),
        }
    }
}

type Entry<'a> = (&'a Spanned<std::borrow::Cow<'a, str>>, &'a Spanned<DeValue<'a>>);

/// The text with the first old spelling of a table rewritten.
fn upgrade_one(table: &DeTable<'_>, text: &str) -> Option<String> {
    let entry = |key: &str| -> Option<Entry<'_>> {
        let (section, key) = key.split_once('.')?;
        table.get(section)?.get_ref().as_table()?.get_key_value(key)
    };
    let replaced = |at: std::ops::Range<usize>, by: &str| {
        Some(format!("{}{by}{}", &text[..at.start], &text[at.end..]))
    };
    for (key, old, new) in WORDS {
        let Some((_, value)) = entry(key) else {
            continue;
        };
        if value.get_ref().as_str() == Some(*old) {
            return replaced(value.span(), &format!("\"{new}\""));
        }
    }
    for (old, new) in KEYS {
        let Some((key, _)) = entry(old) else {
            continue;
        };
        let (_, new_key) = new.split_once('.')?;
        return replaced(key.span(), new_key);
    }
    None
}
