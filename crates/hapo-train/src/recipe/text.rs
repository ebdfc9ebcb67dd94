//! A recipe's text: TOML with overrides laid on it, cut into stages, and the place of every key.
//!
//! A key may come from the recipe around a stage, from the stage or from an override. Messages name the
//! place; the price is a second parse that keeps positions.

use std::{borrow::Cow, collections::BTreeMap, ops::Range};

use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::sections::{REQUIRED, Settings};
use super::{values::method_names, words::explain};
use crate::Result;
use hapo_core::Refusal;
use hapo_run::recipe_value;

#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `section.key=value`, or `stage.NAME.section.key=value` for one stage.
    pub set: Vec<String>,
    /// `section.key`, or `stage.NAME.section.key`; taken out before anything is set.
    pub unset: Vec<String>,
    pub written_as: WrittenAs,
    /// True if several recipes have them: a key that one of these does not read, or has not where it is unset, is passed
    /// over.
    pub of_many: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct WrittenAs {
    /// The option before `section.key=value`.
    pub set: &'static str,
    pub unset: &'static str,
}

impl Default for WrittenAs {
    fn default() -> Self {
        Self { set: "override", unset: "unset" }
    }
}

impl Overrides {
    pub fn set<I: IntoIterator<Item: Into<String>>>(set: I) -> Self {
        Self { set: set.into_iter().map(Into::into).collect(), ..Self::default() }
    }
}

#[derive(Clone, Debug)]
pub(super) struct KeyOrigin {
    /// The file with line and column, or the override.
    at: String,
    /// True if it is written for several stages, of which some may not read it.
    pub(super) shared: bool,
}

/// A recipe of one stage with everything laid on it.
#[derive(Clone, Debug, Default)]
pub(super) struct Document {
    origin: String,
    table: Table,
    places: BTreeMap<String, KeyOrigin>,
    pub(super) written_as: WrittenAs,
}

impl Document {
    /// A table that the program made: its keys were written by nobody.
    pub(super) fn of_table(origin: &str, table: Table) -> Self {
        Self { origin: origin.to_owned(), table, ..Self::default() }
    }

    /// Its settings, with defaults filled in, and the method's own table.
    pub(super) fn settings(&self) -> Result<(Settings, Table)> {
        for key in REQUIRED {
            let section = key.rsplit_once('.').map(|it| it.0);
            let has_section = section.is_none_or(|it| find(&self.table, it).is_some());
            if has_section && find(&self.table, key).is_none() {
                let what = format!("the key {key} is missing");
                let hint = match *key {
                    "method" => "`hapo list methods` names them: method = \"grpo\"",
                    _ => "`hapo recipe` lists every key",
                };
                return Err(self.error(&refused(key, what, hint)));
            }
        }
        let mut table = self.table.clone();
        let names = method_names().into_iter();
        let mut own: BTreeMap<_, _> = names.map(|name| (name, table.remove(name))).collect();
        let settings: Settings =
            serde_path_to_error::deserialize(Value::Table(table)).map_err(|it| {
                let (what, hint) = explain(it.inner().message());
                self.error(&refused(&it.path().to_string(), what, hint))
            })?;
        let method = settings.method.name();
        match own.remove(method).flatten() {
            None => Ok((settings, Table::new())),
            Some(Value::Table(own)) => Ok((settings, own)),
            Some(_) => {
                let hint = format!("write [{method}] above the method's own keys");
                Err(self.error(&refused(method, "expected a table", hint)))
            }
        }
    }

    /// Where a key, or the part of it that was written, was written.
    fn place(&self, key: &str) -> Option<&KeyOrigin> {
        let mut keys = std::iter::successors(Some(key), |it| Some(&it[..it.rfind(['.', '['])?]));
        keys.find_map(|it| self.places.get(it))
    }

    /// The places at which `section.key`, or any key of the table `section`, is written.
    pub(super) fn places_of(&self, path: &str) -> impl Iterator<Item = (&str, &KeyOrigin)> {
        let is_it = move |key: &str| {
            let rest = key.strip_prefix(path);
            rest.is_some_and(|rest| match rest.strip_prefix('.') {
                Some(rest) => !path.contains('.') && !rest.contains(['.', '[']),
                None => rest.is_empty() && path.contains('.'),
            })
        };
        let places = self.places.iter().map(|(key, place)| (key.as_str(), place));
        places.filter(move |(key, _)| is_it(key))
    }

    /// The refusal of a key, its place, with the place at which it is written.
    pub(super) fn error(&self, refusal: &Refusal) -> Refusal {
        let key = refusal.place().unwrap_or_default();
        let origin = self.place(key).map_or(&self.origin, |it| &it.at);
        let hint = refusal.how_to_mend().unwrap_or("`hapo recipe` lists every key").to_owned();
        refused_recipe(origin, key, refusal.problem(), hint)
    }

