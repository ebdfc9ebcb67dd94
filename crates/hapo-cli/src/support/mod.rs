//! What several commands need: arguments, models, devices, names of the hub, signals.

pub(crate) mod admission;
pub mod arguments;
#[macro_use]
pub mod device;
pub mod hub;
pub mod interrupt;
pub mod machine;
pub(crate) mod model;
pub mod overrides;
