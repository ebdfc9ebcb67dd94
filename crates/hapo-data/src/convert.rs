//! A file in another layout.

use crate::dataset::{Reading, Rows, Unread, open_all};
use crate::row::Row;
use crate::write::{Format, Writer, Written};
use hapo_core::{Refusal, TokenId};
use std::path::Path;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is written, with the tokens of its admitted solution for an engine with that tokenizer.
    Write(Option<Vec<TokenId>>),
    Skip,
}

/// Writes the rows of `file` that `decide` keeps to `output`, or nothing at all.
pub fn convert<E: From<Refusal>>(
    file: &Path,
    reading: &Reading,
    output: &Path,
    format: Format,
    mut decide: impl FnMut(&Rows<'_>, &Row) -> Result<Decision, E>,
) -> Result<Converted, E> {
    let mut writer = Writer::create(output, format)?;
    let mut rows = open_all(&[file.to_owned()], reading)?;
    while let Some(row) = rows.next() {
        let row = row?;
        let Decision::Write(tokens) = decide(&rows, &row)? else { continue };
        match row {
            Row::Good(example) => writer.write_with(&example, tokens.as_deref())?,
            Row::Bad(bad) => {
                let hint = "correct the row, or leave bad rows out: hapo data check FILE --drop-bad -o OUT";
                return Err(Refusal::input(bad.to_string()).hint(hint).into());
            }
        }
    }
    let unread = std::mem::take(&mut rows.unread);
    let file = file.display().to_string();
    if writer.is_empty() && !reading.only.is_empty() {
        let refusal = Refusal::input(format!("{file}: no row meets the conditions"));
        return Err(refusal.hint("`hapo data stats` counts the sources").into());
    }
    match unread.not_whole(&file) {
        Some(refusal) => Err(refusal.into()),
        None => Ok(Converted { written: writer.finish()?, unread }),
    }
}

#[derive(Debug)]
pub struct Converted {
    pub written: Written,
    pub unread: Unread,
}

/// The largest number of solutions in a row of a file.
pub fn most_teachers(file: &Path, reading: &Reading) -> Result<usize, Refusal> {
    let mut most = 0;
    for row in open_all(&[file.to_owned()], reading)? {
        if let Row::Good(example) = row? {
            most = most.max(example.teachers.len());
        }
    }
    Ok(most)
}
