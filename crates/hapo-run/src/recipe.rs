//! A recipe as text, key by key, for comparing recipes without running them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

/// The entries of a TOML text, `section.key` to its value as TOML, or why there are none.
pub fn recipe_entries(text: &str) -> Result<BTreeMap<String, String>, String> {
    let table: toml::Table = text.parse().map_err(|it: toml::de::Error| it.message().to_owned())?;
    let mut entries = BTreeMap::new();
    flatten("", table, &mut entries);
    Ok(entries)
}

/// The value of an entry of [`recipe_entries`]; a text that is no TOML is itself.
pub fn recipe_value(text: &str) -> toml::Value {
    let table = format!("it = {text}").parse::<toml::Table>();
    let value = table.ok().and_then(|mut it| it.remove("it"));
    value.unwrap_or_else(|| toml::Value::String(text.to_owned()))
}

/// A key whose value differs between recipes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecipeDifference {
    /// `section.key`.
    pub key: String,
    values: Vec<Option<String>>,
}

impl RecipeDifference {
    /// The values in the first two recipes.
    pub fn values(&self) -> [&str; 2] {
        [0, 1].map(|at| self.values[at].as_deref().unwrap_or("absent"))
    }
}

/// The keys in which some of the recipes differ, by their entries.
pub fn recipe_differences(recipes: &[&BTreeMap<String, String>]) -> Vec<RecipeDifference> {
    let keys: BTreeSet<&String> = recipes.iter().flat_map(|it| it.keys()).collect();
    let difference = |key: &String| {
        let values: Vec<_> = recipes.iter().map(|it| it.get(key).cloned()).collect();
        let differs = values.iter().any(|it| *it != values[0]);
        differs.then(|| RecipeDifference { key: key.clone(), values })
    };
    keys.into_iter().filter_map(difference).collect()
}

fn flatten(path: &str, table: toml::Table, entries: &mut BTreeMap<String, String>) {
    for (key, value) in table {
        let key = if path.is_empty() { key } else { format!("{path}.{key}") };
        match value {
            toml::Value::Table(it) => flatten(&key, it, entries),
            other => drop(entries.insert(key, other.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_named_by_their_sections() {
        let entries = recipe_entries("steps = 10\n[optim]\nlr = 1e-4\n[hapo]\ngate = \"never\"\n");
        let entries: Vec<(String, String)> = entries.unwrap().into_iter().collect();
        let text = |it: &(&str, &str)| (it.0.to_owned(), it.1.to_owned());
        let expected = [("hapo.gate", "\"never\""), ("optim.lr", "0.0001"), ("steps", "10")];
        assert_eq!(entries, expected.iter().map(text).collect::<Vec<_>>());
        assert!(recipe_entries("steps = [").is_err());
        assert_eq!(recipe_value("0.5"), toml::Value::Float(0.5));
        assert_eq!(recipe_value("no toml"), toml::Value::String("no toml".to_owned()));
    }
}
