//! Errors around a run: recipes, data, models, disks. Never a model's output.

use std::path::Path;

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
    /// Training data that cannot be used.
    #[error(transparent)]
    Data(#[from] hapo_data::Error),
    /// Data, a stage or kept rollouts that contradict the recipe or each other.
    #[error("{problem}")]
    Refused {
        /// Expected and found, with the place.
        problem: String,
        /// The remedy.
        hint: String,
    },
    /// A run folder in which the run cannot begin or go on.
    #[error("{problem}")]
    Folder {
        /// The folder, and its fault.
        problem: String,
        /// The remedy.
        remedy: Remedy,
    },
    /// A gate that does not fit the group's size.
    #[error(transparent)]
    Gate(#[from] hapo_core::GateError),
    /// A grader that is unknown, or a gold answer that it cannot read.
    #[error(transparent)]
    Grader(#[from] hapo_verify::GoldError),
    /// The name of a program or a server is none.
    #[error(transparent)]
    RewardName(#[from] hapo_net::reward::Error),
    /// A server, a program or a method did not do its part of a step, or refused its rewards.
    #[error("{problem}")]
    Outside {
        /// Which, and the failure.
        problem: String,
        /// The remedy.
        hint: Option<&'static str>,
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
    /// A file that cannot be read or written, or a folder in which another process trains.
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
    /// A loss or gradient that is NaN or infinite, before an update (D23).
    #[error("{0}")]
    NotFinite(String),
    /// An update that left weights whose norm is NaN or infinite.
    #[error("{0}")]
    Overflow(String),
}

impl Error {
    /// A problem of the recipe, at a key or at none.
    pub(crate) fn recipe(
        origin: impl Into<String>,
        field: &str,
        problem: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        let (origin, field) = (origin.into(), field.to_owned());
        Self::Recipe { origin, field, problem: problem.into(), hint: hint.into() }
    }

    pub(crate) fn refused(problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Refused { problem: problem.into(), hint: hint.into() }
    }

    /// A checkpoint that is incomplete, altered or of another run.
    pub(crate) fn checkpoint(folder: &Path, problem: &str) -> Self {
        let problem = format!("checkpoint {}: {problem}", folder.display());
        Self::Folder { problem, remedy: Remedy::RestoreCheckpoint }
    }

    /// A program or a server gave no reward.
    pub(crate) fn reward(problem: &str) -> Self {
        Self::Outside {
            problem: format!("the reward failed: {problem}"),
            hint: Some(
                "reward.log in the run folder keeps what it printed; with reward.on_failure = \"wrong\" single failures are worth reward.wrong",
            ),
        }
    }

    pub(crate) fn stage(problem: String) -> Self {
        Self::refused(problem, "run the stages of the recipe in their order")
    }

    /// A recipe starts from a stage, and nobody knows of which run.
    pub(crate) fn of_another_recipe(stage: &str) -> Self {
        Self::stage(format!("model.path = \"stage:{stage}\" is a stage of another recipe"))
    }
}

impl Explain for Error {
    fn is_bad_input(&self) -> bool {
        match self {
            // Whoever starts a second run in a folder has named the wrong one.
            Self::Run(hapo_run::Error::Busy { .. }) => true,
            Self::Run(it) => it.is_bad_input(),
            // It is the recipe that asks for more than there is.
            Self::Sampler(it) => it.is_bad_input() || it.is_out_of_memory(),
            Self::Engine(it) => it.is_bad_input() || it.is_out_of_memory(),
            Self::NotFinite(_) | Self::Overflow(_) | Self::NotSaved { .. } => false,
            _ => true,
        }
    }

    fn remedy(&self) -> Option<Remedy> {
        match self {
            Self::Folder { remedy, .. } => Some(*remedy),
            Self::NotFinite(_) | Self::Overflow(_) => Some(Remedy::LowerLearningRate),
            Self::NotSaved { .. } => Some(Remedy::FreeDisk),
            Self::Run(it) => it.remedy(),
            Self::Data(it) => it.remedy(),
            _ => None,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Recipe { hint, .. } | Self::Refused { hint, .. } => Some(hint.clone()),
            Self::Outside { hint, .. } => hint.map(str::to_owned),
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
            Self::RewardName(it) => it.hint(),
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
