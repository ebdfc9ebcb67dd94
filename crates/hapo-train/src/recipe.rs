//! A recipe that cannot be wrong: [`RawRecipe`] checked, names looked up, numbers in range.

use std::path::Path;
use std::sync::Arc;

use hapo_core::{
    AdvantageGroup, AdvantageRule, Annealing, Clip, Decimal, Gate, GroupPlan, ImportanceRatioLevel,
    Loss, METHODS, Method, MethodSettings, Normaliser, OwnSettings, SlotRule, TeacherWeight,
    Threshold, method,
};
use hapo_model::Dtype;
use hapo_sampler::{Decoding, Truncation};

use crate::error::{Error, Result};
use crate::raw_recipe::{RawHapo, RawInit, RawRecipe, nearest, parse_stages};

/// What a run does.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The text this was made from, defaults filled in: what the run folder keeps.
    pub raw: RawRecipe,
    /// Name of the run; of the stage, in a recipe of several.
    pub name: String,
    /// Name of the stage and of its folder, in a recipe of several.
    pub stage: Option<String>,
    /// The method that a gate may be wrapped around.
    pub method: Arc<dyn Method>,
    /// What it was built from.
    pub method_settings: MethodSettings,
    /// How its terms become a loss.
    pub loss: Loss,
    /// The gate and its slot rule, when the host is wrapped.
    pub gate: Option<(Gate, SlotRule)>,
    /// How rollouts are drawn.
    pub decoding: Decoding,
    /// The model to start from.
    pub model: ModelSource,
    /// The file of `data.train`, where that is a name which the caller has found the file of.
    pub train_file: Option<std::path::PathBuf>,
    /// Number format of checkpoints.
    pub dtype: Dtype,
    /// Optimiser schedule.
    pub schedule: LearningRateSchedule,
    /// ActivationCheckpointing activations per layer in the backward pass.
    pub recompute: hapo_model::ActivationCheckpointing,
}

/// Where the initial weights come from.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelSource {
    /// A Hugging Face folder, or `builtin:base`.
    Folder(String),
    /// The last checkpoint of an earlier stage of the run: `stage:NAME`.
    Stage(String),
    /// Random weights of this shape.
    Init(RawInit),
}

/// Shape of the learning rate over the run, after its warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LearningRateSchedule {
    /// The peak, to the end.
    Constant,
    /// Straight down to 0 at the end.
    Linear,
    /// Half a cosine down to 0 at the end.
    Cosine,
}

impl LearningRateSchedule {
    /// Factor of the peak rate at optimiser step `step` (from 1) of `total`, with a linear rise over
    /// the first `warmup` of them.
    pub fn factor(self, step: u64, total: u64, warmup: f64) -> f64 {
        let warm_steps = (warmup * total as f64).round();
        let at = step as f64;
        if at <= warm_steps {
            return at / warm_steps;
        }
        let left = (total as f64 - warm_steps).max(1.0);
        // The last step still moves: its rate is that of one step before the end.
        let progress = ((at - warm_steps - 1.0) / left).clamp(0.0, 1.0);
        match self {
            Self::Constant => 1.0,
            Self::Linear => 1.0 - progress,
            Self::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * progress).cos()),
        }
    }
}

