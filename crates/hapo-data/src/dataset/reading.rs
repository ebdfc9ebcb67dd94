//! What the user says about the columns of files.

use crate::layouts::{Columns, NamedColumns, at};
use crate::value::{Object, Value};
use hapo_core::{Refusal, expected};
use std::collections::BTreeSet;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Names of the columns, where no layout fits.
    pub columns: Option<Columns>,
    /// Columns that are left out. A name with dots leads into structures.
    pub drop: Vec<String>,
    /// Rows that meet all of these are read, the others passed over.
    pub only: Vec<Only>,
    /// True if every row is kept as JSON in [`Example::fields`](crate::Example::fields), for a custom reward.
    pub keeps_fields: bool,
}

/// A value of a column, or a range of numbers with both ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Only {
    column: String,
    value: String,
    range: Option<std::ops::RangeInclusive<f64>>,
}

impl Reading {
    pub(super) fn named(&self) -> NamedColumns {
        let columns = self.columns.iter().flat_map(Columns::names);
        let only = self.only.iter().map(|it| it.column.as_str());
        let names = columns.chain(self.drop.iter().map(String::as_str)).chain(only);
        NamedColumns { missing: names.map(str::to_owned).collect(), present: BTreeSet::new() }
    }

    pub(super) fn takes(&self, row: &Object) -> bool {
        self.only.iter().all(|it| it.takes(row))
    }

    pub(super) fn without_dropped(&self, row: &mut Object) {
        for name in &self.drop {
            remove(row, name);
        }
    }
}

impl Only {
    /// Reads `COLUMN=VALUE` or `COLUMN=FROM..TO`.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let hint = "as in data_source=aime or level=3..5";
        let wanted = || expected("COLUMN=VALUE or COLUMN=FROM..TO").about("where").hint(hint);
        let (column, value) = text.split_once('=').ok_or_else(wanted)?;
        let ends = value.split_once("..").and_then(|(from, to)| number(from).zip(number(to)));
        let (column, value) = (column.to_owned(), value.to_owned());
        Ok(Self { column, value, range: ends.map(|(from, to)| from..=to) })
    }

    fn takes(&self, row: &Object) -> bool {
        let text = match at(row, &self.column) {
            Some(Value::Text(text) | Value::Number(text)) => text.clone(),
            Some(Value::Bool(it)) => it.to_string(),
            _ => return false,
        };
        match &self.range {
            None => text.trim() == self.value,
            Some(range) => number(&text).is_some_and(|it| range.contains(&it)),
        }
    }
}

/// The number that a text is, or ends in: MATH's levels are `Level 5`.
fn number(text: &str) -> Option<f64> {
    text.split_whitespace().next_back()?.parse().ok()
}

fn remove(row: &mut Object, name: &str) {
    if row.has(name) {
        row.0.retain(|it| it.0 != name);
    } else if let Some((first, rest)) = name.split_once('.')
        && let Some((_, Value::Object(inner))) = row.0.iter_mut().find(|it| it.0 == first)
    {
        remove(inner, rest);
    }
}
