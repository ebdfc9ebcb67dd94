//! Errors around a run: recipes, data, models, disks. Never a model's output.

use std::path::PathBuf;

use hapo_core::{Explain, Remedy};

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a run cannot start or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A recipe that says something impossible or unknown.
    #[error("{problem} ({origin}{}{field})", if field.is_empty() { "" } else { ": " })]
    Recipe {
        /// File, or the override, that says it.
        origin: String,
        /// Key, or line and column.
        field: String,
        /// Expected and found.
        problem: String,
        /// The remedy.
        hint: String,
    },
    /// A file that cannot be read or written.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// `read`, `write`, `create`, …
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Training data that cannot be used.
    #[error(transparent)]
    Data(#[from] hapo_data::Error),
    /// Data that contradict the recipe or each other.
    #[error("{problem}")]
    Dataset {
        /// Expected and found, with the place.
        problem: String,
        /// The remedy.
        hint: String,
    },
    /// A run folder that holds a run already.
    #[error("{} already holds a run", folder.display())]
    RunExists {
        /// The folder.
        folder: PathBuf,
    },
    /// A run folder to resume from that holds no run.
    #[error("{} {problem}: there is no run to resume", folder.display())]
    NoRun {
        /// The folder.
        folder: PathBuf,
        /// How it lacks a run.
        problem: &'static str,
    },
    /// A stage whose model is not there.
    #[error("{problem}")]
    Stage {
        /// The missing model.
        problem: String,
    },
    /// A gate that does not fit the group's size.
    #[error(transparent)]
    Gate(#[from] hapo_core::GateError),
    /// A grader that is unknown, or a gold answer that it cannot read.
    #[error(transparent)]
    Grader(#[from] hapo_verify::GoldError),
    /// The name of a program or a server is none.
    #[error(transparent)]
    RewardName(#[from] hapo_reward::Error),
    /// A program or a server gave no reward.
    #[error("the reward failed: {problem}")]
    Reward {
        /// The failure.
        problem: String,
    },
    /// A server gave no rollouts.
    #[error("no rollouts from {server}: {problem}")]
    Rollouts {
        /// Its address.
        server: String,
        /// The failure.
        problem: String,
    },
    /// A method of another language could not answer.
    #[error("{problem}")]
    Method {
        /// The failure, with the method's name and the group.
        problem: String,
    },
    /// Rewards that the method cannot learn from.
    #[error("{problem}")]
    RefusedRewards {
        /// Which.
        problem: String,
    },
    /// A step that cannot be computed again from what was kept.
    #[error("{problem}")]
    Replay {
        /// Expected and found.
        problem: String,
        /// The remedy.
        hint: String,
    },
    /// A model folder that cannot be used.
    #[error(transparent)]
    Model(#[from] hapo_model::Error),
    /// A model folder that cannot be loaded.
    #[error(transparent)]
    Load(#[from] hapo_model::LoadError),
    /// The decoder's arithmetic was asked for something impossible.
    #[error(transparent)]
    Engine(#[from] hapo_model::ComputeError),
    /// A checkpoint that is incomplete, altered or of another run.
    #[error("checkpoint {}: {problem}", folder.display())]
    Checkpoint {
        /// Its folder.
        folder: PathBuf,
        /// The fault.
        problem: String,
    },
    /// A run folder that was trained by another recipe.
    #[error("{} is of another recipe: {differences}", folder.display())]
    OtherRecipe {
        /// The run folder, or its checkpoint.
        folder: PathBuf,
        /// The keys that differ, with both values.
        differences: String,
    },
    /// A run that read other things when it began.
    #[error("{} was begun with other inputs: {differences}", folder.display())]
    OtherInputs {
        /// The run folder.
        folder: PathBuf,
        /// The inputs that differ.
        differences: String,
    },
    /// A run folder whose checkpoints are gone.
    #[error("{}: {logged} steps are logged and no checkpoint is there, though the first was due after step {due}", folder.display())]
    NoCheckpoint {
        /// The run folder.
        folder: PathBuf,
        /// The last step that is logged.
        logged: u64,
        /// The step of the first checkpoint.
        due: u64,
    },
    /// A file of the run folder that cannot be read or written, or a folder in which another process trains.
    #[error(transparent)]
    Run(#[from] hapo_run::Error),
    /// A checkpoint that could not be written; what was saved before is untouched.
    #[error("the checkpoint of step {step} is not saved: {cause}; {}", match kept {
        Some(it) => format!("that of step {it} is complete"),
        None => "there was none before".to_owned(),
    })]
    NotSaved {
        /// The step.
        step: u64,
        /// The checkpoint before it.
        kept: Option<u64>,
        /// Why.
        cause: Box<Error>,
    },
    /// The sampler could not continue.
    #[error(transparent)]
    Sampler(#[from] hapo_sampler::Error),
    /// A loss, gradient or parameter that is NaN or infinite (D23).
    #[error("{what} is {value} at step {step}")]
    NotFinite {
        /// `loss`, `gradient norm`, …
        what: &'static str,
        /// Its value.
        value: f64,
        /// The step that met it.
        step: u64,
    },
    /// An update that left weights whose norm is NaN or infinite.
    #[error(
        "the weights overflow in an update of step {step}, at a learning rate of {learning_rate:e}"
    )]
    Overflow {
        /// The step.
        step: u64,
        /// The rate of the update.
        learning_rate: f64,
    },
}

impl Error {
    /// A recipe starts from a stage, and nobody knows of which run.
    pub(crate) fn of_another_recipe(stage: &str) -> Self {
        Self::Stage {
            problem: format!("model.path = \"stage:{stage}\" is a stage of another recipe"),
        }
    }
}

impl Explain for Error {
    fn is_bad_input(&self) -> bool {
        match self {
            Self::Recipe { .. }
            | Self::Data(_)
            | Self::Dataset { .. }
            | Self::RunExists { .. }
            | Self::NoRun { .. }
            | Self::Stage { .. }
            | Self::Gate(_)
            | Self::Grader(_)
            | Self::RewardName(_)
            | Self::Reward { .. }
            | Self::Rollouts { .. }
            | Self::Method { .. }
            | Self::RefusedRewards { .. }
            | Self::Replay { .. }
            | Self::Model(_)
            | Self::Load(_)
            | Self::OtherRecipe { .. }
            | Self::OtherInputs { .. }
            | Self::NoCheckpoint { .. }
            | Self::Checkpoint { .. }
            // Whoever starts a second run in a folder has named the wrong one.
            | Self::Run(hapo_run::Error::Busy { .. }) => true,
            Self::Io { action, .. } => *action == "read",
            Self::Run(it) => it.is_bad_input(),
            // It is the recipe that asks for more than there is.
            Self::Sampler(it) => it.is_bad_input() || it.is_out_of_memory(),
            Self::Engine(it) => it.is_bad_input() || it.is_out_of_memory(),
            Self::NotFinite { .. }
            | Self::Overflow { .. }
            | Self::NotSaved { .. } => false,
        }
    }

    fn remedy(&self) -> Option<Remedy> {
        Some(match self {
            Self::RunExists { .. } => Remedy::ResumeRun,
            Self::NoRun { .. } => Remedy::StartFirst,
            Self::OtherRecipe { .. } => Remedy::ResumeChangedRecipe,
            Self::OtherInputs { .. } => Remedy::ResumeChangedInputs,
            Self::NoCheckpoint { .. } => Remedy::RestoreCheckpoints,
            Self::Checkpoint { .. } => Remedy::RestoreCheckpoint,
            Self::NotFinite { .. } | Self::Overflow { .. } => Remedy::LowerLearningRate,
            Self::NotSaved { .. } => Remedy::FreeDisk,
            Self::Run(it) => return it.remedy(),
            Self::Data(it) => return it.remedy(),
            _ => return None,
        })
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Recipe { hint, .. } | Self::Dataset { hint, .. } | Self::Replay { hint, .. } => {
                Some(hint.clone())
            }
            Self::Stage { .. } => Some("run the stages of the recipe in their order".to_owned()),
            Self::RefusedRewards { .. } => {
                Some("give rewards from 0, or take method = \"grpo\"".to_owned())
            }
            Self::Gate(_) => Some("`hapo recipe hapo` lists the gate's keys".to_owned()),
            Self::Model(it) => it.hint(),
            Self::Load(it) => it.hint(),
            Self::Engine(it) if it.is_out_of_memory() => Some(
                "lower optim.micro_batch_tokens, set optim.activation_checkpointing = \"layers\", or take a smaller model; \
                 `hapo plan` says what each saves".to_owned(),
            ),
            Self::Engine(it) => it.hint(),
            Self::Sampler(it) if it.is_out_of_memory() => Some(
                "lower sampling.kv_memory, sampling.max_sequences or sampling.max_new_tokens; `hapo plan` says what each saves".to_owned(),
            ),
            Self::Sampler(hapo_sampler::Error::KvMemory { .. }) => Some(
                "raise sampling.kv_memory, or lower sampling.max_new_tokens; `hapo plan` says what each takes".to_owned(),
            ),
            Self::Sampler(it) => it.hint(),
            Self::Data(it) => it.hint(),
            Self::Run(it) => it.hint(),
            Self::Io { action: "read", .. } => {
                Some("paths are relative to the current folder".to_owned())
            }
            Self::RewardName(it) => it.hint(),
            Self::Rollouts { .. } => Some(
                "docs/guides/rollouts-from-a-server.md says how servers are started; the run resumes from its last checkpoint".to_owned(),
            ),
            Self::Reward { .. } => Some(
                "reward.log in the run folder keeps what it printed; with reward.on_failure = \"wrong\" single failures are worth reward.wrong".to_owned(),
            ),
            _ => self.remedy().map(|remedy| remedy.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use hapo_kernels::DeviceError;
    use hapo_model::ComputeError;

    use super::*;

    #[test]
    fn what_is_too_much_for_the_memory_names_its_keys() {
        let none = || ComputeError::Device(DeviceError::Allocation { bytes: 1 << 40 });
        let training = Error::Engine(none());
        let sampling = Error::Sampler(hapo_sampler::Error::Compute(none()));
        let no_room =
            hapo_sampler::Error::KvMemory { needed: 9, prompt: 1, completion: 2, bytes: 3 };
        let no_room = Error::Sampler(no_room);
        for (error, key) in [
            (&training, "optim.micro_batch_tokens"),
            (&training, "optim.activation_checkpointing"),
            (&sampling, "sampling.max_sequences"),
            (&no_room, "sampling.kv_memory"),
        ] {
            assert!(error.is_bad_input() && error.hint().unwrap().contains(key), "{error}");
        }
        assert!(!Error::Engine(ComputeError::NoForward).is_bad_input());
    }
}
