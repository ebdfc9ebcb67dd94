//! One file per command.

pub(crate) mod eval;
pub(crate) mod generate;
pub(crate) mod grade;
pub(crate) mod list;
pub(crate) mod logprobs;
pub(crate) mod quickstart;
pub(crate) mod replay;
pub(crate) mod schedule;
pub(crate) mod serve;
pub(crate) mod train;
