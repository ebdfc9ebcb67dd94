//! The rows of a file, or of several one after the other, under the layout that their content has.

use super::reading::Reading;
use super::unread::{Unread, count};
use super::{Example, first_bytes};
use crate::container::{self, Container, Opened, RawRow, RawRows};
use crate::layouts::{self, DATASET_LAYOUTS, Layout, NamedColumns};
use crate::refuse::{Result, of_file};
use crate::row::{BadRow, Row};
use crate::value::{Fault, Object, Value, fault, shorten, without_exponent};
use hapo_core::Refusal;
use sha2::{Digest, Sha256};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};

/// Rows that are read to find the layout.
const HEAD_ROWS: usize = 64;

/// The rows of one or several files, one by one, in their order. An error ends them, a bad row does not.
pub struct Rows<'a> {
    file: String,
    further: VecDeque<PathBuf>,
    /// Where the user names no columns, a file is recognised by its first rows.
    reading: Reading,
    /// Rows, or lines, of the files before this one.
    base: u64,
    last: u64,
    /// The layout of the file; of several, of the one at hand.
    pub layout: &'static Layout,
    pub container: Container,
    /// `gzip` or `zstd`, where the whole file is compressed.
    pub compression: Option<&'static str>,
    head: VecDeque<Result<RawRow>>,
    rest: RawRows<'a>,
    ended: bool,
    ids: HashMap<u128, u64>,
    /// Fields of the rows so far that are not read.
    pub unread: Unread,
    /// Gold answers that were a number in e-notation and are plain digits now.
    pub e_notation: u64,
    /// The columns that are named, and what the rows so far have.
    pub named_columns: NamedColumns,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(
        path: &Path,
        layout: &'static Layout,
        head: VecDeque<Result<RawRow>>,
        opened: Opened<'a>,
    ) -> Self {
        let Opened { container, compression, rows: rest } = opened;
        Rows {
            file: path.display().to_string(),
            further: VecDeque::new(),
            reading: Reading::default(),
            base: 0,
            last: 0,
            layout,
            container,
            compression,
            head,
            rest,
            ended: false,
            ids: HashMap::new(),
            unread: Unread::default(),
            e_notation: 0,
            named_columns: NamedColumns::default(),
        }
    }

    /// The rows of files, one after the other; each has a layout of its own.
    pub(super) fn of_files(files: Vec<PathBuf>, reading: &Reading) -> Result<Rows<'static>> {
        let mut further = VecDeque::from(files);
        let first = further.pop_front().expect("a data set has a file");
        let mut rows = Rows::begin(container::open(&first)?, &first, reading)?;
        rows.further = further;
        Ok(rows)
    }

    /// Looks at the first rows and finds the layout that fits them best, unless one is given.
    pub(super) fn begin(
        mut opened: Opened<'static>,
        path: &Path,
        reading: &Reading,
    ) -> Result<Rows<'static>> {
        let mut head = VecDeque::new();
        while reading.columns.is_none() && head.len() < HEAD_ROWS {
            let Some(row) = opened.rows.next() else { break };
            let ends = row.is_err();
            head.push_back(row);
            if ends {
                break;
            }
        }
        let layout = match &reading.columns {
            Some(_) => &layouts::COLUMNS,
            None => recognise(&mut head, opened.container, path, reading)?,
        };
        let (reading, named_columns) = (reading.clone(), reading.named());
        Ok(Rows { reading, named_columns, ..Rows::new(path, layout, head, opened) })
    }

    /// Opens the next file; `false` when there is none.
    fn next_file(&mut self) -> Result<bool> {
        let Some(path) = self.further.pop_front() else { return Ok(false) };
        let Rows { file, layout, container, compression, head, rest, .. } =
            Rows::begin(container::open(&path)?, &path, &self.reading)?;
        self.base += std::mem::take(&mut self.last);
        (self.file, self.layout, self.container) = (file, layout, container);
        (self.compression, self.head, self.rest) = (compression, head, rest);
        Ok(true)
    }

    /// A row of this file as a bad one, for callers that refuse it: a gold answer that no grader can read.
    pub fn bad_row(&self, row: u64, field: &str, expected: &str, got: &str) -> BadRow {
        self.bad(row, fault(field, expected, got))
    }

    fn bad(&self, row: u64, fault: Fault) -> BadRow {
        bad_row(self.file.clone(), row, self.container, fault)
    }

    /// The example of a row; nothing of a row that is passed over.
    fn read(&mut self, raw: RawRow) -> Result<Option<Example>, Fault> {
        self.last = raw.number;
        let mut fields = raw.fields?;
        self.named_columns.add(&fields);
        if !self.reading.takes(&fields) {
            return Ok(None);
        }
        let kept = self.reading.keeps_fields.then(|| fields.clone());
        self.reading.without_dropped(&mut fields);
        let columns = self.reading.columns.as_ref();
        let whole = if columns.is_none() { layouts::whole(&fields)? } else { None };
        let fields = whole.as_ref().map_or(&fields, |it| &it.row);
        let layout = self.layout;
        let is_known = |name: &str| match columns {
            Some(columns) => columns.reads(name),
            None => layout.knows(name),
        };
        for (index, (name, _)) in fields.0.iter().enumerate() {
            if is_known(name) && fields.0[..index].iter().any(|it| it.0 == *name) {
                return Err(fault(name, "the field once", "it twice"));
            }
        }
        let read = match columns {
            Some(columns) => columns.read(fields),
            None => layout.read(fields),
        };
        let mut example = read.map_err(|fault| with_unread(fault, fields, is_known))?;
        example.row = raw.number;
        for gold in std::iter::once(&mut example.answer).chain(&mut example.other_answers) {
            if let Some(digits) = without_exponent(gold) {
                *gold = digits;
                self.e_notation += 1;
            }
        }
        example.fields = kept.map(|it| serde_json::Value::from(it.into_json()).to_string());
        for (name, value) in &fields.0 {
            if !is_known(name) {
                self.unread.add(name, value);
            } else if columns.is_none() && layouts::only_says_the_answer(&example, fields, name) {
                count(&mut self.unread.unread_solutions, name);
            } else if columns.is_none() && layout.leaves_out(name, value) {
                count(&mut self.unread.labels_left_out, name);
            } else if matches!(value, Value::Object(_)) {
                self.unread.add_questions(name, value);
            }
        }
        // The layout may have read another column as the problem.
        if let Some(it) = whole.filter(|it| !example.problem.contains(&it.question)) {
            it.parts.iter().for_each(|name| count(&mut self.unread.unread_questions, name));
        }
        self.set_id(&mut example)?;
        Ok(Some(example))
    }

    /// An id belongs to one row. A row without an id gets the number of its row; one with the id of another row gets that
    /// number behind it, but in a file of the native layout, where it is a fault.
    fn set_id(&mut self, example: &mut Example) -> Result<(), Fault> {
        let is_own = self.layout.name == layouts::OWN.name;
        let number = self.base + example.row;
        if example.id.is_empty() {
            example.id = format!("row-{number}");
        }
        let hash = |id: &str| first_bytes(&Sha256::digest(id));
        match self.ids.entry(hash(&example.id)) {
            Entry::Vacant(entry) => {
                entry.insert(number);
            }
            Entry::Occupied(entry) if is_own && *entry.get() > self.base => {
                let unit = if self.container == Container::JsonLines { "line" } else { "row" };
                let row = entry.get() - self.base;
                let expected = format!("an id of its own ({unit} {row} has this one)");
                let got = shorten(&format!("{:?}", example.id));
                return Err(fault("id", &expected, &got));
            }
            Entry::Occupied(_) => {
                example.id = format!("{}#{number}", example.id);
                self.ids.insert(hash(&example.id), number);
            }
        }
        Ok(())
    }
}

