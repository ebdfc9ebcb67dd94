//! Arguments, models, devices, names of the hub and signals, for several commands.

pub(crate) mod admission;
pub mod arguments;
#[macro_use]
pub mod device;
pub mod hub;
pub mod interrupt;
pub mod machine;
pub(crate) mod model;
