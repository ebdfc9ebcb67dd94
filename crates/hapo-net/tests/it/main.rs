//! The integration tests of the crate, one program.

mod hub;
mod programs;
