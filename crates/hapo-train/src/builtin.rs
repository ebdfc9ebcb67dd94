//! The base model of the built-in task, shipped inside the program.

use std::path::Path;

use hapo_kernels::Cpu;
use hapo_model::{Model, Tokenizer};

use crate::error::Result;
use crate::run::LoadedModel;

const CONFIG: &[u8] = include_bytes!("../../../testdata/base/config.json");