impl Recipe {
    /// Reads and checks a recipe file; `overrides` are `section.key=value`.
    pub fn load(path: &Path, overrides: &[String]) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::Io {
            action: "read",
            path: path.to_owned(),
            source,
        })?;
        let origin = path.display().to_string();
        let raw = RawRecipe::parse(&text, &origin, overrides)?;
        let stem = path
            .file_stem()
            .map_or_else(|| "run".to_owned(), |it| it.to_string_lossy().into_owned());
        Self::check(raw, &origin, &stem)
    }

    /// Reads and checks a recipe file of any number of stages, in the order in which they run. A
    /// recipe of one stage has no `stage`.
    ///
    /// # Errors
    /// As [`Recipe::load`], and a stage that starts from one that does not come before it.
    pub fn load_stages(path: &Path, overrides: &[String]) -> Result<Vec<Self>> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::Io {
            action: "read",
            path: path.to_owned(),
            source,
        })?;
        let stem = path
            .file_stem()
            .map_or_else(|| "run".to_owned(), |it| it.to_string_lossy().into_owned());
        Self::parse_stages(&text, &path.display().to_string(), &stem, overrides)
    }

    /// As [`Recipe::load_stages`], of a text.
    ///
    /// # Errors
    /// As [`Recipe::load_stages`].
    pub fn parse_stages(
        text: &str,
        origin: &str,
        name: &str,
        overrides: &[String],
    ) -> Result<Vec<Self>> {
        let mut all: Vec<Self> = Vec::new();
        for (stage, raw) in parse_stages(text, origin, overrides)? {
            let origin = match &stage {
                Some(it) => format!("{origin}, stage {it}"),
                None => origin.to_owned(),
            };
            let mut recipe = Self::check(raw, &origin, name)?;
            if let ModelSource::Stage(from) = &recipe.model
                && !all.iter().any(|it| it.stage.as_ref() == Some(from))
            {
                return Err(Error::Recipe {
                    origin,
                    field: "model.path".to_owned(),
                    problem: format!("no stage `{from}` comes before this one"),
                    hint: "write stage:NAME with the name of an earlier [[stage]]".to_owned(),
                });
            }
            recipe.stage = stage;
            all.push(recipe);
        }
        Ok(all)
    }

    /// Checks a recipe. `origin` names it in messages; `name` is the run's when it has none itself.
    pub fn check(raw: RawRecipe, origin: &str, name: &str) -> Result<Self> {
        let fail = |field: &str, problem: String, hint: &str| Error::Recipe {
            origin: origin.to_owned(),
            field: field.to_owned(),
            problem,
            hint: hint.to_owned(),
        };
        let one_of = |field: &str, got: &str, known: &[&str]| {
            let hint = match nearest(got, known) {
                Some(it) => format!("did you mean `{it}`?"),
                None => format!("write one of: {}", known.join(", ")),
            };
            fail(
                field,
                format!("expected one of {}, got `{got}`", known.join(", ")),
                &hint,
            )
        };
        let range = |field: &str, ok: bool, expected: &str, got: String| {
            if ok {
                Ok(())
            } else {
                Err(fail(
                    field,
                    format!("expected {expected}, got {got}"),
                    "see docs/recipes.md",
                ))
            }
        };

        let names: Vec<&str> = METHODS.iter().map(|it| it.name).collect();
        raw.data.template_choice().check().map_err(|it| {
            fail(
                "data.template",
                it.to_string(),
                "`hapo list templates` names them",
            )
        })?;
        let entry = method(&raw.method).ok_or_else(|| one_of("method", &raw.method, &names))?;

        let (s, l, o) = (&raw.sampling, &raw.loss, &raw.optim);
        let positive =
            |field: &str, value: usize| range(field, value > 0, "at least 1", value.to_string());
        range("steps", raw.steps > 0, "at least 1", raw.steps.to_string())?;
        range(
            "sampling.group_size",
            s.group_size >= 2,
            "at least 2",
            s.group_size.to_string(),
        )?;
        positive("sampling.prompts_per_step", s.prompts_per_step)?;
        positive("sampling.max_new_tokens", s.max_new_tokens)?;
        positive("sampling.max_sequences", s.max_sequences)?;
        positive("optim.passes", o.passes)?;
        positive("optim.micro_batch_tokens", o.micro_batch_tokens)?;
        positive("checkpoint.keep", raw.checkpoint.keep)?;
        let finite = |it: f64| it.is_finite();
        range(
            "sampling.temperature",
            s.temperature.is_finite() && s.temperature > 0.0,
            "a number above 0",
            s.temperature.to_string(),
        )?;
        range(
            "sampling.top_p",
            s.top_p > 0.0 && s.top_p <= 1.0,
            "a number in (0, 1]",
            s.top_p.to_string(),
        )?;
        range(
            "sampling.min_p",
            (0.0..=1.0).contains(&s.min_p),
            "a number in [0, 1]",
            s.min_p.to_string(),
        )?;
        range(
            "sampling.stop",
            !s.stop.iter().any(String::is_empty),
            "strings of at least one character",
            "an empty one".to_owned(),
        )?;
        range(
            "loss.clip_low",
            l.clip_low > 0.0 && (l.clip_low < 1.0 || l.clip_low == f64::INFINITY),
            "a number in (0, 1), or inf for no clip",
            l.clip_low.to_string(),
        )?;
        range(
            "loss.clip_high",
            l.clip_high > 0.0,
            "a number above 0, or inf for no clip",
            l.clip_high.to_string(),
        )?;
        range(
            "loss.entropy_coef",
            finite(l.entropy_coef) && l.entropy_coef >= 0.0,
            "a number from 0",
            l.entropy_coef.to_string(),
        )?;
        range(
            "teacher.d",
            finite(raw.teacher.d) && raw.teacher.d > 0.0 && raw.teacher.d < 1.0,
            "a probability in (0, 1)",
            raw.teacher.d.to_string(),
        )?;
        range(
            "optim.lr",
            finite(o.lr) && o.lr > 0.0,
            "a number above 0",
            o.lr.to_string(),
        )?;
        range(
            "optim.betas",
            o.betas.iter().all(|it| (0.0..1.0).contains(it)),
            "two numbers in [0, 1)",
            format!("{:?}", o.betas),
        )?;
        range(
            "optim.eps",
            finite(o.eps) && o.eps > 0.0,
            "a number above 0",
            o.eps.to_string(),
        )?;
        range(
            "optim.weight_decay",
            finite(o.weight_decay) && o.weight_decay >= 0.0,
            "a number from 0",
            o.weight_decay.to_string(),
        )?;
        range(
            "optim.max_grad_norm",
            o.max_grad_norm > 0.0,
            "a number above 0",
            o.max_grad_norm.to_string(),
        )?;
        range(
            "optim.warmup",
            (0.0..1.0).contains(&o.warmup),
            "a share in [0, 1)",
            o.warmup.to_string(),
        )?;
        range(
            "data.teacher_coverage",
            (0.0..=1.0).contains(&raw.data.teacher_coverage),
            "a share in [0, 1]",
            raw.data.teacher_coverage.to_string(),
        )?;

        range(
            "data.flip_verdicts",
            (0.0..1.0).contains(&raw.data.flip_verdicts),
            "a share in [0, 1)",
            raw.data.flip_verdicts.to_string(),
        )?;

        let normaliser = match l.normaliser.as_str() {
            // Plain imitation is a mean over tokens (the table of hosts); it has no constant form.
            _ if entry.name == "sft" => Normaliser::TokenMean,
            "constant" => Normaliser::Constant {
                max_response: s.max_new_tokens,
            },
            "token_mean" => Normaliser::TokenMean,
            "sequence_mean" => Normaliser::SequenceMean,
            other => {
                return Err(one_of(
                    "loss.normaliser",
                    other,
                    &["constant", "token_mean", "sequence_mean"],
                ));
            }
        };
        let group = match raw.advantage.group.as_str() {
            "mixed" => AdvantageGroup::Mixed,
            "sampled" => AdvantageGroup::Sampled,
            "policy-only" => AdvantageGroup::PolicyOnly,
            other => {
                return Err(one_of(
                    "advantage.group",
                    other,
                    &["mixed", "sampled", "policy-only"],
                ));
            }
        };
        let teacher_weight = match raw.teacher.weight.as_str() {
            "one" => TeacherWeight::One,
            "one-minus-confidence" => TeacherWeight::OneMinusConfidence,
            "relative" => TeacherWeight::Relative,
            "advantage" => TeacherWeight::Advantage,
            other => match other.parse::<f64>() {
                Ok(it) if it.is_finite() && it >= 0.0 => TeacherWeight::Constant(it),
                _ => {
                    let known = [
                        "one",
                        "one-minus-confidence",
                        "relative",
                        "advantage",
                        "a number",
                    ];
                    return Err(one_of("teacher.weight", other, &known));
                }
            },
        };
        let ratio = match l.ratio.as_str() {
            "token" => ImportanceRatioLevel::Token,
            "sequence" => ImportanceRatioLevel::Sequence,
            other => return Err(one_of("loss.ratio", other, &["token", "sequence"])),
        };
        let g = &raw.guard;
        positive("guard.window", g.window)?;
        for (field, value) in [
            ("guard.beta_rise", g.beta_rise),
            ("guard.entropy_factor", g.entropy_factor),
            ("guard.grad_norm_factor", g.grad_norm_factor),
        ] {
            range(field, value > 0.0, "a number above 0", value.to_string())?;
        }
        let loss = Loss {
            clip: Clip {
                low: l.clip_low,
                high: l.clip_high,
            },
            importance_ratio_level: ratio,
            normaliser,
            entropy_coef: l.entropy_coef,
        };
        let method_settings = MethodSettings {
            group_size: s.group_size,
            advantage: AdvantageRule {
                group,
                std: raw.advantage.std,
            },
            teacher_weight,
            d: raw.teacher.d,
            own: own_settings(&raw),
        };
        let method = (entry.build)(&method_settings)
            .map_err(|it| fail(it.key, it.problem, "see docs/recipes.md"))?;
        if raw.trapo.hints != "off" && entry.name != "trapo" {
            let problem = format!("`{}` has no prefixes", entry.name);
            return Err(fail("trapo.hints", problem, "prefixes are TRAPO's own"));
        }
        let gate = match &raw.hapo {
            None => None,
            Some(_) if !method.can_be_gated() => {
                let problem = match method.sampling() {
                    GroupPlan::Prefixes(_) => {
                        "the prefixes decide in the gate's place when the teacher helps".to_owned()
                    }
                    _ => format!("`{}` has no teacher term to gate", entry.name),
                };
                let hint =
                    "HAPO wraps a method that has a teacher: luffy, srft, trapo, hpt or chord";
                return Err(fail("hapo", problem, hint));
            }
            Some(hapo) => Some(check_gate(hapo, s.group_size, &fail, &one_of)?),
        };
        let truncation = Truncation {
            top_k: s.top_k,
            top_p: s.top_p,
            min_p: s.min_p,
        };
        let model = match (&raw.model.path, &raw.model.init) {
            (Some(path), None) => match path.strip_prefix("stage:") {
                Some(stage) => ModelSource::Stage(stage.to_owned()),
                None => ModelSource::Folder(path.clone()),
            },
            (None, Some(init)) => ModelSource::Init(check_init(init, &range)?),
            _ => {
                let hint = "name a model folder with model.path, or a shape with [model.init]";
                return Err(fail(
                    "model",
                    "expected exactly one of `path` and `init`".to_owned(),
                    hint,
                ));
            }
        };
        let dtype = match raw.model.dtype.as_str() {
            "f32" => Dtype::F32,
            "bf16" => Dtype::Bf16,
            "f16" => Dtype::F16,
            other => return Err(one_of("model.dtype", other, &["f32", "bf16", "f16"])),
        };
        let schedule = match o.schedule.as_str() {
            "constant" => LearningRateSchedule::Constant,
            "linear" => LearningRateSchedule::Linear,
            "cosine" => LearningRateSchedule::Cosine,
            other => {
                return Err(one_of(
                    "optim.schedule",
                    other,
                    &["constant", "linear", "cosine"],
                ));
            }
        };
        let recompute = match o.recompute.as_str() {
            "none" => hapo_model::ActivationCheckpointing::None,
            "layers" => hapo_model::ActivationCheckpointing::Layers,
            other => return Err(one_of("optim.recompute", other, &["none", "layers"])),
        };
        let name = raw.name.clone().unwrap_or_else(|| name.to_owned());
        let decoding = Decoding::Sample {
            temperature: s.temperature,
            truncation,
        };
        Ok(Self {
            name,
            stage: None,
            method,
            method_settings,
            loss,
            gate,
            decoding,
            model,
            train_file: None,
            dtype,
            schedule,
            recompute,
            raw,
        })
    }

    /// What a reader should know before the run starts, though it may go on.
    pub fn warnings(&self) -> Vec<String> {
        let mut all = Vec::new();
        if let Some((
            Gate::Confidence {
                annealing: Annealing::Off,
                ..
            },
            _,
        )) = &self.gate
        {
            all.push("without annealing the gate is positive feedback under collapse: all fail, all are injected (D23)".to_owned());
        }
        if self.raw.data.flip_verdicts > 0.0 {
            all.push(format!(
                "data.flip_verdicts turns {:.1} % of the verdicts around",
                self.raw.data.flip_verdicts * 100.0
            ));
        }
        let s = &self.raw.sampling;
        if s.top_p < 1.0 || s.top_k > 0 || s.min_p > 0.0 {
            all.push("sampling.top_p, top_k or min_p samples from another distribution than the importance ratio assumes (D25)".to_owned());
        }
        all
    }
}

