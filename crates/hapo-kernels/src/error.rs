//! Errors of a device.

use hapo_core::{Fault, Refusal};

/// An error of a device.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The system has no memory for a buffer of this size.
    #[error("no memory for a buffer of {bytes} bytes")]
    Allocation {
        /// Requested size.
        bytes: usize,
    },
    /// The worker threads could not be started.
    #[error("cannot start {threads} worker threads: {reason}")]
    Threads {
        /// Requested number.
        threads: usize,
        /// The system's message.
        reason: String,
    },
    /// The device has no products of these factors.
    #[error("{problem}")]
    Compute {
        /// The request, and the missing part.
        problem: String,
        /// How to fix it.
        hint: &'static str,
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
    /// True if memory ran out.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Allocation { .. } | Self::OutOfMemory { .. })
    }

    /// Advice for the user, if there is any.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Gpu { hint, .. } => Some(hint),
            Self::Compute { hint, .. } => Some(hint),
            Self::Allocation { .. } | Self::OutOfMemory { .. } => Some(
                "smaller batches and activation checkpointing need less memory in training, fewer or \
                 shorter sequences at once need less in sampling",
            ),
            _ => None,
        }
    }
}

impl From<DeviceError> for Refusal {
    fn from(error: DeviceError) -> Self {
        let fault = match error {
            DeviceError::Compute { .. } => Fault::Input,
            _ => Fault::Machine,
        };
        let hint = error.hint().map(str::to_owned);
        let refusal = Self::because(error).with_fault(fault);
        match hint {
            Some(hint) => refusal.hint(hint),
            None => refusal,
        }
    }
}

/// True if memory of a device ran out.
pub fn is_out_of_memory(refusal: &Refusal) -> bool {
    refusal.cause().is_some_and(DeviceError::is_out_of_memory)
}
