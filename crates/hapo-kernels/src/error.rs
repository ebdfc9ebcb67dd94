//! What a device can refuse.

/// What a device can refuse.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The system has no memory for a buffer of this size.
    #[error("no memory for a buffer of {bytes} bytes")]
    Allocation {
        /// Size asked for.
        bytes: usize,
    },
    /// The worker threads could not be started.
    #[error("cannot start {threads} worker threads: {reason}")]
    Threads {
        /// Number asked for.
        threads: usize,
        /// What the system said.
        reason: String,
    },
    /// The device has no products of the factors that were asked for.
    #[error("{problem}")]
    Compute {
        /// What was asked for, and what is missing.
        problem: String,
        /// What can be done about it.
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
        /// Bytes asked for.
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
        /// What is missing or went wrong.
        problem: String,
        /// What can be done about it.
        hint: String,
    },
}

impl DeviceError {
    /// Whether there was no memory.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Allocation { .. } | Self::OutOfMemory { .. })
    }

    /// What the reader can do, where there is something.
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
