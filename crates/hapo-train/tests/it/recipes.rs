//! Every recipe of the repository loads, resolves and is what its snapshot says.

use std::path::{Path, PathBuf};

use expect_test::expect_file;
use hapo_core::{AnnealingMode, HapoGate, NormaliserKind};
use hapo_train::recipe::{LearningRateSchedule, Overrides};
use hapo_train::{ModelSource, Recipe, StageCheckpoint};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes")
}

fn recipes() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "toml") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// What a recipe comes to: one line per stage with the numbers that tell rows apart.
fn summary(it: &Recipe) -> String {
    let raw = it;
    let model = match it.model() {
        ModelSource::Folder(path) => path.clone(),
        ModelSource::Stage(name, _) => format!("stage:{name}"),
        ModelSource::Init(_) => "random weights".to_owned(),
    };
    let gate = match it.gate() {
        Some(HapoGate { gate, slot, .. }) => format!("{gate:?} {slot:?}"),
        None => "bare".to_owned(),
    };
    let resolved: toml::Table = it.resolved().parse().unwrap();
    let own = resolved.get(it.method().name).map(ToString::to_string).unwrap_or_default();
    let o = it.loss();
    let lr_schedule = format!("{:?}", raw.optim.lr_schedule).to_lowercase();
    format!(
        "{} seed {} · {} steps of {}×{} · {model} {} · lr {} {} warm-up {} · mini-batch {} ×{} · \
         clip {}/{} {:?} {:?} entropy {} std {} {:?} · d {} λ {:?} {own} · \
         ≤ {} tokens, T {} refill {} · {gate}",
        it.method().name,
        raw.seed,
        raw.steps,
        raw.sampling.prompts_per_step,
        raw.sampling.group_size,
        raw.model.dtype,
        raw.optim.lr,
        lr_schedule,
        raw.optim.warmup,
        raw.optim.mini_batch_prompts,
        raw.optim.passes,
        o.clip.low,
        o.clip.high,
        o.importance_ratio_level,
        o.normaliser,
        o.entropy_coef,
        raw.advantage.std,
        raw.advantage.group,
        raw.teacher.d,
        raw.teacher.weight,
        raw.sampling.max_new_tokens,
        raw.sampling.temperature,
        raw.sampling.dynamic_sampling,
    )
}

#[test]
fn every_recipe_resolves_to_its_snapshot() {
    let mut text = String::new();
    for path in recipes() {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let stages = Recipe::load_stages(&path, &Overrides::default())
            .unwrap_or_else(|it| panic!("{name}: {it}"));
        for it in &stages {
            // What is resolved can be read again, and is the same.
            let again = Recipe::parse_resolved(&it.resolved(), &name).unwrap();
            assert_eq!(again.resolved(), it.resolved(), "{name}");
            assert_eq!(summary(&again), summary(it));
            let stage = it.stage().map_or(String::new(), |it| format!(" [{it}]"));
            text += &format!("{name}{stage}: {}\n", summary(it));
        }
    }
    expect_file!["recipes.txt"].assert_eq(&text);
}

#[test]
fn paper_presets_have_the_papers_numbers() {
    const ROWS: &[&str] = &[
        "grpo",
        "luffy",
        "srft",
        "trapo",
        "luffy-hapo",
        "srft-hapo",
        "hapo-table1",
        "hapo-method",
        "hindsight",
        "gated-m0",
        "annealed-03",
        "luffy-hapo-method",
        "srft-hapo-method",
    ];
    for size in ["3b", "7b"] {
        let load = |name: &str| {
            let path = root().join(format!("paper/{size}/{name}.toml"));
            Recipe::load(&path, &Overrides::default()).unwrap().clone()
        };
        for name in ROWS {
            let raw = load(name);
            let (s, o, l) = (&raw.sampling, &raw.optim, &raw.loss);
            assert!(raw.steps < 200, "{name}: the cold start is under 200 steps");
            assert_eq!((s.prompts_per_step, s.group_size), (128, 8));
            assert_eq!((raw.data.max_prompt_tokens, s.max_new_tokens), (1024, 8192));
            assert_eq!((s.temperature, s.top_p), (1.0, 1.0));
            assert_eq!((o.lr, o.lr_schedule), (5e-6, LearningRateSchedule::Constant));
            assert_eq!((o.betas, o.eps, o.weight_decay), ([0.9, 0.999], 1e-8, 0.01));
            assert_eq!((o.max_grad_norm, o.mini_batch_prompts, o.passes), (1.0, 64, 1));
            assert_eq!((l.clip_low, l.clip_high, l.entropy_coef), (0.2, 0.2, 0.001));
            assert!(!raw.advantage.std && l.normaliser == NormaliserKind::Constant);
        }
        let sft = load("sft");
        assert_eq!((sft.optim.lr, sft.optim.warmup), (5e-5, 0.1));
        assert_eq!((sft.sampling.prompts_per_step, sft.steps), (32, 500));
        let table1 = load("hapo-table1").hapo.clone().unwrap();
        assert_eq!(
            (table1.gamma0, table1.annealing),
            (Some("0.3".parse().unwrap()), AnnealingMode::Off)
        );
        let method = load("hapo-method").hapo.clone().unwrap();
        assert_eq!((method.success_limit, method.annealing), (Some(0), AnnealingMode::Sigmoid));
        assert_eq!(method.turn_off_epoch, Some("1.5".parse().unwrap()));
    }
}

