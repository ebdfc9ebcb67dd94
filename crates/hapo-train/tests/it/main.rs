//! Tests of `hapo-train` as its users see it, in one program.

mod conformance;
mod distillation;
mod every_method;
mod gates;
mod growth;
mod hints;
mod hosts;
mod lost_rollouts;
mod memory;
mod meter;
mod options;
mod ready_recipes;
mod recipe_docs;
mod recipes;
mod refused_keys;
mod server_rollouts;
mod success;
mod truncated;
