//! `ended.json`: why a run has ended before the last step of its recipe.

use std::fs;

use serde::{Deserialize, Serialize};

use hapo_core::{Refusal, if_there};

use crate::files::write_atomically;
use crate::folder::{RunFolder, read_json};

/// The early end of a run that needs no further step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlyEnd {
    pub step: u64,
    pub because: String,
}

impl EarlyEnd {
    pub fn write(&self, folder: RunFolder<'_>) -> Result<(), Refusal> {
        let json = serde_json::to_vec_pretty(self).expect("a step and a sentence are plain data");
        write_atomically(&folder.early_end(), &json)
    }

    pub fn read(folder: RunFolder<'_>) -> Result<Option<Self>, Refusal> {
        read_json(&folder.early_end())
    }

    /// Forgets it: the run continues.
    pub fn forget(folder: RunFolder<'_>) -> Result<(), Refusal> {
        let path = folder.early_end();
        if_there(&path, fs::remove_file(&path)).map(drop)
    }
}
