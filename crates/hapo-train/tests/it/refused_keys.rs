//! Refusals of a recipe: unread keys, unknown words and keys, each with its place and advice.

use expect_test::{Expect, expect};
use hapo_train::recipe::WrittenAs;
use hapo_train::{Overrides, Recipe};

fn overrides(set: &[&str], unset: &[&str]) -> Overrides {
    Overrides {
        unset: unset.iter().map(|it| (*it).to_owned()).collect(),
        written_as: WrittenAs { set: "--set", unset: "--unset" },
        ..Overrides::set(set.iter().copied())
    }
}

/// The error of a recipe and its hint.
fn refused(text: &str, set: &[&str], unset: &[&str]) -> String {
    let text = format!("model.path = \"builtin:base\"\n{text}");
    let all = Recipe::parse_stages(&text, "r.toml", "r", &overrides(set, unset));
    let error = all.unwrap_err();
    let hint = error.how_to_mend().map(ToString::to_string);
    format!("{error}\n{}", hint.unwrap_or_default())
}

/// The recipe means something with `rest` alone, and is refused with the key on top.
fn means_nothing(rest: &str, key: &str, because: &str) {
    let parse = |text: &str| {
        let text = format!("model.path = \"builtin:base\"\n{text}");
        Recipe::parse(&text, "r.toml", &Overrides::default())
    };
    parse(rest).unwrap_or_else(|it| panic!("{rest}: {it}"));
    let (name, _) = key.split_once(" = ").unwrap();
    let error = parse(&format!("{key}\n{rest}")).unwrap_err().to_string();
    let expected = format!("`{name}` means nothing here: {because}");
    assert!(error.starts_with(&expected), "{key}: {error}");
    let column = name.find('.').map_or(1, |it| it + 2);
    let place = format!("(r.toml, line 2, column {column}: {name})");
    assert!(error.ends_with(&place), "{error}");
}

#[test]
fn a_gate_that_asks_for_no_confidence_has_no_threshold_and_no_annealing() {
    for (gate, because) in [
        ("always", "hapo.gate = \"always\" does not read it"),
        ("never", "hapo.gate = \"never\" lets no teacher in"),
    ] {
        let rest = format!("method = \"trapo\"\n[hapo]\ngate = \"{gate}\"");
        for key in [
            "hapo.success_limit = 1",
            "hapo.gamma0 = 0.3",
            "hapo.annealing = \"off\"",
            "hapo.turn_off_epoch = 1.5",
            "hapo.steepness = 10",
        ] {
            let rest = rest.replace("[hapo]\ngate", "hapo.gate");
            means_nothing(&rest, key, because);
        }
    }
    let never = "method = \"trapo\"\nhapo.gate = \"never\"";
    for key in ["hapo.slot = \"first\"", "teacher.weight = 0.5", "advantage.group = \"sampled\""] {
        means_nothing(never, key, "hapo.gate = \"never\" lets no teacher in");
    }
}

#[test]
fn a_gate_that_stays_has_no_end() {
    for key in ["hapo.turn_off_epoch = 1.5", "hapo.steepness = 10"] {
        let rest = "method = \"trapo\"\nhapo.annealing = \"off\"";
        means_nothing(rest, key, "hapo.annealing = \"off\" keeps the gate as it is");
    }
}

#[test]
fn imitation_samples_nothing() {
    for key in [
        "sampling.group_size = 4",
        "sampling.temperature = 0.7",
        "sampling.top_p = 0.9",
        "sampling.top_k = 20",
        "sampling.min_p = 0.1",
        "sampling.stop = [\"x\"]",
        "sampling.max_sequences = 8",
        "sampling.dynamic_sampling = 1",
        "data.verdict_noise = 0.1",
        "metrics.kl_every = 5",
        "metrics.rollouts_every = 2",
        "metrics.preflight = 8",
        "loss.clip_low = 0.1",
        "loss.clip_high = 0.1",
        "loss.importance_ratio_level = \"token\"",
        "loss.normaliser = \"constant\"",
        "loss.entropy_coef = 0.1",
        "advantage.std = true",
        "advantage.group = \"mixed\"",
        "guard.stop = true",
    ] {
        means_nothing("method = \"sft\"", key, "method = \"sft\" samples no rollouts");
    }
}

