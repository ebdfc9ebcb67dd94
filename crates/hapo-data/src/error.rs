use std::path::PathBuf;

use hapo_core::{Explain, Remedy};

use crate::row::BadRow;

/// An error while data are read or made. A bad row of a file is not an error but a [`BadRow`] beside the good ones.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be opened, read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// No entry of [`DATASET_LAYOUTS`](crate::DATASET_LAYOUTS) recognises the file's content.
    #[error("{}: no known dataset layout has these columns: {found}", path.display())]
    UnknownLayout {
        /// The file.
        path: PathBuf,
        /// The columns of the first row, shortened.
        found: String,
    },
    /// A file without rows.
    #[error("{}: expected rows, got none", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A folder or pattern that leaves open which files are meant, or has none.
    #[error("{}: {problem}", path.display())]
    Folder {
        /// The folder or pattern.
        path: PathBuf,
        /// The open question.
        problem: String,
    },
    /// Named columns that do not make a row.
    #[error("columns: expected {missing}")]
    Columns {
        /// The missing column.
        missing: &'static str,
    },
    /// A file that cannot be written in the form that its name promises.
    #[error("{}: expected a name that ends in {expected}", path.display())]
    Ending {
        /// The file.
        path: PathBuf,
        /// The endings there are.
        expected: &'static str,
    },
    /// None of the first rows of a file can be read.
    #[error("{first}; no row can be read")]
    NoRows {
        /// The first of them.
        first: BadRow,
    },
    /// A row that cannot be read, where each is needed.
    #[error("{0}")]
    Row(Box<BadRow>),
    /// A file that contradicts itself or is cut: nothing after this place can be read.
    #[error("{}: {}{problem}", path.display(), match row {
        Some(row) => format!("row {row}: "),
        None => String::new(),
    })]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The row, from 1, where one was being read.
        row: Option<u64>,
        /// The problem.
        problem: String,
    },
    /// A row that has no place in the layout that is written.
    #[error("{}: row {row}: {field}: {problem} has no place in this layout", path.display())]
    Unwritable {
        /// The file that was being written.
        path: PathBuf,
        /// The row of the file that was read.
        row: u64,
        /// The field.
        field: &'static str,
        /// The contents found.
        problem: String,
    },
    /// A prompt that the file holds with another template already around it, or as a dialogue.
    #[error("row {row}, id {id}: {problem}")]
    Prompt {
        /// The row of the file.
        row: u64,
        /// Its id.
        id: String,
        /// The kind of prompt, and why the template does not fit it.
        problem: String,
    },
    /// A name that is in none of the tables of this crate.
    #[error("unknown {kind} `{name}`, expected one of: {known}")]
    UnknownName {
        /// The kind of name: `template`, `family` or `layout`.
        kind: &'static str,
        /// The name that was given.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// A text or a dialogue that goes with the model's own template only.
    #[error("template `{template}` takes {problem}")]
    Template {
        /// The requested template.
        template: &'static str,
        /// Expected and given.
        problem: String,
    },
    /// A model's chat template is no template, or refuses a dialogue.
    #[error("chat template of {model}{}: {problem}", line.map_or_else(String::new, |it| format!(", line {it}")))]
    ChatTemplate {
        /// Whose template.
        model: String,
        /// The template's line, from 1, where there is one to name.
        line: Option<usize>,
        /// The problem.
        problem: String,
    },
    /// The built-in task cannot make what was asked for: a level, a number of problems, a mixture.
    #[error("{0}")]
    Task(String),
}

impl Error {
    pub(crate) fn unknown<'k>(
        kind: &'static str,
        name: &str,
        known: impl Iterator<Item = &'k str>,
    ) -> Self {
        let known = known.collect::<Vec<_>>().join(", ");
        Self::UnknownName { kind, name: name.to_owned(), known }
    }
}

impl Explain for Error {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Error::Io { .. } => "paths are relative to the current folder",
            Error::UnknownLayout { .. } => {
                "name them: --columns problem=NAME,answer=NAME, in a recipe data.columns; `hapo list layouts` has the layouts"
            }
            Error::Empty { .. } => {
                "a row has a problem and its answer: docs/guides/your-own-data.md"
            }
            Error::NoRows { .. } => "`hapo list layouts` says what the rows of each layout have",
            Error::Folder { .. } => "name a file, a folder with one data set, or a pattern",
            Error::Columns { .. } => {
                "as in problem=question, answer=final_answer, teacher=solution"
            }
            Error::Ending { .. } => "the ending says how the rows are written",
            Error::Damaged { problem, .. } if problem.contains("write the file with") => {
                "the file is whole, but this program cannot read all of Parquet"
            }
            Error::Damaged { .. } => "take the file again from where it comes",
            Error::Prompt { .. } => {
                "use the template that the file is rendered with, `none` for its prompts as they are, or \
                 `hapo data convert --to own` for the problems alone"
            }
            Error::Unwritable { .. } => "`hapo data check --drop-bad` leaves bad rows out",
            _ => return self.remedy().map(|remedy| remedy.to_string()),
        };
        Some(hint.to_owned())
    }

    fn remedy(&self) -> Option<Remedy> {
        matches!(self, Error::Row(_)).then_some(Remedy::DropBadRows)
    }

    fn is_bad_input(&self) -> bool {
        true
    }
}
