//! The ready recipes are planned: their second line says what a run takes. `UPDATE_EXPECT=1` rewrites it.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use hapo_kernels::Compute;
use hapo_model::Config;
use hapo_train::plan::{DeviceSpec, Lengths, Workload, estimate};
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
        prompt: recipe.data.max_prompt_tokens as f64 / 2.0,
        response: recipe.sampling.max_new_tokens as f64 / 2.0,
    };
    let cpu = estimate(Workload::new(recipe, &config, &two_cores()), lengths);
    assert!(cpu.fits, "{}: {} bytes", recipe.name(), cpu.total_bytes);
    let hours = cpu.step_seconds() * recipe.steps as f64 / 3600.0;
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

/// The shape of the base models of the paper's rows.
fn shape_of(size: &str) -> Config {
    let [hidden, layers, heads, kv_heads, ffn, vocabulary, tied] = match size {
        "3b" => [2048, 36, 16, 2, 11008, 151_936, 1],
        _ => [3584, 28, 28, 4, 18944, 152_064, 0],
    };
    let text = format!(
        "{{\"architectures\": [\"Qwen2ForCausalLM\"], \"model_type\": \"qwen2\", \"hidden_size\": {hidden}, \
        \"num_hidden_layers\": {layers}, \"num_attention_heads\": {heads}, \"num_key_value_heads\": {kv_heads}, \
        \"intermediate_size\": {ffn}, \"vocab_size\": {vocabulary}, \"max_position_embeddings\": 32768, \
        \"rms_norm_eps\": 1e-6, \"rope_theta\": 1000000.0, \"tie_word_embeddings\": {}, \
        \"eos_token_id\": 151643, \"hidden_act\": \"silu\"}}",
        tied == 1
    );
    hapo_model::config_json::parse(Path::new("config.json"), text.as_bytes(), None).unwrap().config
}

/// A recipe names its GPU in its second line, fits there, and samples at least 64 sequences at once at a mean of 200 and
/// 1,000 tokens.
#[test]
fn paper_recipes_fit_the_gpu_that_they_name() {
    if hapo_testing::slow() {
        return;
    }
    let mut seen = 0;
    for size in ["3b", "7b"] {
        let config = shape_of(size);
        for entry in fs::read_dir(repository("recipes/paper").join(size)).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            let line = text.lines().nth(1).unwrap();
            let gpu = line.strip_prefix("# GPU: ").and_then(|it| it.split(['.', ',', ';']).next());
            let gpu = gpu.unwrap_or_else(|| panic!("{} names its GPU", path.display()));
            let device = DeviceSpec::gpu(gpu, Compute::F32).unwrap();
            let mut expected = format!("# GPU: {gpu};");
            for recipe in Recipe::load_stages(&path, &Overrides::default()).unwrap() {
                let lengths = Lengths { prompt: 200.0, response: 1000.0 };
                let it = estimate(Workload::new(&recipe, &config, &device), lengths);
                let name = format!("{} on {gpu}", recipe.name());
                assert!(it.fits, "{name}: {} bytes", it.total_bytes);
                let samples = it.sampled_tokens > 0.0;
                assert!(!samples || it.sequences_at_once >= 64, "{name}: {}", it.sequences_at_once);
                let _ = write!(expected, " {:.0} GB", it.total_bytes as f64 / 1e9);
                if samples {
                    let _ = write!(expected, ", {} sequences at once", it.sequences_at_once);
                }
                expected.push(';');
            }
            expected = format!("{}.", expected.trim_end_matches(';'));
            if std::env::var_os("UPDATE_EXPECT").is_some() {
                fs::write(&path, text.replacen(line, &expected, 1)).unwrap();
            } else {
                assert_eq!(line, expected, "{}: run with UPDATE_EXPECT=1", path.display());
            }
            seen += 1;
        }
    }
    assert_eq!(seen, 40);
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
    assert!(error.contains("no such recipe, expected one of: first, "), "{error}");
}
