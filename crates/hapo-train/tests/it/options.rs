//! Every numbered departure that is an option is reachable from a recipe: each test writes the recipe's
//! keys and reads what the run will do.

use hapo_core::{
    AdvantageGroup, Annealing, Clip, Gate, ImportanceRatioLevel, Needs, NormaliserKind, PromptId,
    Rollout, SampledGroup, Schedule, Scores, Slot, SlotRule, Step, StepContext, TeacherWeight,
    Threshold, Verdict, admit_teacher, apply_gate,
};
use hapo_sampler::{Decoding, Truncation};
use hapo_train::{Overrides, Recipe};

fn resolve(text: &str) -> Result<Recipe, String> {
    let text = format!("model.path = \"builtin:base\"\n{text}");
    Recipe::parse(&text, "test", &Overrides::default()).map_err(|it| it.to_string())
}

fn trapo(text: &str) -> Recipe {
    resolve(&format!("method = \"trapo\"\n{text}")).unwrap()
}

fn gate(text: &str) -> (Gate, SlotRule) {
    let recipe = trapo(&format!("[hapo]\n{text}"));
    let hapo = recipe.gate().unwrap();
    (hapo.gate, hapo.slot)
}

/// `m_t` of a gate at the steps of epochs of 10, for groups of 8.
fn success_limit(gate: &Gate, steps: &[u64]) -> Vec<i32> {
    let schedule = hapo_core::Schedule::new(gate, 8, 10).unwrap();
    let at = steps.iter().map(|it| schedule.success_limit(Step(*it)).get());
    at.collect()
}

#[test]
fn d1_d2_the_default_gate_is_a_hard_cut_at_the_turn_off_epoch() {
    for steepness in ["10", "0.5"] {
        let (gate, slot) = gate(&format!("turn_off_epoch = 1.5\nsteepness = {steepness}"));
        assert_eq!(success_limit(&gate, &[1, 14, 15, 16]), [0, 0, -1, -1]);
        assert_eq!(slot, SlotRule::LowestReward);
    }
    let (smooth, _) = gate("turn_off_epoch = 1.5\nsuccess_limit = 3\nsteepness = 5");
    let open = success_limit(&smooth, &[1, 11, 15, 17, 40]);
    assert!(open.windows(2).all(|it| it[0] >= it[1]) && open[0] == 3 && open[4] == -1);
}

#[test]
fn d3_thresholds_by_hand_are_their_rungs() {
    for (gamma0, m) in [("0.3", 1), ("0.5", 3), ("0.7", 5)] {
        let (gate, _) = gate(&format!("gamma0 = {gamma0}\nannealing = \"off\""));
        assert_eq!(success_limit(&gate, &[1, 500]), [m, m]);
    }
    let refused = resolve("method = \"trapo\"\n[hapo]\ngamma0 = 0.1\nannealing = \"off\"");
    assert!(refused.unwrap_err().contains("never opens"));
    let refused =
        resolve("method = \"trapo\"\n[hapo]\ngamma0 = 0.3\nsuccess_limit = 1\nannealing = \"off\"");
    assert!(refused.unwrap_err().contains("got both"));
}

#[test]
fn d4_d5_always_never_and_not_annealed_are_modes() {
    assert_eq!(gate("gate = \"always\"").0, Gate::Always);
    assert_eq!(gate("gate = \"never\"").0, Gate::Never);
    let (off, _) = gate("annealing = \"off\"");
    assert!(matches!(
        off,
        Gate::Confidence {
            threshold: Threshold::Derived { success_limit: 0 },
            annealing: Annealing::Off
        }
    ));
    let refused = resolve("method = \"trapo\"\n[hapo]\nsuccess_limit = 8\nannealing = \"off\"");
    assert!(refused.unwrap_err().contains("expected 0 to 7, got 8"));
}

#[test]
fn d7_d8_every_slot_rule_is_a_word() {
    for (word, rule) in [
        ("lowest-reward", SlotRule::LowestReward),
        ("first", SlotRule::First),
        ("random", SlotRule::Random),
        ("longest", SlotRule::Longest),
    ] {
        assert_eq!(gate(&format!("turn_off_epoch = 1\nslot = \"{word}\"")).1, rule);
    }
    assert_eq!(gate("gate = \"always\"\nslot = \"fixed\"").1, SlotRule::Fixed);
    let refused = resolve("method = \"trapo\"\n[hapo]\nturn_off_epoch = 1\nslot = \"fixed\"");
    assert!(refused.unwrap_err().contains("gate = \"always\""));
}

