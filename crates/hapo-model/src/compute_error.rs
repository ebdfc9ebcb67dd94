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
    /// The configuration cannot be computed with.
    #[error("config: {field} = {got}, expected {expected}")]
    Config {
        /// Name in [`crate::Config`].
        field: &'static str,
        /// The expected value.
        expected: String,
        /// The value found.
        got: usize,
    },
    /// A family that has not run on a GPU.
    #[error("{family}: this family runs on a CPU only")]
    OnCpu {
        /// Its name.
        family: &'static str,
    },
    /// A target of an adapter that is a part of a matrix in the folder.
    #[error("lora: {target} is a part of a larger matrix in this family's folders")]
    FusedTarget {
        /// Its name.
        target: &'static str,
    },
    /// No parameter has this name.
    #[error("unknown tensor {name}")]
    UnknownTensor {
        /// The requested name.
        name: String,
    },
    /// An adapter was to be added to weights that are held in bf16 alone.
    #[error("the weights are held in bf16 alone and take no sum with an adapter")]
    Frozen,
    /// A tensor has another number of elements.
    #[error("tensor {name}: expected {expected} elements, got {got}")]
    TensorLength {
        /// Its published name.
        name: String,
        /// Elements of its shape.
        expected: usize,
        /// Elements that came.
        got: usize,
    },
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
    /// A sequence longer than the model was opened for.
    #[error("a sequence of {length} tokens, the model was opened for {positions}")]
    TooLong {
        /// Its length, prefix included.
        length: usize,
        /// Positions of the rotary table.
        positions: usize,
    },
    /// Segments that do not tile the packed tokens, or a prefix that is not one.
    #[error("segment {index}: {problem}")]
    Segment {
        /// Its index.
        index: usize,
        /// The problem.
        problem: &'static str,
    },
    /// A target outside the batch or at no temperature.
    #[error("target {index}: {problem}")]
    Target {
        /// Its index.
        index: usize,
        /// The problem.
        problem: &'static str,
    },
    /// A batch, prompt or step without tokens.
    #[error("{what} is empty")]
    Empty {
        /// Which one.
        what: &'static str,
    },
    /// Gradients of another number of targets than the forward pass had.
    #[error("{what}: expected {expected} gradients, got {got}")]
    Gradients {
        /// Which ones.
        what: &'static str,
        /// Number of targets.
        expected: usize,
        /// Number that came.
        got: usize,
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
    /// A slot that was released, or belongs to another cache.
    #[error("{what} slot {index} is not in use")]
    Slot {
        /// Kind of slot.
        what: &'static str,
        /// Its index.
        index: usize,
    },
    /// One sequence twice in a decode step.
    #[error("sequence slot {index} appears twice in one step")]
    SlotTwice {
        /// Its index.
        index: usize,
    },
    /// A sequence has all the tokens it may have.
    #[error("sequence slot {index} has all of its {longest} tokens")]
    SequenceFull {
        /// Its index.
        index: usize,
        /// Tokens that `fork` allowed.
        longest: usize,
    },
}

impl ComputeError {
    /// True if memory ran out.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Device(it) if it.is_out_of_memory())
    }
}

impl Explain for ComputeError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Device(it) => it.hint().map(str::to_owned),
            Self::OnCpu { .. } => Some("run it with --device cpu".to_owned()),
            Self::FusedTarget { .. } => {
                Some("targets that work are o_proj and down_proj".to_owned())
            }
            _ => None,
        }
    }

    fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::Device(DeviceError::Compute { .. })
                | Self::OnCpu { .. }
                | Self::FusedTarget { .. }
        )
    }
}
