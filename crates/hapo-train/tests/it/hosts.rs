//! Every injection around every host: those that settle make a step, the others are refused with their reasons.

use hapo_core::{INJECTIONS, METHODS, MethodSettings};
use hapo_run::is_clock;
use hapo_train::{Metrics, Overrides, Recipe, Run, RunPlan};

fn recipe(method: &str, sets: &[&str]) -> Result<Recipe, String> {
    let group = if method == "sft" { "" } else { "group_size = 4, " };
    let text = format!(
        "method = \"{method}\"\nsteps = 8\n\
         model.init = {{ hidden = 32, layers = 2, heads = 4, kv_heads = 2, ffn = 64, std = 0.3 }}\n\
         data = {{ prompts = 4, levels = [\"multiply:2\"], teacher_coverage = 1.0, max_prompt_tokens = 96 }}\n\
         sampling = {{ {group}prompts_per_step = 4, max_new_tokens = 48 }}\n"
    );
    let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
    let recipe = Recipe::parse(&text, "r.toml", &Overrides::set(sets));
    recipe.map_err(|it| it.to_string())
}

/// The metrics of the last of some steps.
fn steps(recipe: &Recipe, steps: usize) -> Metrics {
    let mut run = Run::new(&RunPlan::settle(recipe).unwrap(), 2).unwrap();
    let metrics = (0..steps).map(|_| run.step().unwrap()).last().unwrap();
    for (name, value) in metrics.iter().filter(|it| !is_clock(it.0)) {
        assert!(value.is_finite(), "{}: {name} is {value}", recipe.name());
    }
    metrics
}

/// Why HAPO wraps none of these, whatever enters.
const REFUSED: &[(&str, &str)] = &[
    ("sft", "samples no rollouts for the gate to look at"),
    ("uft", "the prefixes decide when the teacher helps"),
    ("prefix-rft", "the prefixes decide when the teacher helps"),
    ("questa", "shows hints by its own rule"),
    ("mfc", "shows hints by its own rule"),
    ("scaf-grpo", "shows hints by its own rule"),
    ("ghpo", "shows hints by its own rule"),
    ("opd", "reads scores of its rollouts"),
    ("kdrl", "reads scores of its rollouts"),
    ("tgopd", "reads scores of its rollouts"),
    ("sdpo", "reads scores of its rollouts"),
    ("edge", "reads scores of its rollouts"),
    ("ampo", "decides by itself what enters"),
    ("relift", "decides by itself what enters"),
    ("rlep", "decides by itself what enters"),
    ("repo", "decides by itself what enters"),
    ("exgrpo", "decides by itself what enters"),
];

#[test]
fn every_injection_runs_around_every_host_or_is_refused() {
    if hapo_testing::slow() {
        return;
    }
    let mut ran = 0;
    for entry in METHODS {
        let host = entry.build(&MethodSettings::default()).unwrap();
        let refusal = REFUSED.iter().find(|it| it.0 == entry.name);
        for injection in INJECTIONS {
            let enters = format!("hapo.injection=\"{}\"", injection.name);
            let open = ["hapo.annealing=\"off\"", "hapo.success_limit=3", &enters];
            let mut sets = open.to_vec();
            if (injection.help)().needs.reference || host.needs().reference {
                sets.push("reference.path=\"builtin:base\"");
            }
            if let Some((_, because)) = refusal {
                let problem = recipe(entry.name, &sets).unwrap_err();
                assert!(problem.contains(because), "{} {}: {problem}", entry.name, injection.name);
                continue;
            }
            let needs_operator = host.is_plain_host() && (injection.help)().takes_trace();
            let operator = ["teacher.operator=\"luffy\""];
            if needs_operator {
                let problem = recipe(entry.name, &sets).unwrap_err();
                assert!(problem.contains("has no term for a teacher"), "{problem}");
                sets.extend(operator);
            } else {
                let problem = recipe(entry.name, &[&sets[..], &operator].concat()).unwrap_err();
                assert!(problem.contains("`teacher.operator` means nothing here"), "{problem}");
            }
            if host.takes_negative_rewards {
                sets.push("data.verdict_noise=0.3");
            }
            let replays = (injection.help)().needs.memory;
            let metrics = steps(&recipe(entry.name, &sets).unwrap(), if replays { 2 } else { 1 });
            let of = |name: &str| metrics.get(name).unwrap();
            let name = format!("{} around {}", injection.name, entry.name);
            let opened = of("gate/open");
            assert!(opened > 0.0, "{name}");
            if injection.name == "trace" {
                assert_eq!(4.0 * of("gate/beta"), opened, "{name}");
                assert!(of("teacher/token_share") > 0.0 && of("teacher/grad_norm") > 0.0, "{name}");
            }
            ran += 1;
        }
    }
    assert_eq!(ran, 11 * INJECTIONS.len());
}

