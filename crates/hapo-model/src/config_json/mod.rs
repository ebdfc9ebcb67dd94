//! `config.json` and `generation_config.json`, in and out.
//!
//! Both dialects are read: transformers 4 writes `rope_theta`, `rope_scaling` and `torch_dtype`; transformers 5 writes
//! `rope_parameters` and `dtype`. The first is written, because transformers 4, transformers 5 and vLLM all read it.
//!
//! A field is refused if it changes, or may change, the result: known features that are not implemented, and unknown
//! keys with a decoder's word in them. Any other unknown key is returned by name, for a warning. Keys that are `null`
//! or begin with `_` pass.

mod parse;
mod render;

pub use crate::config::check::MAX_PARAMETERS;
pub(crate) use parse::read;
pub use parse::{ParsedConfig, parse};
pub(crate) use render::rope_scaling;
pub use render::{render, render_generation};
