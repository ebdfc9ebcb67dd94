//! Tests of `hapo-serve` as its users see it, in one program.

mod server;
mod special_tokens;
mod weights;
