//! Methods that the program around the library brings, by their names in recipes.
//!
//! A recipe is read in many places, so the names are known to the whole process. What a recipe was read with stays its
//! own: a later registration of the name changes nothing of it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use hapo_core::{METHODS, Method};
use toml::Table;

/// Builds the method of that name of the keys of its table, or says which key it refuses and why.
pub type BuildMethod =
    dyn Fn(&'static str, &Table) -> Result<Method, (String, String)> + Send + Sync;

#[derive(Clone)]
pub(super) struct Registered {
    pub(super) name: &'static str,
    pub(super) build: Arc<BuildMethod>,
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

static REGISTERED: RwLock<BTreeMap<String, Registered>> = RwLock::new(BTreeMap::new());

/// Keeps a method under a new name, and gives the earlier one of the name.
pub(super) fn register(name: &str, build: Arc<BuildMethod>) -> Option<Arc<BuildMethod>> {
    let mut all = REGISTERED.write().unwrap_or_else(PoisonError::into_inner);
    let known = all.get(name).map(|it| it.name);
    // A process registers a handful of names.
    let name = known.unwrap_or_else(|| Box::leak(name.to_owned().into_boxed_str()));
    all.insert(name.to_owned(), Registered { name, build }).map(|it| it.build)
}

pub(super) fn registered(name: &str) -> Option<Registered> {
    REGISTERED.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
}

/// Names of the tables that methods have, built in or not.
pub(super) fn method_names() -> Vec<&'static str> {
    let all = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
    METHODS.iter().map(|it| it.name).chain(all.values().map(|it| it.name)).collect()
}
