use std::path::PathBuf;

/// What can go wrong while data are read or made. A bad row of a file is no error but a
/// [`BadRow`](crate::BadRow) beside the good ones.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be opened, read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// No entry of [`DATASET_LAYOUTS`](crate::DATASET_LAYOUTS) recognises the file's content.
    #[error("{}: no known dataset layout, expected one of: {known}", path.display())]
    UnknownLayout {
        /// The file.
        path: PathBuf,
        /// Names and keys of the known layouts.
        known: String,
    },
    /// A name that is in none of the tables of this crate.
    #[error("unknown {kind} `{name}`, expected one of: {known}")]
    UnknownName {
        /// What was looked up: `template`, `family` or `layout`.
        kind: &'static str,
        /// The name that was given.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// A text that goes with the model's own template only.
    #[error("template `{template}` takes no {what}, only template `chat` does")]
    TemplateText {
        /// The template that was asked for.
        template: &'static str,
        /// Which text.
        what: &'static str,
    },
    /// A dialogue for a template that stands around one problem.
    #[error("template `{template}` takes one user turn, got: {got}")]
    Dialogue {
        /// The template.
        template: &'static str,
        /// The roles of the dialogue.
        got: String,
    },
    /// A model's chat template is no template, or refuses a dialogue.
    #[error("chat template of {model}{}: {problem}", line.map_or_else(String::new, |it| format!(", line {it}")))]
    ChatTemplate {
        /// Whose template.
        model: String,
        /// The template's line, from 1, where there is one to name.
        line: Option<usize>,
        /// What is wrong.
        problem: String,
    },
    /// A family of the built-in task has no such level.
    #[error("family `{family}` has no level {level}, expected {min} to {max}")]
    Level {
        /// The family.
        family: &'static str,
        /// The level that was asked for.
        level: u32,
        /// Its easiest level.
        min: u32,
        /// Its hardest level.
        max: u32,
    },
    /// More distinct problems were asked for than the split of this level was found to hold.
    #[error(
        "family `{family}` level {level}: expected {wanted} distinct {split} problems, found {found}"
    )]
    TooFewProblems {
        /// The family.
        family: &'static str,
        /// The level.
        level: u32,
        /// The split.
        split: &'static str,
        /// How many were asked for.
        wanted: usize,
        /// How many were found.
        found: usize,
    },
    /// A number of a mixture or a set is out of its range.
    #[error("{what}: expected {expected}, got {got}")]
    Number {
        /// Which number.
        what: String,
        /// The range it must lie in.
        expected: &'static str,
        /// What was given.
        got: f64,
    },
}
