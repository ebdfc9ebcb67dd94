//! Methods that the program around the library brings, by their names in recipes.
//!
//! A recipe is read in many places, so the names are known to the whole process. What a recipe was read with stays its
//! own: a later registration of the name changes nothing of it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use hapo_core::{METHODS, Method};
use toml::Table;

use super::SECTIONS;

/// Builds the method of that name of the keys of its table, or says which key it refuses and why.
pub type BuildMethod =
    dyn Fn(&'static str, &Table) -> Result<Method, (String, String)> + Send + Sync;

static REGISTERED: RwLock<BTreeMap<&str, Arc<BuildMethod>>> = RwLock::new(BTreeMap::new());

/// Makes a method known to recipes by a name, and gives the earlier one of the name.
///
/// # Errors
/// The name of a built-in method, or one that is no key of a recipe.
pub fn register_method(
    name: &str,
    build: Arc<BuildMethod>,
) -> Result<Option<Arc<BuildMethod>>, String> {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || it == '-' || it == '_';
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err(format!("expected a name of letters, digits, - and _, got {name:?}"));
    }
    let is_section = SECTIONS.iter().any(|(section, keys)| {
        let first = section.split('.').next() == Some(name);
        first || (section.is_empty() && keys.iter().any(|it| it.name == name))
    });
    if is_section || METHODS.iter().any(|it| it.name == name) {
        return Err(format!(
            "expected a new name, got that of a built-in method or section, {name:?}"
        ));
    }
    // A process registers a handful of names.
    let known = registered(name).map(|it| it.0);
    let name = known.unwrap_or_else(|| Box::leak(name.to_owned().into_boxed_str()));
    Ok(REGISTERED.write().unwrap_or_else(PoisonError::into_inner).insert(name, build))
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