    pub(super) fn set(&mut self, text: &str, written_as: WrittenAs, shared: bool) -> Result<()> {
        let at = format!("{} {text}", written_as.set);
        let hint = "write section.key=value, for example optim.lr=5e-6";
        let bad = |what: &str| refused_recipe(&at, "", what, hint);
        let (path, value) = text.split_once('=').ok_or_else(|| bad("expected key=value"))?;
        // A text that is no TOML value is a string: `method=luffy` needs no quotes.
        let value = recipe_value(value);
        let path = path.trim();
        let (sections, last) = path.rsplit_once('.').unwrap_or(("", path));
        if last.is_empty() {
            return Err(bad("the key is empty"));
        }
        let mut table = &mut self.table;
        for key in sections.split('.').filter(|it| !it.is_empty()) {
            let section = table.entry(key).or_insert_with(|| Value::Table(Table::new()));
            let refused = || bad(&format!("`{key}` is a value, not a section"));
            table = section.as_table_mut().ok_or_else(refused)?;
        }
        let place = KeyOrigin { at, shared };
        let below = keys_below(path, &value);
        table.insert(last.to_owned(), value);
        self.forget(path);
        self.places.extend(below.into_iter().map(|it| (it, place.clone())));
        Ok(())
    }

    pub(super) fn unset(&mut self, path: &str) -> bool {
        let (sections, last) = path.rsplit_once('.').unwrap_or(("", path));
        let mut table = &mut self.table;
        for key in sections.split('.').filter(|it| !it.is_empty()) {
            let Some(Value::Table(below)) = table.get_mut(key) else { return false };
            table = below;
        }
        let found = table.remove(last).is_some();
        self.forget(path);
        found
    }

    fn forget(&mut self, path: &str) {
        let below = format!("{path}.");
        self.places.retain(|it, _| it != path && !it.starts_with(&below));
    }
}

/// A key and, where its value is a section, the keys in it.
fn keys_below(path: &str, value: &Value) -> Vec<String> {
    let mut all = vec![path.to_owned()];
    if let Value::Table(table) = value {
        all.extend(table.iter().flat_map(|it| keys_below(&format!("{path}.{}", it.0), it.1)));
    }
    all
}

/// The refusal of a key, for [`Document::error`].
pub(super) fn refused(
    key: &str,
    what: impl Into<Cow<'static, str>>,
    hint: impl Into<Cow<'static, str>>,
) -> Refusal {
    Refusal::input(what).at(key).hint(hint)
}

pub(super) fn find<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    let Some((section, rest)) = key.split_once('.') else { return table.get(key) };
    find(table.get(section)?.as_table()?, rest)
}

/// The stages of a recipe, each with its name; one without a name for a recipe of one stage.
///
/// A `[[stage]]` has a `name` and any keys of a recipe; what it does not say it takes from the recipe around
/// it. An override of `key` holds for every stage, one of `stage.NAME.key` for one.
pub(super) fn documents(
    text: &str,
    origin: &str,
    overrides: &Overrides,
) -> Result<Vec<(Option<String>, Document)>> {
    let mut table: Table = text.parse().map_err(|it| bad_toml(&it, origin, text))?;
    let spanned = DeTable::parse(text).map_err(|it| bad_toml(&it, origin, text))?;
    let stages = table.remove("stage");
    let outer = Document {
        origin: origin.to_owned(),
        table,
        places: positions(spanned.get_ref(), text, origin, stages.is_some()),
        written_as: overrides.written_as,
    };
    let mut all = match stages {
        None => vec![(None, outer)],
        Some(stages) => {
            let spans = spanned.get_ref().get("stage").and_then(|it| it.get_ref().as_array());
            let spans = spans.into_iter().flatten().map(|it| match it.get_ref() {
                DeValue::Table(it) => positions(it, text, origin, false),
                _ => BTreeMap::new(),
            });
            with_stages(&outer, stages, spans.collect())?
        }
    };
    lay_on(&mut all, overrides, origin)?;
    Ok(all)
}

fn with_stages(
    outer: &Document,
    stages: Value,
    mut positions: Vec<BTreeMap<String, KeyOrigin>>,
) -> Result<Vec<(Option<String>, Document)>> {
    let refused = |what: &str| refused_recipe(&outer.origin, "stage", what, "write [[stage]]");
    let stages: Vec<Table> = stages.try_into().map_err(|_| refused("expected a list of tables"))?;
    if stages.is_empty() {
        return Err(refused("expected at least one stage"));
    }
    let mut all: Vec<(Option<String>, Document)> = Vec::new();
    for (index, stage) in stages.into_iter().enumerate() {
        let name = stage.get("name").and_then(Value::as_str).unwrap_or_default();
        let mut letters = name.bytes();
        let valid = !name.is_empty()
            && letters.all(|it| it.is_ascii_alphanumeric() || it == b'-' || it == b'_')
            && all.iter().all(|it| it.0.as_deref() != Some(name));
        if !valid {
            let what = format!("stage {}: expected a name of its own", index + 1);
            let hint = "name it with letters, digits, `-` and `_`: it is the stage's folder";
            return Err(refused_recipe(&outer.origin, "stage", what, hint));
        }
        let name = name.to_owned();
        let mut document = outer.clone();
        document.origin = format!("{}, stage {name}", outer.origin);
        merge(&mut document.table, stage);
        if let Some(own) = positions.get_mut(index) {
            document.places.append(own);
        }
        all.push((Some(name), document));
    }
    Ok(all)
}

