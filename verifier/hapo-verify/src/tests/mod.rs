//! Tests of what is private to the crate.

mod bounds;
