//! Methods that the program around the library brings, by their names in recipes.
//!
//! A recipe is read in many places, so the names are known to the whole process. What a recipe was read with stays its
//! own: a later registration of the name changes nothing of it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use hapo_core::{METHODS, Method};
use toml::Table;

/// Builds the method of that name of the keys of its table, or says which key it refuses and why.
pub type BuildMethod =
    dyn Fn(&'static str, &Table) -> Result<Method, (String, String)> + Send + Sync;

static REGISTERED: RwLock<BTreeMap<&str, Arc<BuildMethod>>> = RwLock::new(BTreeMap::new());

/// Keeps a method under a new name, and gives the earlier one of the name.
pub(super) fn register(name: &str, build: Arc<BuildMethod>) -> Option<Arc<BuildMethod>> {
    // A process registers a handful of names.
    let known = registered(name).map(|it| it.0);
    let name = known.unwrap_or_else(|| Box::leak(name.to_owned().into_boxed_str()));
    REGISTERED.write().unwrap_or_else(PoisonError::into_inner).insert(name, build)
}

/// A registered method by its name, which stays as long as the process.
pub(super) fn registered(name: &str) -> Option<(&'static str, Arc<BuildMethod>)> {
    let all = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
    all.get_key_value(name).map(|(name, build)| (*name, build.clone()))
}

/// Names of the tables that methods have, built in or not.
pub(super) fn method_names() -> Vec<&'static str> {
    let all = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
    METHODS.iter().map(|it| it.name).chain(all.keys().copied()).collect()
}
