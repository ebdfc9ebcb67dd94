//! The machines of a run: what samples and what learns, and the files of the learner's state.

pub(crate) mod engines;
mod protocol;
pub(crate) mod scorer;
pub(crate) mod server;
pub(crate) mod trainer;
pub(crate) mod trainer_files;
