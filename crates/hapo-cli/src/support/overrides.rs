//! Changes to a recipe by the command line.

use hapo_train::Overrides;
use hapo_train::recipe::WrittenAs;

use crate::support::arguments::{KEYS, SETTINGS};
use crate::support::device::ComputeArg;

/// The two flags of every command that reads a recipe.
#[derive(clap::Args)]
pub struct OverrideArgs {
    /// Override a key: section.key=value
    #[arg(long, value_name = "KEY=VALUE", hide_possible_values = true, value_parser = SETTINGS)]
    set: Vec<String>,
    /// Leave a key of the recipe out, before anything is set: section.key
    #[arg(long, value_name = "KEY", hide_possible_values = true, value_parser = KEYS)]
    unset: Vec<String>,
}

impl OverrideArgs {
    /// With what the option for a recipe's `compute` says.
    pub(crate) fn computing(&self, compute: ComputeArg) -> Overrides {
        let mut overrides = self.overrides();
        overrides.set.extend(compute.set());
        overrides
    }

    pub fn overrides(&self) -> Overrides {
        Overrides {
            set: self.set.clone(),
            unset: self.unset.clone(),
            written_as: WrittenAs { set: "--set", unset: "--unset" },
            of_many: false,
        }
    }
}