#[test]
fn a_method_without_a_teacher_has_no_keys_of_one() {
    for (method, keys) in [
        (
            "grpo",
            &[
                "teacher.d = 0.1",
                "teacher.weight = \"one\"",
                "advantage.group = \"mixed\"",
                "guard.beta_rise = 0.5",
            ][..],
        ),
        ("sft", &["teacher.d = 0.1", "teacher.weight = 0.5"]),
        ("maxrl", &["teacher.d = 0.1"]),
    ] {
        for key in keys {
            let because = format!("method = \"{method}\" lets no teacher into a group");
            means_nothing(&format!("method = \"{method}\""), key, &because);
        }
    }
}

#[test]
fn a_method_reads_d_only_where_its_operator_has_one() {
    for method in ["srft", "hpt", "chord-mu", "chord-phi"] {
        let because = format!("method = \"{method}\" does not read it");
        means_nothing(&format!("method = \"{method}\""), "teacher.d = 0.1", &because);
    }
    let entropy = "method = \"srft\"\nsrft.weights = \"entropy\"";
    for key in ["advantage.std = true", "advantage.group = \"mixed\""] {
        means_nothing(entropy, key, "method = \"srft\" does not read it");
    }
}

/// A section written as a whole is checked key by key.
#[test]
fn keys_of_a_section_that_is_overridden_as_a_whole_are_refused_too() {
    for (text, set, key) in [
        (
            "method = \"trapo\"",
            "hapo={ gate = \"always\", gamma0 = 0.3, turn_off_epoch = 1.5 }",
            "hapo.gamma0",
        ),
        (
            "method = \"trapo\"",
            "hapo={ annealing = \"off\", turn_off_epoch = 1.5 }",
            "hapo.turn_off_epoch",
        ),
        ("method = \"sft\"", "loss={ normaliser = \"constant\" }", "loss.normaliser"),
        ("method = \"grpo\"", "teacher={ weight = \"advantage\" }", "teacher.weight"),
        ("method = \"grpo\"", "srft={ weights = \"entropy\" }", "srft.weights"),
        (
            "method = \"grpo\"",
            "data={ train = \"rows.jsonl\", levels = [\"multiply:6\"] }",
            "data.levels",
        ),
    ] {
        let message = refused(text, &[set], &[]);
        assert!(message.starts_with(&format!("`{key}` means nothing here: ")), "{message}");
        assert!(message.contains(&format!("(--set {set}: {key})")), "{message}");
    }
}

/// Numbers that would hang a run, end it in an abort or write gigabytes.
#[test]
fn numbers_have_bounds_and_names_are_known() {
    let init =
        "model={ init = { hidden = 64, layers = 2000000, heads = 4, kv_heads = 2, ffn = 64 } }";
    for (set, message) in [
        (
            "steps=1000000000000",
            "expected a whole number from 1 to 1000000000, got 1000000000000 (",
        ),
        (
            "data.prompts=1000000000000",
            "expected a whole number from 1 to 1000000, got 1000000000000 (",
        ),
        ("optim.passes=1000000000", "expected a whole number from 1 to 1000, got 1000000000 ("),
        (
            "sampling.max_new_tokens=1000000000",
            "expected a whole number from 1 to 1048576, got 1000000000 (",
        ),
        (init, "expected a whole number from 1 to 1000, got 2000000 ("),
        (
            &init.replace("64, layers = 2000000", "65536, layers = 1000"),
            "expected a decoder of at most 10^11 parameters, got 17192452096000 (",
        ),
        (
            "seed=18446744073709551615",
            "expected a whole number from 0 to 9223372036854775807, got string \"18446744073709551615\" (",
        ),
        (
            "name=../../../x",
            "expected a name for a folder, without slashes and no dot first, got `../../../x` (",
        ),
        ("checkpoint.best=reward/nope", "expected the name of a metric, got `reward/nope` ("),
        ("checkpoint.best=-los", "expected the name of a metric, got `los` ("),
    ] {
        let key = set.split('=').next().unwrap().to_owned();
        let refused = refused("method = \"grpo\"\n", &[set], &[]);
        assert!(refused.starts_with(message), "{refused}");
        assert!(refused.contains(&key), "{refused}");
    }
    assert!(
        refused("method = \"grpo\"\n", &["checkpoint.best=reward/means"], &[])
            .ends_with("did you mean `reward/mean`?")
    );
    let parse = |text: &str| {
        let text = format!("model.path = \"builtin:base\"\nmethod = \"grpo\"\n{text}");
        Recipe::parse(&text, "r.toml", &Overrides::default()).map_err(|it| it.to_string())
    };
    for best in ["\"-loss\"", "\"\"", "\"policy/kl_to_initial\"\nmetrics.kl_every = 2"] {
        parse(&format!("checkpoint.best = {best}")).unwrap();
    }
    let never = parse("checkpoint.best = \"policy/kl_to_initial\"").unwrap_err();
    assert!(never.contains("is only measured with metrics.kl_every"), "{never}");
    let message = parse("seed = 18446744073709551615").unwrap_err();
    assert!(message.contains("(r.toml, line 3, column"), "{message}");
}