/// Eight prompts are two steps: the third shows no trace that was not shown before.
#[test]
fn distinct_traces_are_counted_once_over_all_epochs() {
    let open = ["hapo.annealing=\"off\"", "hapo.success_limit=3"];
    let prefix = [&open[..], &["hapo.injection=\"prefix\"", "teacher.operator=\"luffy\""]].concat();
    let replay = [&open[..], &["hapo.injection=\"replay\""]].concat();
    for (method, sets, shown) in [
        ("luffy", &[][..], 8.0),
        ("sft", &[], 8.0),
        ("ghpo", &[], 8.0),
        ("relift", &["relift.batch=4"], 8.0),
        ("grpo", &prefix, 8.0),
        ("grpo", &replay, 0.0),
        ("grpo", &[], 0.0),
    ] {
        let recipe = recipe(method, &[&["data.prompts=8"], sets].concat()).unwrap();
        let distinct = |after| steps(&recipe, after).get("teacher/distinct").unwrap();
        assert_eq!(distinct(3), shown, "{method} {sets:?}");
        assert!(distinct(1) <= shown / 2.0, "{method} {sets:?}");
    }
}

/// GSPO's ratio of a sequence has no token that a distilled one could weigh; a trace has no ratio.
#[test]
fn a_ratio_of_a_sequence_is_refused_where_tokens_are_weighed() {
    let sets = |injection| {
        let enters = format!("hapo.injection=\"{injection}\"");
        let all = ["hapo.annealing=\"off\"", "loss.importance_ratio_level=\"sequence\"", &enters];
        all.map(str::to_owned)
    };
    let of = |injection, more: &[&str]| {
        let sets = sets(injection);
        let sets: Vec<&str> = sets.iter().map(String::as_str).chain(more.iter().copied()).collect();
        recipe("grpo", &sets)
    };
    let refused = of("distill", &["reference.path=\"builtin:base\""]).unwrap_err();
    assert!(refused.contains("has no token to be weighted"), "{refused}");
    for (injection, more) in [
        ("trace", &["teacher.operator=\"chord\""][..]),
        ("prefix", &["teacher.operator=\"trapo\""]),
        ("hint", &[]),
        ("replay", &[]),
    ] {
        steps(&of(injection, more).unwrap(), 1);
    }
}

/// Of two solutions of each prompt the run takes one; a prefix is shown before whole trajectories could be scored.
#[test]
fn one_of_several_solutions_is_picked_and_none_is_called_unused() {
    let two = ["data.teacher_steps=\"two\"", "data.verdict_noise=0.3"];
    for pick in ["first", "random", "shortest", "likeliest"] {
        let pick = format!("teacher.pick=\"{pick}\"");
        let recipe = recipe("luffy", &[&two[..], &[&pick]].concat()).unwrap();
        let run = Run::new(&RunPlan::settle(&recipe).unwrap(), 2).unwrap();
        let unused = run.warnings().iter().any(|it| it.contains("solutions are not used"));
        assert_eq!(unused, pick.contains("first"), "{pick}");
        assert!(steps(&recipe, 1).get("teacher/token_share").unwrap() > 0.0);
    }
    let sets =
        ["teacher.pick=\"likeliest\"", "hapo.annealing=\"off\"", "hapo.injection=\"prefix\""];
    let refused = recipe("luffy", &sets).unwrap_err();
    assert!(refused.contains("a prefix is shown before"), "{refused}");
    for (method, sets, because) in [
        ("ampo", &[][..], "does not read it"),
        ("grpo", &[], "lets no teacher into a group"),
        (
            "luffy",
            &["hapo.annealing=\"off\"", "hapo.injection=\"replay\""],
            "lets no trajectory in",
        ),
    ] {
        let refused = recipe(method, &[sets, &["teacher.pick=\"random\""]].concat()).unwrap_err();
        assert!(refused.contains(because), "{refused}");
    }
}