#[test]
fn d12_d13_advantages() {
    let it = trapo("").advantage;
    assert!(!it.std && it.group == AdvantageGroup::Mixed);
    let it = trapo("advantage = { std = true, group = \"policy-only\" }").advantage;
    assert!(it.std && it.group == AdvantageGroup::PolicyOnly);
    let it = trapo("advantage.group = \"sampled\"").advantage;
    assert_eq!(it.group, AdvantageGroup::Sampled);
}

/// The terms that a recipe's method gives a group of two failures in which a teacher stands.
fn terms_of(recipe: &str) -> String {
    let rollout =
        Rollout { tokens: vec![5, 2], log_probs: vec![-0.5; 2], ended: true, ..Rollout::default() };
    let scored = SampledGroup::new(PromptId(0), 2, vec![rollout; 2]).score(vec![Verdict::Wrong; 2]);
    let teacher = admit_teacher(vec![7, 2], &[2], &Verdict::Correct, 80).unwrap();
    let gate = Gate::Confidence {
        threshold: Threshold::Derived { success_limit: 0 },
        annealing: Annealing::Off,
    };
    let step = Step(50);
    let limit = Schedule::new(&gate, 2, 10).unwrap().success_limit(step);
    let slot = Slot { rule: SlotRule::LowestReward, seed: 0, step };
    let mixed = apply_gate(scored, Some(&teacher), limit, slot);
    let at = StepContext { step, initial_threshold: 0.1 };
    let method = resolve(recipe).unwrap().method().clone();
    format!("{:?}", method.credit(&mixed, at, &Scores::default()))
}

#[test]
fn d14_operators_come_with_their_hosts() {
    for (host, operator, settings, d) in [
        ("luffy", "luffy", "teacher.d = 0.2", 0.2),
        ("trapo", "trapo", "teacher.d = 0.2", 0.2),
        ("srft", "srft", "", 0.1),
        ("chord-mu", "srft", "", 0.1),
        ("chord-phi", "chord", "", 0.1),
        ("hpt", "srft", "", 0.1),
    ] {
        let terms = terms_of(&format!("method = \"{host}\"\n{settings}"));
        assert!(terms.contains(&format!("operator: {operator}, d: {d}")), "{host}: {terms}");
    }
}

#[test]
fn d15_teacher_weights() {
    for (word, weight) in [
        ("\"one\"", TeacherWeight::One),
        ("\"one-minus-confidence\"", TeacherWeight::OneMinusConfidence),
        ("\"relative\"", TeacherWeight::Relative),
        ("\"advantage\"", TeacherWeight::Advantage),
        ("0.5", TeacherWeight::Constant(0.5)),
        ("\"0.5\"", TeacherWeight::Constant(0.5)),
        ("0", TeacherWeight::Constant(0.0)),
    ] {
        assert_eq!(trapo(&format!("teacher.weight = {word}")).teacher.weight, weight);
    }
}

#[test]
fn d16_d17_normaliser_and_entropy_bonus() {
    let it = *trapo("sampling.max_new_tokens = 77").loss();
    assert_eq!(it.normaliser, NormaliserKind::Constant.of(77));
    assert_eq!(it.entropy_coef, 0.0);
    let it = trapo("loss = { normaliser = \"token-mean\", entropy_coef = 0.001 }");
    let it = it.loss();
    assert_eq!((it.normaliser.kind, it.entropy_coef), (NormaliserKind::TokenMean, 0.001));
}

#[test]
fn d18_d19_d20_kl_mini_batches_and_passes() {
    let it = trapo("metrics.kl_every = 5\noptim = { mini_batch_prompts = 64, passes = 2 }");
    assert_eq!((it.metrics.kl_every, it.optim.mini_batch_prompts, it.optim.passes), (5, 64, 2));
}

#[test]
fn d21_srft_weights() {
    let of = |text: &str| terms_of(&format!("method = \"srft\"\n{text}"));
    let (plain, entropy) = (of(""), of("srft.weights = \"entropy\""));
    assert!(!plain.contains("entropy_exponent: 1") && !plain.contains("entropy_exponent: -1"));
    assert!(entropy.contains("entropy_exponent: -1"));
}

