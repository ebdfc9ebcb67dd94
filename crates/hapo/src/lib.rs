//! Post-training of language models by reinforcement learning with verifiable rewards, with a teacher that helps only
//! while it is needed: everything that the `hapo` binary is made of, for other programs.
//!
//! | module | what it is |
//! |---|---|
//! | [`verify`] | a completion and a gold answer in, a verdict out |
//! | [`core`] | groups of rollouts, the confidence gate, injection, advantages; methods (GRPO, LUFFY, SRFT, TRAPO, HAPO around each…), from log-probabilities to a loss and its derivative |
//! | [`data`] | data sets in a dozen layouts, prompt templates, the built-in task |
//! | [`model`], [`kernels`] | Hugging Face folders, the decoder and its arithmetic |
//! | [`sampler`] | prompts to groups of completions |
//! | [`train`] | recipes, the step, checkpoints, metrics |
//! | [`eval`] | avg@k, pass@k, maj@k with intervals |
//! | [`report`] | run folders to pages and figures |
//!
//! # A verdict
//!
//! ```
//! use hapo::verify::{MATH, grade};
//!
//! let judgement = grade(&MATH, "\\frac{1}{2}", "Halving gives $x = \\boxed{0.5}$.");
//! assert!(judgement.verdict.is_correct());
//! ```
//!
//! # The gate, for a trainer of your own
//!
//! ```
//! use hapo::core::{Annealing, Gate, Schedule, Step, Threshold};
//!
//! let gate = Gate::Confidence {
//!     threshold: Threshold::Derived { success_limit: 0 },
//!     annealing: Annealing::Sigmoid { turn_off_epoch: "1.5".parse()?, steepness: 10.into() },
//! };
//! let schedule = Schedule::new(&gate, 8, 62)?;
//! assert!(schedule.success_limit(Step(1)).is_open(0), "all eight failed: the teacher enters");
//! assert!(!schedule.success_limit(Step(1)).is_open(1), "one was right: GRPO has a signal of its own");
//! assert_eq!(schedule.extinct_at_step(), Some(Step(93)), "from here on it never enters again");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A recipe
//!
//! ```
//! use hapo::train::{Overrides, Recipe};
//!
//! let text = "
//! method = 'trapo'
//! steps = 60
//! [model]
//! path = 'builtin:base'
//! [data]
//! train = 'builtin'
//! [hapo]
//! turn_off_epoch = 1.5
//! ";
//! let stages = Recipe::parse_stages(text, "my recipe", "my-run", &Overrides::set(["optim.lr=1e-4"]))?;
//! assert_eq!(stages[0].method().name, "trapo");
//! assert!(stages[0].gate().is_some(), "the table [hapo] gates it");
//!
//! let typo = Recipe::parse(&text.replace("steps", "stpes"), "my recipe", &Overrides::default());
//! assert!(typo.unwrap_err().to_string().contains("stpes"));
//! # Ok::<(), hapo::core::Refusal>(())
//! ```
//!
//! [`train::RunPlan`] settles what it leaves open, and [`train::train`] runs that into a folder. The programs under `examples/` are one idea each: `grade`, `gate`,
//! `objective`, `sample`, `train`. They run by `cargo run --release --example NAME`.

#![warn(missing_docs)]

pub use hapo_core as core;
pub use hapo_data as data;
pub use hapo_eval as eval;
pub use hapo_kernels as kernels;
pub use hapo_model as model;
pub use hapo_report as report;
pub use hapo_sampler as sampler;
pub use hapo_train as train;
pub use hapo_verify as verify;
