//! Errors of a device.

use hapo_core::{Fault, Refusal};

/// What a device answers.
pub(crate) type Result<T, E = DeviceError> = std::result::Result<T, E>;

/// An error of a device.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DeviceError {
    /// The system has no memory for a buffer of this size.
    #[error("no memory for a buffer of {bytes} bytes")]
    Allocation {
        /// Requested size.
        bytes: usize,
    },
    /// A GPU has no free memory for a buffer.
    #[error(
        "{device} is out of memory: {:.3} GB asked for, {:.3} of its {:.3} GB are free",
        *asked as f64 / 1e9, *free as f64 / 1e9, *total as f64 / 1e9
    )]
    OutOfMemory {
        /// Name of the GPU, as `cuda:0`.
        device: String,
        /// Requested bytes.
        asked: u64,
        /// Bytes free.
        free: u64,
        /// Bytes of the GPU.
        total: u64,
    },
    /// A GPU cannot be used, or failed while it was.
    #[error("{device}: {problem}")]
    Gpu {
        /// Name of the GPU, as `cuda:0`.
        device: String,
        /// The missing part or the failure.
        problem: String,
        /// How to fix it.
        hint: String,
    },
}

impl DeviceError {
    /// A GPU that cannot be used, or failed.
    pub fn gpu(device: &str, problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Gpu { device: device.to_owned(), problem: problem.into(), hint: hint.into() }
    }

    /// True if memory ran out.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Allocation { .. } | Self::OutOfMemory { .. })
    }

    /// Advice for the user.
    pub fn hint(&self) -> &str {
        match self {
            Self::Gpu { hint, .. } => hint,
            Self::Allocation { .. } | Self::OutOfMemory { .. } => {
                "smaller batches and activation checkpointing need less memory in training, fewer or \
                 shorter sequences at once need less in sampling"
            }
        }
    }
}

impl From<DeviceError> for Refusal {
    fn from(error: DeviceError) -> Self {
        let hint = error.hint().to_owned();
        Self::because(error).with_fault(Fault::Machine).hint(hint)
    }
}

/// True if memory of a device ran out.
pub fn is_out_of_memory(refusal: &Refusal) -> bool {
    refusal.cause().is_some_and(DeviceError::is_out_of_memory)
}