fn lay_on(
    all: &mut [(Option<String>, Document)],
    overrides: &Overrides,
    origin: &str,
) -> Result<()> {
    let WrittenAs { set, unset } = overrides.written_as;
    let no_stage = |flag: &str, it: &str| {
        let what = format!("{flag} {it}: the recipe has no such stage");
        refused_recipe(origin, "stage", what, "write stage.NAME.key with the name of a stage")
    };
    for it in &overrides.unset {
        let (stages, key) = targets(it, all).ok_or_else(|| no_stage(unset, it))?;
        let mut found = overrides.of_many;
        for (_, document) in &mut all[stages] {
            found |= document.unset(key);
        }
        if !found {
            let problem = format!("`{it}` is not in the recipe");
            let hint = "leave it away: the default holds";
            return Err(refused_recipe(format!("{unset} {it}"), "", problem, hint));
        }
    }
    for it in &overrides.set {
        let (stages, key) = targets(it, all).ok_or_else(|| no_stage(set, it))?;
        let shared = stages.len() > 1;
        for (_, document) in &mut all[stages] {
            document.set(key, overrides.written_as, shared)?;
        }
    }
    Ok(())
}

/// The stages that an override is for, and its key there.
fn targets<'a>(
    text: &'a str,
    all: &[(Option<String>, Document)],
) -> Option<(Range<usize>, &'a str)> {
    let Some(rest) = text.strip_prefix("stage.") else { return Some((0..all.len(), text)) };
    all.iter().enumerate().rev().find_map(|(index, (name, _))| {
        Some((index..index + 1, rest.strip_prefix(name.as_deref()?)?.strip_prefix('.')?))
    })
}

/// Lays `over` onto `table`: tables key by key, everything else as a whole.
fn merge(table: &mut Table, over: Table) {
    for (key, value) in over {
        match (table.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => merge(below, above),
            (_, value) => drop(table.insert(key, value)),
        }
    }
}

fn positions(
    table: &DeTable<'_>,
    text: &str,
    origin: &str,
    shared: bool,
) -> BTreeMap<String, KeyOrigin> {
    let place = |(key, offset)| (key, KeyOrigin { at: place_of(origin, text, offset), shared });
    offsets(table, "").into_iter().map(place).collect()
}

fn offsets(table: &DeTable<'_>, prefix: &str) -> Vec<(String, usize)> {
    let mut all = Vec::new();
    for (key, value) in table {
        let path = format!("{prefix}{}", key.get_ref());
        all.push((path.clone(), key.span().start));
        match value.get_ref() {
            DeValue::Table(below) => all.extend(offsets(below, &format!("{path}."))),
            DeValue::Array(items) => {
                for (index, it) in items.iter().enumerate() {
                    if let DeValue::Table(below) = it.get_ref() {
                        all.extend(offsets(below, &format!("{path}[{index}].")));
                    }
                }
            }
            _ => {}
        }
    }
    all
}

fn place_of(origin: &str, text: &str, offset: usize) -> String {
    let before = &text[..offset];
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|it| *it != '\n').count() + 1;
    format!("{origin}, line {line}, column {column}")
}

fn bad_toml(error: &toml::de::Error, origin: &str, text: &str) -> Refusal {
    let at = error.span().map(|it| place_of(origin, text, it.start));
    let hint = "a recipe is a TOML file; `hapo list recipes` names some that come with the program";
    refused_recipe(at.unwrap_or_else(|| origin.to_owned()), "", error.message(), hint)
}

/// What is wrong with a recipe, at a key or at none: the source of its [`Refusal`].
#[derive(Debug, thiserror::Error)]
#[error("{problem} ({origin}{}{key})", if key.is_empty() { "" } else { ": " })]
pub struct RecipeProblem {
    /// File, or the override, that says it, with line and column.
    pub origin: String,
    /// The key; empty where there is none.
    pub key: String,
    pub problem: String,
}

pub(crate) fn refused_recipe(
    origin: impl Into<String>,
    key: &str,
    problem: impl Into<String>,
    hint: impl Into<Cow<'static, str>>,
) -> Refusal {
    let (origin, key, problem) = (origin.into(), key.to_owned(), problem.into());
    Refusal::because(RecipeProblem { origin, key, problem }).hint(hint)
}
