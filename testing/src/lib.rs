//! Helpers of the workspace's tests; a dev-dependency only.
//!
//! Without features it uses no other crate, so that unit tests of every crate can use it.

pub mod allocator;
mod paths;
#[cfg(feature = "models")]
pub mod reference;
#[cfg(feature = "server")]
pub mod server;

pub use paths::{fixtures, model_dir, repository};

/// Whether a slow test is left out: without `HAPO_ALL_TESTS=1`. CONTRIBUTING lists those that ask.
#[must_use]
pub fn slow() -> bool {
    std::env::var_os("HAPO_ALL_TESTS").is_none_or(|it| it != "1")
}
