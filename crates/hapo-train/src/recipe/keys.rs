//! Every key with its default and its meaning: what docs/recipes.md and `hapo recipe` say.

use toml::{Table, Value};

use super::sections::{path_of, sections_and_keys};
use super::{Key, Overrides, REQUIRED, Range, Recipe};

#[derive(Clone, Debug)]
pub struct KeyEntry {
    /// Its section; empty at the top.
    pub section: &'static str,
    pub name: &'static str,
    /// The default, as TOML; `required`, or empty if the key is then absent.
    pub default: String,
    pub meaning: &'static str,
    /// The numbers that it takes, where not all of its type.
    pub range: Option<Range>,
}

impl KeyEntry {
    /// The key as it is set: `section.name`.
    pub fn path(&self) -> String {
        path_of(self.section, self.name)
    }
}

/// Every key, in the order of the sections; sections are no keys themselves.
pub fn key_entries() -> Vec<KeyEntry> {
    let defaults = defaults();
    let entry = |(section, key): (&'static str, &'static Key)| {
        let meaning = key.meaning.trim();
        let range = key.range.map(|range| range());
        let mut entry =
            KeyEntry { section, name: key.name, default: String::new(), meaning, range };
        entry.default = default_of(&defaults, &entry);
        entry
    };
    sections_and_keys().map(entry).collect()
}

/// A recipe in which every section is written.
pub(super) const EVERY_SECTION: &str = "method = \"trapo\"\nmodel.init = { hidden = 2, layers = 1, heads = 1, kv_heads = 1, ffn = 1 }\nhapo.turn_off_epoch = 1\neval.suite = \"mini6\"\nlora.rank = 16";

fn defaults() -> Table {
    let recipe = Recipe::parse(EVERY_SECTION, "defaults", &Overrides::default());
    let recipe = recipe.expect("the text is a constant");
    Table::try_from(&recipe.settings).expect("settings were read from a table")
}

fn default_of(defaults: &Table, key: &KeyEntry) -> String {
    let path = key.path();
    if REQUIRED.contains(&path.as_str()) {
        return "required".to_owned();
    }
    // The recipe above has to say it.
    if path == "hapo.turn_off_epoch" || path == "eval.suite" {
        return String::new();
    }
    let mut sections = key.section.split('.').filter(|it| !it.is_empty());
    let table = sections.try_fold(defaults, |table, it| table.get(it)?.as_table());
    match table.and_then(|it| it.get(key.name)) {
        None | Some(Value::Table(_)) => String::new(),
        Some(Value::Float(it)) if it.fract() == 0.0 && it.abs() < 1e6 => format!("{it:.1}"),
        Some(Value::Float(it)) if it.abs() < 1e-3 => format!("{it:e}"),
        Some(it) => it.to_string(),
    }
}
