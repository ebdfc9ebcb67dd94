//! The problems of a run: rendered prompts in their order, duplicates, and the hashes of all that is read.

pub(crate) mod duplicates;
pub(crate) mod inputs;
pub(crate) mod prompts;
pub(crate) mod source;
