//! The tables of docs/recipes.md are made from the recipe's own lines. `UPDATE_EXPECT=1` rewrites them.

use std::fmt::Write;
use std::path::Path;

use hapo_core::METHODS;
use hapo_train::recipe::{SECTIONS, key_entries};

fn tables() -> String {
    let mut text = String::new();
    let entries = key_entries();
    for (section, _) in SECTIONS {
        match *section {
            "" => text += "### At the top\n\n",
            section => writeln!(text, "### `[{section}]`\n").unwrap(),
        }
        text += "| key | default | meaning |\n|---|---|---|\n";
        for key in entries.iter().filter(|it| it.section == *section) {
            let default = match key.default.as_str() {
                it @ ("" | "required") => it.to_owned(),
                it => format!("`{it}`"),
            };
            let range = key.range.as_ref().map_or_else(String::new, |it| format!(" Takes {it}."));
            let meaning = key.meaning.replace('|', "\\|") + &range;
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
    const BEGIN: &str = "<!-- keys: made by crates/hapo-train/tests/it/recipe_docs.rs -->\n\n";
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
