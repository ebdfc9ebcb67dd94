//! Tests of `lab` as its users see it, in one program.

mod commands;
mod family;
mod replay;
