//! One file per command.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod data;
pub(crate) mod doctor;
pub(crate) mod eval;
pub(crate) mod export;
pub(crate) mod fetch;
pub(crate) mod generate;
pub(crate) mod grade;
pub(crate) mod list;
pub(crate) mod logprobs;
pub(crate) mod merge;
pub(crate) mod methods;
pub(crate) mod new;
pub(crate) mod plan;
pub(crate) mod push;
pub(crate) mod quickstart;
pub(crate) mod recipe;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod runs;
pub(crate) mod schedule;
pub(crate) mod serve;
pub(crate) mod teacher;
pub(crate) mod train;
mod train_summary;
