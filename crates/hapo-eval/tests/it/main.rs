//! Tests of `hapo-eval` as its users see it, in one program.

mod recorded;
mod server;
mod support;
