//! The model that a run starts from: read from a folder, drawn at random, or built in; its adapter and its template.

pub(crate) mod builtin;
pub(crate) mod init;
pub(crate) mod lora;
pub(crate) mod template;
