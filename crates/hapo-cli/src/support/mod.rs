//! What several commands need: arguments, models, devices, names of the hub, signals.

pub(crate) mod admission;
pub(crate) mod arguments;
#[macro_use]
pub(crate) mod device;
pub(crate) mod hub;
pub(crate) mod interrupt;
pub(crate) mod machine;
pub(crate) mod model;
pub(crate) mod overrides;