/// The method's own table.
fn own_settings(raw: &RawRecipe) -> OwnSettings {
    let mut own = toml::Table::new();
    match raw.method.as_str() {
        "srft" => _ = own.insert("weights".to_owned(), raw.srft.weights.clone().into()),
        "trapo" => _ = own.insert("prefixes".to_owned(), raw.trapo.hints.clone().into()),
        "chord" => {
            if let Some(mu) = &raw.teacher.mu {
                let mu = toml::Value::try_from(mu).expect("plain data");
                own.insert("mu".to_owned(), mu);
            }
        }
        _ => {}
    }
    own.try_into().expect("a table of plain data")
}

fn check_gate(
    hapo: &RawHapo,
    group_size: usize,
    fail: &impl Fn(&str, String, &str) -> Error,
    one_of: &impl Fn(&str, &str, &[&str]) -> Error,
) -> Result<(Gate, SlotRule)> {
    let slot = match hapo.slot.as_str() {
        "lowest-reward" => SlotRule::LowestReward,
        "first" => SlotRule::First,
        "random" => SlotRule::Random,
        "longest" => SlotRule::Longest,
        "fixed" => SlotRule::Fixed,
        other => {
            return Err(one_of(
                "hapo.slot",
                other,
                &["lowest-reward", "first", "random", "longest", "fixed"],
            ));
        }
    };
    let gate = match hapo.gate.as_str() {
        "always" => Gate::Always,
        "never" => Gate::Never,
        "confidence" => {
            let threshold = match (hapo.failure_level, hapo.gamma0) {
                (Some(_), Some(_)) => {
                    let hint = "m and γ0 say the same thing twice: keep one";
                    return Err(fail(
                        "hapo",
                        "expected one of `failure_level` and `gamma0`, got both".to_owned(),
                        hint,
                    ));
                }
                (level, None) => Threshold::Derived {
                    success_limit: level.unwrap_or(0) as usize,
                },
                (None, Some(gamma0)) => Threshold::Manual {
                    gamma0: decimal("hapo.gamma0", gamma0, fail)?,
                },
            };
            let annealing = match hapo.annealing.as_str() {
                "off" => Annealing::Off,
                "sigmoid" => {
                    let e_off = hapo.turn_off_epoch.ok_or_else(|| {
                        let hint =
                            "the paper never states it; its presets here use turn_off_epoch = 1.5";
                        fail(
                            "hapo.turn_off_epoch",
                            "annealing needs the epoch at which the teacher leaves".to_owned(),
                            hint,
                        )
                    })?;
                    Annealing::Sigmoid {
                        turn_off_epoch: decimal("hapo.turn_off_epoch", e_off, fail)?,
                        steepness: decimal("hapo.steepness", hapo.steepness, fail)?,
                    }
                }
                other => return Err(one_of("hapo.annealing", other, &["sigmoid", "off"])),
            };
            Gate::Confidence {
                threshold,
                annealing,
            }
        }
        other => {
            return Err(one_of(
                "hapo.gate",
                other,
                &["confidence", "always", "never"],
            ));
        }
    };
    hapo_core::check_slot_rule(&gate, slot).map_err(|it| {
        fail(
            "hapo.slot",
            it.to_string(),
            "use slot = \"lowest-reward\" with a gate that may be closed",
        )
    })?;
    // The schedule is built when the data are known; what it would refuse is refused here.
    hapo_core::Schedule::new(&gate, group_size, 1).map_err(|it| {
        fail(
            "hapo",
            it.to_string(),
            "see the gate's section of docs/recipes.md",
        )
    })?;
    Ok((gate, slot))
}