#[test]
fn an_evaluation_says_on_what_and_draws_what_it_says() {
    let eval = |rest: &str| refused("method = \"grpo\"\n", &[&format!("eval={{ {rest} }}")], &[]);
    assert!(eval("every = 5").starts_with("expected `data` or `suite`, got neither ("));
    let greedy = eval("suite = \"mini6\", temperature = 0, k = 4");
    assert!(
        greedy.starts_with("expected 1 with eval.temperature = 0, which draws nothing, got 4 (")
    );
    for (rest, key) in [("every = 0", "eval.every"), ("problems = 0", "eval.problems")] {
        let message = eval(&format!("suite = \"mini6\", {rest}"));
        assert!(message.contains("expected a whole number from 1 to ") && message.contains(key));
    }
    let best = refused("method = \"grpo\"\n", &["checkpoint.best=eval/avg@k"], &[]);
    assert!(best.starts_with("`eval/avg@k` is only measured with [eval] ("), "{best}");
    // Imitation samples where it is evaluated.
    let parse = |text: &str| Recipe::parse(text, "r.toml", &Overrides::default());
    let sft = "model.path = \"builtin:base\"\nmethod = \"sft\"\nsampling.max_sequences = 8\n";
    assert!(parse(sft).is_err());
    parse(&format!("{sft}eval.suite = \"mini6\"\ncheckpoint.best = \"eval/pass@k\"")).unwrap();
}

#[test]
fn a_methods_own_table_is_for_that_method() {
    for (owner, key) in [
        ("srft", "srft.weights = \"plain\""),
        ("trapo", "trapo.prefixes = \"off\""),
        ("uft", "uft.low = 0.1"),
        ("scaf-grpo", "scaf-grpo.warmup = 1"),
        ("chord-mu", "chord-mu.peak = 1"),
        ("chord-phi", "chord-phi.decay = 9"),
    ] {
        let because = format!("the section is for method = \"{owner}\"");
        means_nothing("method = \"luffy\"", key, &because);
    }
}

#[test]
fn data_have_the_keys_of_their_source() {
    for key in [
        "data.prompts = 64",
        "data.seed = 1",
        "data.levels = [\"multiply:6\"]",
        "data.teacher_coverage = 0.5",
        "data.teacher_steps = \"flawed\"",
    ] {
        let because = "data.train = \"rows.jsonl\" draws no prompts of the built-in task";
        means_nothing("method = \"grpo\"\ndata.train = \"rows.jsonl\"", key, because);
    }
    let mixture = "data.mixture = { families = [] }";
    let because = "data.train = \"builtin\" is not the built-in corpus";
    means_nothing("method = \"sft\"", mixture, because);
    for key in ["data.template = \"chatml\"", "data.grader = \"math\"", "data.extraction = \"any\""]
    {
        let because = "data.train = \"builtin:corpus\" is rendered already and not graded";
        means_nothing("method = \"sft\"\ndata.train = \"builtin:corpus\"", key, because);
    }
}

