//! Tests of `hapo-core` as its users see it, in one program.

mod advantages;
mod algorithm_one;
mod correction;
mod family;
mod gate;
mod gates;
mod growth;
mod injection;
mod memory;
mod methods;
mod propositions;
mod published;
mod recorded;
mod rng;
mod scored;
mod support;
mod terms;