/// The paper's table is cumulative: in each reading its last two rows differ by the schedule and nothing else.
#[test]
fn the_pairs_of_table_2_differ_in_annealing_alone() {
    for size in ["mini", "paper/3b", "paper/7b"] {
        let load = |name: &str| {
            let text = std::fs::read_to_string(root().join(format!("{size}/{name}.toml"))).unwrap();
            let mut table: toml::Table = text.parse().unwrap();
            table.remove("name");
            table
        };
        let pairs = [("gated-m0", "hapo-method"), ("hapo-table1", "annealed-03")];
        for (open, annealed) in pairs {
            let (mut open, mut annealed) = (load(open), load(annealed));
            let gate = annealed["hapo"].as_table_mut().unwrap();
            for key in ["annealing", "turn_off_epoch", "steepness"] {
                assert!(gate.remove(key).is_some(), "{size}: {key}");
            }
            let off = open["hapo"].as_table_mut().unwrap().remove("annealing");
            assert_eq!(off, Some("off".into()));
            assert_eq!(open, annealed, "{size}");
        }
        let (mut gated, mut table1) = (load("gated-m0"), load("hapo-table1"));
        let m = gated["hapo"].as_table_mut().unwrap().remove("success_limit");
        let gamma0 = table1["hapo"].as_table_mut().unwrap().remove("gamma0");
        assert_eq!((m, gamma0), (Some(0.into()), Some(0.3.into())));
        assert_eq!(gated, table1, "{size}");
        for host in ["luffy", "srft"] {
            let (of_host, method) = (load(&format!("{host}-hapo-method")), load("hapo-method"));
            assert_eq!(of_host["hapo"], method["hapo"], "{size}");
            assert_eq!(of_host["method"].as_str(), Some(host));
        }
    }
}

#[test]
fn stages_take_what_they_do_not_say_from_the_recipe_around_them() {
    let text = "steps = 7\nmodel.path = \"builtin:base\"\noptim.lr = 1e-4\n\
        [[stage]]\nname = \"a\"\nmethod = \"sft\"\nsteps = 3\n\
        [[stage]]\nname = \"b\"\nmethod = \"grpo\"\nmodel.path = \"stage:a\"\noptim.warmup = 0.5\n";
    let load = |overrides: &[&str]| {
        let overrides = Overrides::set(overrides.iter().copied());
        Recipe::parse_stages(text, "two.toml", "two", &overrides).map_err(|it| it.to_string())
    };
    let stages = load(&[]).unwrap();
    assert_eq!((stages[0].steps, stages[1].steps), (3, 7));
    assert_eq!((stages[0].optim.lr, stages[1].optim.lr), (1e-4, 1e-4));
    assert_eq!((stages[0].optim.warmup, stages[1].optim.warmup), (0.0, 0.5));
    assert_eq!(*stages[1].model(), ModelSource::Stage("a".to_owned(), StageCheckpoint::Settled));
    let stages = load(&["seed=9", "stage.b.steps=2"]).unwrap();
    assert_eq!((stages[0].seed, stages[1].seed), (9, 9));
    assert_eq!((stages[0].steps, stages[1].steps), (3, 2));
    let refused = load(&["stage.c.steps=2"]).unwrap_err();
    assert!(refused.contains("the recipe has no such stage"), "{refused}");
    let forward = text.replace("stage:a", "stage:b");
    let refused = Recipe::parse_stages(&forward, "two.toml", "two", &Overrides::default())
        .unwrap_err()
        .to_string();
    assert!(refused.contains("no stage `b` comes before this one"), "{refused}");
    // D33: what a stage hands on.
    let of = |text: &str| {
        let stages = Recipe::parse_stages(text, "two.toml", "two", &Overrides::default());
        stages.map(|it| it[1].model().clone()).map_err(|it| it.to_string())
    };
    let (last, best) =
        (text.replace("stage:a", "stage:a@last"), text.replace("stage:a", "stage:a@best"));
    assert_eq!(of(&last).unwrap(), ModelSource::Stage("a".to_owned(), StageCheckpoint::Last));
    let refused = of(&best).unwrap_err();
    assert!(refused.contains("stage `a` has no [eval] that a best could be told by"), "{refused}");
    let evaluated = best.replace("steps = 3", "steps = 3\neval.suite = \"mini6\"");
    assert_eq!(of(&evaluated).unwrap(), ModelSource::Stage("a".to_owned(), StageCheckpoint::Best));
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest() {
    let text = "method = \"trapo\"\nmodel.path = \"builtin:base\"\n[hapo]\nturn_of_epoch = 1.5\n";
    let refused = Recipe::parse_stages(text, "x.toml", "x", &Overrides::default()).unwrap_err();
    assert!(refused.to_string().contains("turn_of_epoch"), "{refused}");
    assert_eq!(refused.how_to_mend().unwrap().to_string(), "did you mean `turn_off_epoch`?");
}

/// What is cut off would be left out without a word.
#[test]
fn a_recipe_of_more_than_1_mib_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.toml");
    let recipe = "model.path = \"builtin:base\"\nmethod = \"grpo\"\n#";
    std::fs::write(&path, recipe.to_owned() + &" ".repeat(1 << 20)).unwrap();
    let refused = Recipe::load(&path, &Overrides::default()).unwrap_err();
    assert!(format!("{refused:?}").contains("it has more than 1 MiB"), "{refused:?}");
}
