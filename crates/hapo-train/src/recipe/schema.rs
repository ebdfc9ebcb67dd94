//! The recipe as a JSON schema, for editors that complete and check TOML.

use hapo_core::{METHODS, Refusal};
use serde_json::{Map, Value, json};

use super::keys::{EVERY_SECTION, KeyEntry, key_entries};
use super::{Overrides, REQUIRED, Recipe, RecipeProblem};

/// The schema (draft 7) of a recipe of one stage: keys, defaults, meanings, and the words that a key takes.
pub fn schema() -> Value {
    let mut root = object();
    for key in key_entries() {
        let path: Vec<&str> = key.section.split('.').filter(|it| !it.is_empty()).collect();
        let table = path.iter().fold(&mut root, |table, name| {
            table["properties"]
                .as_object_mut()
                .expect("it is one")
                .entry(*name)
                .or_insert_with(object)
        });
        table["properties"][key.name] = property(&key);
    }
    for method in METHODS.iter().filter(|it| !it.own_keys.is_empty()) {
        root["properties"][method.name] = json!({ "type": "object" });
    }
    root["properties"]["stage"] = json!({ "type": "array", "items": { "type": "object" } });
    root["$schema"] = "http://json-schema.org/draft-07/schema#".into();
    root["title"] = "A recipe of hapo".into();
    let needed = REQUIRED.iter().filter(|it| !it.contains('.'));
    root["required"] = needed.copied().collect();
    root
}

fn object() -> Value {
    json!({ "type": "object", "properties": {}, "additionalProperties": false })
}

fn property(key: &KeyEntry) -> Value {
    let mut fields = Map::new();
    fields.insert("description".to_owned(), key.meaning.into());
    let default = key.default.parse::<toml::Value>().ok();
    let default = default.and_then(|it| serde_json::to_value(it).ok());
    let taken = match (&default, words(key)) {
        (Some(Value::Bool(_)), _) => Some(("type", json!("boolean"))),
        (_, words) if !words.is_empty() => Some(("enum", json!(words))),
        (Some(Value::Number(_)), _) => Some(("type", json!("number"))),
        _ => None,
    };
    if let Some(range) = &key.range {
        range.add_to(&mut fields);
    }
    fields.extend(taken.map(|(name, value)| (name.to_owned(), value)));
    fields.extend(default.map(|it| ("default".to_owned(), it)));
    Value::Object(fields)
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