#[test]
fn d22_prefixes_are_trapos_own() {
    let of = |text: &str| resolve(&format!("{text}\ntrapo.prefixes = \"micro-groups\""));
    assert_eq!(trapo("").method().needs(), Needs::ROLLOUTS);
    let needs = of("method = \"trapo\"").unwrap().method().needs();
    assert_eq!(needs, Needs { parts: 4, prefixes: true, ..Needs::ROLLOUTS });
    for (text, problem) in [
        ("method = \"luffy\"", "the section is for method = \"trapo\""),
        ("method = \"trapo\"\nhapo.turn_off_epoch = 1.5", "leaves nothing to the gate"),
        ("method = \"trapo\"\nsampling.group_size = 4", "group_size = 8, got 4"),
    ] {
        let error = of(text).unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn d23_guards_and_the_warning_without_annealing() {
    let it = trapo("guard = { stop = true, window = 5, beta_rise = 0.1 }").guard.clone();
    assert!(it.stop && it.window == 5 && it.beta_rise == 0.1);
    let warned = |text: &str| trapo(text).warnings().join("\n").contains("positive feedback");
    assert!(warned("[hapo]\nannealing = \"off\""));
    assert!(!warned("[hapo]\nturn_off_epoch = 1.5"));
}

#[test]
fn d25_temperature_and_truncated_draws() {
    let it = trapo(
        "sampling = { temperature = 0.7, top_p = 0.9, top_k = 20, min_p = 0.05, stop = [\"END\"] }",
    );
    let Decoding::Sample { temperature, truncation } = it.sampling.decoding() else {
        panic!("training samples");
    };
    assert_eq!((temperature, truncation), (0.7, Truncation { top_k: 20, top_p: 0.9, min_p: 0.05 }));
    assert!(it.warnings()[0].contains("importance ratio"));
    assert!(trapo("").warnings().is_empty());
    assert!(trapo("[optim]\nlr = 10.0\n").warnings()[0].starts_with("optim.lr = 1e1 is far"));
    // Decimals are shown as they are written.
    let shown = it.resolved();
    for line in ["temperature = 0.7\n", "top_p = 0.9\n", "min_p = 0.05\n"] {
        assert!(shown.contains(line), "{shown}");
    }
    let shown = trapo("eval.suite = \"mini6\"").resolved();
    assert!(shown.contains("temperature = 0.6\n"), "{shown}");
}

#[test]
fn luffy_original_is_advantage_without_clip() {
    let it = resolve(
        "method = \"luffy\"\nteacher.weight = \"advantage\"\nloss = { clip_low = inf, clip_high = inf }",
    );
    let it = it.unwrap();
    assert_eq!(
        (it.loss().clip, it.teacher.weight),
        (Clip { low: f64::INFINITY, high: f64::INFINITY }, TeacherWeight::Advantage)
    );
}

#[test]
fn the_extra_methods_are_a_key_each() {
    let grpo = |text: &str| resolve(&format!("method = \"grpo\"\n{text}")).unwrap();
    let dapo = grpo("loss.clip_high = 0.28\nsampling.dynamic_sampling = 3");
    assert_eq!(dapo.loss().clip, Clip { low: 0.2, high: 0.28 });
    assert_eq!(dapo.sampling.dynamic_sampling, 3);
    let gspo =
        grpo("loss = { importance_ratio_level = \"sequence\", normaliser = \"sequence-mean\" }");
    let gspo = gspo.loss();
    assert_eq!(
        (gspo.importance_ratio_level, gspo.normaliser.kind),
        (ImportanceRatioLevel::Sequence, NormaliserKind::SequenceMean)
    );
    let chord = |text: &str| {
        let it = resolve(&format!("method = \"chord-{text}")).unwrap();
        assert!(it.loss().teacher_apart);
        terms_of(&format!("method = \"chord-{text}"))
    };
    // A schedule written out is the default's, and another one is not.
    let written = "mu\"\nchord-mu = { peak = 0.9, valley = 0.05, warmup = 0, decay = 200 }";
    assert_eq!(chord("mu\""), chord(written));
    let written = "phi\"\nchord-phi = { peak = 0.1, valley = 0.1, warmup = 0, decay = 0 }";
    assert_eq!(chord("phi\""), chord(written));
    let own = "mu\"\nchord-mu = { peak = 1, valley = 0, warmup = 3, decay = 9 }";
    assert_ne!(chord("mu\""), chord(own));
    let refused = resolve("method = \"chord-mu\"\nchord-mu.peak = 2");
    assert!(refused.unwrap_err().contains("[0, 1], got 2 and 0.05"));
    let old = resolve("method = \"chord\"").unwrap_err();
    assert!(old.contains("expected `chord-mu` or `chord-phi`"), "{old}");
}

#[test]
fn mini_batches_that_do_not_divide_the_batch_are_warned_about() {
    let of = |prompts: usize| {
        let text = format!("sampling.prompts_per_step = 32\noptim.mini_batch_prompts = {prompts}");
        trapo(&text).warnings().join("\n")
    };
    assert!(of(12).contains("its last update is made from 8"), "{}", of(12));
    assert_eq!([of(16), of(0)], ["", ""]);
}
