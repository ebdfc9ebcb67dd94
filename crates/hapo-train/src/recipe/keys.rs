//! Every key with its default and its meaning: what docs/recipes.md and `hapo recipe` say, and the JSON schema, for editors
//! that complete and check TOML.

use std::sync::Arc;

use hapo_core::{METHODS, Refusal};
use serde_json::{Map, Value as Json, json};
use toml::{Table, Value};

use super::sections::{path_of, sections_and_keys};
use super::values::{BuildMethod, register};
use super::{Key, Overrides, REQUIRED, Range, Recipe, RecipeProblem, SECTIONS, text::find};

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
    let recipe = Recipe::parse(EVERY_SECTION, "defaults", &Overrides::default());
    let recipe = recipe.expect("the text is a constant");
    let defaults = Table::try_from(&recipe.settings).expect("settings were read from a table");
    let entry = |(section, key): (&'static str, &'static Key)| KeyEntry {
        section,
        name: key.name,
        default: default_of(&defaults, section, key.name),
        meaning: key.meaning.trim(),
        range: key.range.map(|range| range()),
    };
    sections_and_keys().map(entry).collect()
}

/// A recipe in which every section is written.
const EVERY_SECTION: &str = "method = \"trapo\"\nmodel.init = { hidden = 2, layers = 1, heads = 1, kv_heads = 1, ffn = 1 }\nhapo.turn_off_epoch = 1\neval.suite = \"mini6\"\nlora.rank = 16";

fn default_of(defaults: &Table, section: &str, name: &str) -> String {
    let path = path_of(section, name);
    if REQUIRED.contains(&path.as_str()) {
        return "required".to_owned();
    }
    // The recipe above has to say it.
    if path == "hapo.turn_off_epoch" || path == "eval.suite" {
        return String::new();
    }
    match find(defaults, &path) {
        None | Some(Value::Table(_)) => String::new(),
        Some(Value::Float(it)) if it.fract() == 0.0 && it.abs() < 1e6 => format!("{it:.1}"),
        Some(Value::Float(it)) if it.abs() < 1e-3 => format!("{it:e}"),
        Some(it) => it.to_string(),
    }
}

/// Makes a method known to recipes by a name, and gives the earlier one of the name. Refuses the name of a built-in
/// method, or one that is no key of a recipe.
pub fn register_method(
    name: &str,
    build: Arc<BuildMethod>,
) -> Result<Option<Arc<BuildMethod>>, String> {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || it == '-' || it == '_';
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err(format!("expected a name of letters, digits, - and _, got {name:?}"));
    }
    let is_section = SECTIONS.iter().any(|(section, keys)| {
        let first = section.split('.').next() == Some(name);
        first || (section.is_empty() && keys.iter().any(|it| it.name == name))
    });
    if is_section || METHODS.iter().any(|it| it.name == name) {
        return Err(format!(
            "expected a new name, got that of a built-in method or section, {name:?}"
        ));
    }
    Ok(register(name, build))
}

/// The schema (draft 7) of a recipe of one stage: keys, defaults, meanings, and the words that a key takes.
pub fn schema() -> Json {
    let mut root = object();
    for key in key_entries() {
        let path: Vec<&str> = key.section.split('.').filter(|it| !it.is_empty()).collect();
        let table = path.iter().fold(&mut root, |table, name| {
            let properties = table["properties"].as_object_mut().expect("it is one");
            properties.entry(*name).or_insert_with(object)
        });
        table["properties"][key.name] = property(&key);
    }
    for method in METHODS.iter().filter(|it| !it.own_keys.is_empty()) {
        root["properties"][method.name] = json!({ "type": "object" });
    }
    root["properties"]["stage"] = json!({ "type": "array", "items": { "type": "object" } });
    root["$schema"] = "http://json-schema.org/draft-07/schema#".into();
    root["title"] = "A recipe of hapo".into();
    root["required"] = REQUIRED.iter().filter(|it| !it.contains('.')).copied().collect();
    root
}

fn object() -> Json {
    json!({ "type": "object", "properties": {}, "additionalProperties": false })
}

fn property(key: &KeyEntry) -> Json {
    let mut fields = Map::new();
    fields.insert("description".to_owned(), key.meaning.into());
    let default = key.default.parse::<Value>().ok();
    let default = default.and_then(|it| serde_json::to_value(it).ok());
    let taken = match (&default, words(key)) {
        (Some(Json::Bool(_)), _) => Some(("type", json!("boolean"))),
        (_, words) if !words.is_empty() => Some(("enum", json!(words))),
        (Some(Json::Number(_)), _) => Some(("type", json!("number"))),
        _ => None,
    };
    if let Some(range) = &key.range {
        range.add_to(&mut fields);
    }
    fields.extend(taken.map(|(name, value)| (name.to_owned(), value)));
    fields.extend(default.map(|it| ("default".to_owned(), it)));
    Json::Object(fields)
}

/// The words of a key that takes nothing else, as the refusal of another one names them.
fn words(key: &KeyEntry) -> Vec<String> {
    let set = Overrides::set([format!("{}=\"\\u0001\"", key.path())]);
    let refused = Recipe::parse(EVERY_SECTION, "schema", &set).err();
    let problem = refused.as_ref().and_then(Refusal::cause::<RecipeProblem>);
    let named = problem.and_then(|it| it.problem.strip_prefix("expected one of "));
    let words = named.and_then(|it| it.rsplit_once(", got ")).map(|it| it.0.split(", "));
    words.map(|it| it.map(str::to_owned).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_has_every_key_and_the_words_it_takes() {
        let schema = schema();
        for key in key_entries() {
            let pointer = format!("/properties/{}", key.path().replace('.', "/properties/"));
            assert!(schema.pointer(&pointer).is_some(), "{}", key.path());
        }
        let of = |pointer: &str| schema.pointer(pointer).unwrap().clone();
        let schedules = of("/properties/optim/properties/lr_schedule/enum");
        assert_eq!(schedules, json!(["constant", "linear", "cosine"]));
        assert_eq!(of("/properties/optim/properties/lr/type"), "number");
        assert_eq!(of("/properties/optim/properties/lr/default"), json!(5e-6));
        assert_eq!(of("/properties/optim/properties/lr/exclusiveMinimum"), json!(0.0));
        assert_eq!(of("/properties/sampling/properties/group_size/maximum"), json!(65535.0));
        assert!(of("/properties/method/enum").as_array().unwrap().contains(&json!("uft")));
    }
}
