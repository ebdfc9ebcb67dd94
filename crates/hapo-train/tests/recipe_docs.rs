//! The tables of docs/recipes.md are made from the recipe's own lines. `UPDATE_EXPECT=1` rewrites them.

use std::fmt::Write;
use std::path::Path;

use hapo_core::METHODS;
use hapo_train::recipe::{Key, REQUIRED, SECTIONS};
use hapo_train::{Overrides, Recipe};

/// A recipe in which every section is written, for its defaults.
fn defaults() -> toml::Table {
    let text = "method = \"trapo\"\nmodel.init = { hidden = 2, layers = 1, heads = 1, kv_heads = 1, ffn = 1 }\n\
                hapo.turn_off_epoch = 1";
    let recipe = Recipe::parse(text, "defaults", &Overrides::default()).unwrap();
    toml::Table::try_from(recipe.settings()).unwrap()
}

fn default_of(defaults: &toml::Table, section: &str, key: &Key) -> String {
    let path = match section {
        "" => key.name.to_owned(),
        _ => format!("{section}.{}", key.name),
    };
    if REQUIRED.contains(&path.as_str()) {
        return "required".to_owned();
    }
    // The recipe above has to say it.
    if path == "hapo.turn_off_epoch" {
        return String::new();
    }
    let mut sections = section.split('.').filter(|it| !it.is_empty());
    let table = sections.try_fold(defaults, |table, it| table.get(it)?.as_table());
    match table.and_then(|it| it.get(key.name)) {
        None | Some(toml::Value::Table(_)) => String::new(),
        Some(toml::Value::Float(it)) if it.fract() == 0.0 && it.abs() < 1e6 => format!("`{it:.1}`"),
        Some(toml::Value::Float(it)) if it.abs() < 1e-3 => format!("`{it:e}`"),
        Some(it) => format!("`{it}`"),
    }
}

fn tables() -> String {
    let defaults = defaults();
    let mut text = String::new();
    for (section, keys) in SECTIONS {
        match *section {
            "" => text += "### At the top\n\n",
            section => writeln!(text, "### `[{section}]`\n").unwrap(),
        }
        text += "| key | default | meaning |\n|---|---|---|\n";
        for key in *keys {
            let is_section = SECTIONS.iter().any(|it| it.0 == key.name);
            if section.is_empty() && is_section {
                continue;
            }
            let default = default_of(&defaults, section, key);
            let meaning = key.meaning.trim().replace('|', "\\|");
            writeln!(text, "| `{}` | {default} | {meaning} |", key.name).unwrap();
        }
        text += "\n";
    }
    text += "### Tables of single methods\n\n| table | keys | of the method |\n|---|---|---|\n";
    for it in METHODS.iter().filter(|it| !it.own_keys.is_empty()) {
        let (name, keys) = (it.name, it.own_keys.join("`, `"));
        writeln!(text, "| `[{name}]` | `{keys}` | [{name}](methods/{name}.md) |").unwrap();
    }
    text
}

#[test]
fn the_tables_of_the_documentation_are_the_recipes() {
    const BEGIN: &str = "<!-- keys: made by crates/hapo-train/tests/recipe_docs.rs -->\n\n";
    const END: &str = "\n<!-- end of the keys -->";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recipes.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the mark before the tables");
    let (old, after) = rest.split_once(END).expect("the mark behind the tables");
    let new = tables();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{new}{END}{after}")).unwrap();
    } else {
        assert!(old == new, "docs/recipes.md has other tables: run this test with UPDATE_EXPECT=1");
    }
}