fn decimal(
    field: &str,
    value: f64,
    fail: &impl Fn(&str, String, &str) -> Error,
) -> Result<Decimal> {
    Decimal::from_f64(value).map_err(|it| {
        fail(
            field,
            it.to_string(),
            "write a plain decimal, for example 0.3",
        )
    })
}

fn check_init(
    init: &RawInit,
    range: &impl Fn(&str, bool, &str, String) -> Result<()>,
) -> Result<RawInit> {
    let size = |field: &str, value: usize| {
        range(
            field,
            (1..=1 << 20).contains(&value),
            "a size from 1 to 1048576",
            value.to_string(),
        )
    };
    size("model.init.hidden", init.hidden)?;
    size("model.init.layers", init.layers)?;
    size("model.init.heads", init.heads)?;
    size("model.init.kv_heads", init.kv_heads)?;
    size("model.init.ffn", init.ffn)?;
    let fits =
        init.hidden.is_multiple_of(init.heads) && (init.hidden / init.heads).is_multiple_of(2);
    range(
        "model.init.heads",
        fits,
        "a divisor of hidden that leaves an even head width",
        init.heads.to_string(),
    )?;
    range(
        "model.init.kv_heads",
        init.heads.is_multiple_of(init.kv_heads),
        "a divisor of heads",
        init.kv_heads.to_string(),
    )?;
    range(
        "model.init.std",
        init.std.is_finite() && init.std > 0.0,
        "a number above 0",
        init.std.to_string(),
    )?;
    range(
        "model.init.rope_theta",
        init.rope_theta.is_finite() && init.rope_theta > 1.0,
        "a number above 1",
        init.rope_theta.to_string(),
    )?;
    Ok(init.clone())
}
