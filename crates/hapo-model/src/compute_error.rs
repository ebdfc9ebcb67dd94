//! Errors of the arithmetic's public API.

use hapo_core::Explain;
use hapo_kernels::DeviceError;

/// A request the decoder cannot carry out. Nothing was changed when one is returned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ComputeError {
    /// The device refused.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A family on a device, or an adapter of a family, that this program does not compute.
    #[error("{problem}")]
    Unfit {
        /// The family or the adapter's target.
        problem: String,
        /// How to fix it.
        hint: &'static str,
    },
    /// A request that contradicts the model, the cache or itself.
    #[error("{0}")]
    Refused(String),
    /// A token beyond the vocabulary.
    #[error("token {token} at row {row}: the vocabulary has {vocabulary}")]
    Token {
        /// Row of the batch.
        row: usize,
        /// The id.
        token: u32,
        /// Rows of the embedding.
        vocabulary: usize,
    },
    /// A backward pass without a forward pass before it on this tape.
    #[error("the tape holds no forward pass")]
    NoForward,
    /// The cache has too few free pages.
    #[error("key/value cache full: {needed} tokens asked for, {free} of {capacity} are free")]
    CacheFull {
        /// Requested tokens.
        needed: usize,
        /// Tokens of its free pages.
        free: usize,
        /// Tokens of the cache.
        capacity: usize,
    },
}

impl ComputeError {
    /// A sequence longer than the model was opened for; `length` includes its prefix.
    pub(crate) fn too_long(length: usize, positions: usize) -> Self {
        Self::Refused(format!(
            "a sequence of {length} tokens, the model was opened for {positions}"
        ))
    }

    pub(crate) fn unknown_tensor(name: &str) -> Self {
        Self::Refused(format!("unknown tensor {name}"))
    }

    /// True if memory ran out.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Device(it) if it.is_out_of_memory())
    }
}

impl Explain for ComputeError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Device(it) => it.hint().map(str::to_owned),
            Self::Unfit { hint, .. } => Some((*hint).to_owned()),
            _ => None,
        }
    }

    fn is_bad_input(&self) -> bool {
        matches!(self, Self::Device(DeviceError::Compute { .. }) | Self::Unfit { .. })
    }
}
