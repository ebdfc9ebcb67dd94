//! `ended.json`: why a run has ended before the last step of its recipe.

use std::fs;

use serde::{Deserialize, Serialize};

use hapo_core::Refusal;

use crate::files::write_atomically;
use crate::folder::RunFolder;

/// The early end of a run that needs no further step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlyEnd {
    pub step: u64,
    pub because: String,
}

impl EarlyEnd {
    /// Keeps it in the run folder.
    pub fn write(&self, folder: RunFolder<'_>) -> Result<(), Refusal> {
        let json = serde_json::to_vec_pretty(self).expect("a step and a sentence are plain data");
        write_atomically(&folder.early_end(), &json)
    }

    /// The early end of the run in a folder; `None` if there was none or it cannot be read.
    pub fn read(folder: RunFolder<'_>) -> Option<Self> {
        serde_json::from_slice(&fs::read(folder.early_end()).ok()?).ok()
    }

    /// Forgets it: the run continues.
    pub fn forget(folder: RunFolder<'_>) -> Result<(), Refusal> {
        let path = folder.early_end();
        match fs::remove_file(&path) {
            Err(it) if it.kind() != std::io::ErrorKind::NotFound => {
                Err(Refusal::io("remove", &path)(it))
            }
            _ => Ok(()),
        }
    }
}