/// A key that stages share must be read by one of them; a stage's own key, by that stage.
#[test]
fn stages_may_share_what_only_one_of_them_reads() {
    let text = |shared: &str, sft: &str| {
        format!(
            "model.path = \"builtin:base\"\n{shared}\n[[stage]]\nname = \"a\"\nmethod = \"sft\"\n{sft}\n\
             [[stage]]\nname = \"b\"\nmethod = \"grpo\"\nmodel.path = \"stage:a\"\n"
        )
    };
    let parse = |text: &str, set: &[&str]| {
        Recipe::parse_stages(text, "r.toml", "r", &overrides(set, &[])).map_err(|it| it.to_string())
    };
    let stages = parse(&text("loss.clip_high = 0.3", ""), &[]).unwrap();
    assert_eq!(stages[1].loss().clip.high, 0.3);
    assert!(!stages[0].resolved().contains("clip_high"));
    parse(&text("", ""), &["loss.clip_high=0.3"]).unwrap();
    for refused in [
        parse(&text("", "loss.clip_high = 0.3"), &[]),
        parse(&text("", ""), &["stage.a.loss.clip_high=0.3"]),
        parse(&text("teacher.d = 0.2", ""), &[]),
    ] {
        assert!(refused.unwrap_err().contains("means nothing here"));
    }
}

fn check(actual: &str, expected: &Expect) {
    expected.assert_eq(actual);
}

#[test]
fn an_override_that_makes_a_key_meaningless_says_how_to_leave_it_out() {
    let text = "method = \"trapo\"\n[hapo]\nturn_off_epoch = 1.5\n";
    check(
        &refused(text, &["hapo.annealing=off"], &[]),
        &expect![[r#"
            `hapo.turn_off_epoch` means nothing here: hapo.annealing = "off" keeps the gate as it is (r.toml, line 4, column 1: hapo.turn_off_epoch)
            leave it out, or add `--unset hapo.turn_off_epoch`"#]],
    );
    let text = format!("model.path = \"builtin:base\"\n{text}");
    let both = overrides(&["hapo.annealing=off"], &["hapo.turn_off_epoch"]);
    Recipe::parse(&text, "r.toml", &both).unwrap();
    check(
        &refused("method = \"trapo\"\n", &[], &["hapo.turn_off_epoch"]),
        &expect![[r#"
            `hapo.turn_off_epoch` is not in the recipe (--unset hapo.turn_off_epoch)
            leave it away: the default holds"#]],
    );
}

#[test]
fn words_and_keys_are_refused_with_their_place_and_the_nearest() {
    check(
        &refused("method = \"trapo\"\n[loss]\nnormaliser = \"token-maen\"\n", &[], &[]),
        &expect![[r#"
            expected one of constant, length, token-mean, sequence-mean, got `token-maen` (r.toml, line 4, column 1: loss.normaliser)
            did you mean `token-mean`?"#]],
    );
    check(
        &refused("method = \"srft\"\nsrft.weights = \"entrpy\"\n", &[], &[]),
        &expect![[r#"
            expected one of plain, entropy, entropy-apart, got `entrpy` (r.toml, line 3, column 6: srft.weights)
            did you mean `entropy`?"#]],
    );
    check(
        &refused("method = \"trapo\"\n", &["optim.lr_shedule=linear"], &[]),
        &expect![[r#"
            unknown key `lr_shedule`, expected one of lr, betas, eps, weight_decay, moments, max_grad_norm, lr_schedule, warmup, mini_batch_prompts, passes, micro_batch_tokens, activation_checkpointing (--set optim.lr_shedule=linear: optim.lr_shedule)
            did you mean `lr_schedule`?"#]],
    );
    check(
        &refused("method = \"grpo\"\ndata.levels = [\"multply:6\"]\n", &[], &[]),
        &expect![[r#"
            unknown family `multply`, expected one of: multiply, add, linear (r.toml, line 3, column 6: data.levels)
            for example "multiply:6""#]],
    );
    check(
        &refused("method = \"grpo\"\n[data]\ngrader = \"maht\"\n", &[], &[]),
        &expect![[r#"
            unknown grader `maht`, expected one of math, benchmark, training, oat, exact, choice, format (r.toml, line 4, column 1: data.grader)
            `hapo list graders` names them"#]],
    );
    // Keys that a gate without confidence does not read are typed all the same.
    check(
        &refused("method = \"trapo\"\n[hapo]\ngate = \"always\"\nannealing = \"tpyo\"\n", &[], &[]),
        &expect![[r#"
            expected one of sigmoid, off, got `tpyo` (r.toml, line 5, column 1: hapo.annealing)
            write one of: sigmoid, off"#]],
    );
}
