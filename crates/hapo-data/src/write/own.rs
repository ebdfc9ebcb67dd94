//! Our own layout, row by row.

use crate::example::Example;
use serde::{Serialize, Serializer};
use std::io::{self, Write};

pub(super) const SCHEMA: &str = "message schema {
    optional binary id (STRING); optional binary problem (STRING); optional binary answer (STRING);
    optional group teacher (LIST) { repeated group list { optional binary element (STRING); } }
    optional binary source (STRING); optional binary level (STRING); optional binary subject (STRING);
}";

/// Writes one example as one line, fields in the order of the layout, absent ones left out.
pub fn write_row(writer: &mut impl Write, example: &Example) -> io::Result<()> {
    let fields = WrittenRow {
        id: &example.id,
        problem: &example.problem,
        answer: example.golds().collect(),
        teacher: example.teachers.iter().map(String::as_str).collect(),
        source: example.source.as_deref(),
        level: example.level.as_deref(),
        subject: example.subject.as_deref(),
    };
    serde_json::to_writer(&mut *writer, &fields)?;
    writer.write_all(b"\n")
}

#[derive(Serialize)]
struct WrittenRow<'a> {
    id: &'a str,
    problem: &'a str,
    #[serde(serialize_with = "one_or_several")]
    answer: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "one_or_several")]
    teacher: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
}

fn one_or_several<S: Serializer>(texts: &[&str], serializer: S) -> Result<S::Ok, S::Error> {
    match texts {
        [only] => only.serialize(serializer),
        several => several.serialize(serializer),
    }
}