/// A field that is missing may be there under another name.
fn with_unread(mut fault: Fault, fields: &Object, is_known: impl Fn(&str) -> bool) -> Fault {
    let names = || fields.0.iter().map(|it| it.0.as_str());
    let unread: Vec<&str> = names().filter(|name| !is_known(name)).take(8).collect();
    if !unread.is_empty() && names().all(|name| name != fault.field) {
        fault.got += &format!("; fields that are not read: {}", unread.join(", "));
    }
    fault
}

fn bad_row(file: String, row: u64, container: Container, fault: Fault) -> BadRow {
    let Fault { field, expected, got } = fault;
    BadRow { file, row, is_line: container == Container::JsonLines, field, expected, got }
}

impl Iterator for Rows<'_> {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        loop {
            let next = match self.head.pop_front().or_else(|| self.rest.next()) {
                Some(it) => it,
                None => match self.next_file() {
                    Ok(true) => continue,
                    Ok(false) => return None,
                    Err(error) => Err(error),
                },
            };
            let raw = match next {
                Ok(raw) => raw,
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            };
            let number = raw.number;
            match self.read(raw) {
                Ok(None) => {}
                Ok(Some(example)) => return Some(Ok(Row::Good(example))),
                Err(fault) => return Some(Ok(Row::Bad(self.bad(number, fault)))),
            }
        }
    }
}

