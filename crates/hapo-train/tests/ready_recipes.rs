//! The ready recipes are planned: their second line says what a run takes. `UPDATE_EXPECT=1` rewrites it.

use std::fs;
use std::path::{Path, PathBuf};

use hapo_train::plan::{DeviceSpec, Lengths, plan};
use hapo_train::recipe::BUILTIN_RECIPES;
use hapo_train::{Overrides, Recipe};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Two cores of a server.
fn two_cores() -> DeviceSpec {
    DeviceSpec::cpu("two cores", 48_000_000_000, 2.0e11, 2.0e10)
}

fn planned(recipe: &Recipe, model: &str) -> String {
    let folder = repository("testdata/configs").join(model);
    let config = hapo_model::folder::read_config(&folder).unwrap().config;
    let lengths = Lengths {
        prompt: recipe.data().max_prompt_tokens as f64 / 2.0,
        response: recipe.sampling().max_new_tokens as f64 / 2.0,
    };
    let cpu = plan(recipe, &config, &two_cores(), lengths);
    assert!(cpu.fits, "{}: {} bytes", recipe.name(), cpu.total_bytes);
    let hours = cpu.step_seconds() * recipe.steps() as f64 / 3600.0;
    format!(
        "# Planned: {:.1} GB of memory; a step takes {:.0} s, the run {hours:.1} h on two cores of 100 GFLOP/s.",
        cpu.total_bytes as f64 / 1e9,
        cpu.step_seconds(),
    )
}

#[test]
fn ready_recipes_say_what_they_take() {
    let mut seen = 0;
    for entry in fs::read_dir(repository("recipes/ready")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let model = name.rsplit_once('-').unwrap().0;
        let text = fs::read_to_string(&path).unwrap();
        let recipe = Recipe::parse(&text, &name, &Overrides::default()).unwrap();
        assert_eq!(recipe.name(), name);
        assert!(recipe.gate().is_some() && recipe.warnings().is_empty(), "{:?}", recipe.warnings());
        let expected = planned(&recipe, model);
        let line = text.lines().nth(1).unwrap();
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&path, text.replacen(line, &expected, 1)).unwrap();
        } else {
            assert_eq!(line, expected, "{name}: run this test with UPDATE_EXPECT=1");
        }
        assert!(BUILTIN_RECIPES.iter().any(|it| it.name == name), "{name} comes with the program");
        seen += 1;
    }
    assert_eq!(seen, 8);
}

#[test]
fn recipes_of_the_program_are_found_by_name() {
    for it in BUILTIN_RECIPES {
        let name = format!("builtin:{}", it.name);
        let stages = Recipe::load_stages(Path::new(&name), &Overrides::default());
        assert_eq!(stages.unwrap().len(), 1, "{name}");
        assert!(it.summary().ends_with(['.', ':']), "{name}: {}", it.summary());
    }
    let error = Recipe::load_stages(Path::new("builtin:none"), &Overrides::default());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("no such recipe, expected one of: smoke, "), "{error}");
}
