//! Attention, over packed segments and against the cache.

pub(super) mod cache;
pub(super) mod prompt;
mod scratch;