fn recognise(
    head: &mut VecDeque<Result<RawRow>>,
    container: Container,
    path: &Path,
    reading: &Reading,
) -> Result<&'static Layout> {
    let rows = head.iter().filter_map(|it| it.as_ref().ok()?.fields.as_ref().ok());
    let objects: Vec<Object> = rows
        .map(|it| {
            let mut row = it.clone();
            reading.without_dropped(&mut row);
            layouts::whole(&row).ok().flatten().map_or(row, |it| it.row)
        })
        .collect();
    if let Some(what) = objects.first().and_then(judged) {
        let hint = "no method here learns from them; --columns problem=NAME,teacher=NAME reads a column, such as chosen, as solutions";
        return Err(of_file(path, format!("the rows are {what}"), hint));
    }
    let mut best: Option<(&Layout, u64)> = None;
    for layout in DATASET_LAYOUTS {
        let fit = objects.iter().map(|it| u64::from(layout.fit(it, container))).sum();
        if fit > best.map_or(0, |it| it.1) {
            best = Some((layout, fit));
        }
    }
    if let Some((layout, _)) = best {
        return Ok(layout);
    }
    let columns = objects.first().map(|row| {
        let keys: Vec<_> = row.0.iter().map(|it| it.0.as_str()).collect();
        shorten(&keys.join(", "))
    });
    // Where no row can be read, the reason of the first says more than the list of layouts.
    if let Some(RawRow { number, fields }) = head.pop_front().transpose()?
        && let Err(fault) = fields.and_then(|row| layouts::whole(&row))
    {
        let first = bad_row(path.display().to_string(), number, container, fault);
        let refusal = Refusal::input(format!("{first}; no row can be read"));
        return Err(refusal.hint("`hapo list layouts` says what the rows of each layout have"));
    }
    let Some(found) = columns else {
        let hint = "a row has a problem and its answer: docs/guides/your-own-data.md";
        return Err(of_file(path, "expected rows, got none", hint));
    };
    if let Some(name) = objects.first().and_then(wrapper) {
        let problem = format!("the rows are in a list of their own, `{name}`");
        let hint = "write one row a line: jq -c '.NAME[]' FILE > rows.jsonl";
        return Err(of_file(path, problem, hint));
    }
    let problem = format!("no known dataset layout has these columns: {found}");
    let hint = "name them: --columns problem=NAME,answer=NAME, in a recipe data.columns; `hapo list layouts` has the layouts";
    Err(of_file(path, problem, hint))
}

/// The kind of rows that compare texts and have no answer.
fn judged(row: &Object) -> Option<&'static str> {
    let begins = |word: &str| row.0.iter().any(|it| it.0.to_lowercase().starts_with(word));
    let is_judged = |name: &str| match row.get(name) {
        Some(Value::Bool(_)) => true,
        Some(Value::List(items)) => matches!(items.first(), Some(Value::Bool(_))),
        _ => false,
    };
    let has_answer = ["answer", "solution", "ground_truth"].iter().any(|it| row.some(it).is_some());
    if begins("chosen") && begins("rejected") && !has_answer {
        return Some("preference pairs (chosen, rejected)");
    }
    let is_judged = is_judged("label") || is_judged("labels");
    (is_judged && begins("completion")).then_some("judged completions (completion, label)")
}

/// The field of a whole file in one object that has its rows.
fn wrapper(row: &Object) -> Option<&str> {
    let is_rows = |value: &Value| matches!(value, Value::List(items) if matches!(items.first(), Some(Value::Object(_))));
    row.0.iter().find(|it| is_rows(&it.1)).map(|it| it.0.as_str())
}
