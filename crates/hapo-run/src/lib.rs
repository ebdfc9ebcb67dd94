//! The run folder: its names and its schema, written by training and read by everything else, and the three ways
//! in which files survive a kill: written atomically, locked, resumed line by line.
//!
//! Each record has one type here, so a reader cannot drift from the writer. The price: renaming a field makes older
//! folders unreadable.

mod columns;
mod files;
mod folder;
mod journal;
mod learned;
mod lock;
mod metrics;
mod preflight;
mod recipe;
mod rollouts;

pub use columns::Columns;
pub use files::{
    Contents, NewFile, create_folder, sync_parent, write_atomically, write_atomically_with,
};
pub use folder::{EarlyEnd, RunFolder, entries, read_json};
pub use journal::{Journal, JournalFormat, OpenMode, Span, differences};
pub use learned::{Change, changes, held_out_metric, nothing_learned};
pub use lock::{Busy, Lock, is_locked, lock_folder};
pub use metrics::{
    Metrics, MetricsFile, REWARD_BELOW_WRONG, REWARD_FAILED, REWARD_PARTS, is_clock, metric_of_set,
    metrics,
};
pub use preflight::{Cause, Preflight, ResponseShares, duration};
pub use recipe::{RecipeDifference, recipe_differences, recipe_entries, recipe_value};
pub use rollouts::{Role, RolloutLine, RolloutWriter, each_rollout, read_rollouts};
