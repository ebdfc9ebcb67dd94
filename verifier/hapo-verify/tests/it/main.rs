//! Tests of `hapo-verify` as its users see it, in one program.

mod choice;
mod extraction;
mod laws;
mod misses;
mod own_grader;
mod tables;
