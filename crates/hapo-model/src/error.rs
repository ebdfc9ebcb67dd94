//! Errors between a folder on disk and a model in memory.
//!
//! Every variant names the file, the thing inside it, the expected and the found value, so a caller can print it
//! directly; [`Explain::hint`] says how to fix it.

use std::path::{Path, PathBuf};

use hapo_core::Explain;

/// A folder, a weight file or a tokenizer that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file system refused.
    #[error("cannot {action} {}: {cause}", file.display())]
    Io {
        /// Verb: `open`, `read`, `write`, ….
        action: &'static str,
        /// The file or folder.
        file: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// A field of `config.json` or `generation_config.json` that is missing, contradictory, or asks
    /// for something the decoder does not implement.
    #[error("expected {expected}, got {got} ({}: {field})", file.display())]
    Config {
        /// The JSON file.
        file: PathBuf,
        /// Name of the field; a dot separates levels.
        field: String,
        /// The decoder's requirement.
        expected: String,
        /// The value in the file.
        got: String,
        /// How to fix it.
        hint: Option<&'static str>,
    },
    /// Several such fields of one file.
    #[error("{} fields ask for another decoder ({}): {}", problems.len(), file.display(), listed(problems))]
    Fields {
        /// The JSON file.
        file: PathBuf,
        /// Each as [`Error::Config`] has it.
        problems: Vec<FieldProblem>,
    },
    /// A tensor that is missing, unexpected, of the wrong shape or dtype, or that holds NaN or infinite values.
    #[error("expected {expected}, got {got} ({}: {tensor})", file.display())]
    Tensor {
        /// The safetensors file, or the folder when the tensor is in none.
        file: PathBuf,
        /// Published name of the tensor.
        tensor: String,
        /// The configuration's requirement.
        expected: String,
        /// The value in the file.
        got: String,
        /// How to fix it.
        hint: Option<&'static str>,
    },
    /// A file whose bytes do not match its name: broken JSON, an incomplete safetensors header.
    #[error("expected {expected}, got {got} ({})", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The expected contents.
        expected: String,
        /// The contents found.
        got: String,
        /// How to fix it.
        hint: Option<&'static str>,
    },
    /// A tokenizer that does not fit the model, or a text it cannot encode.
    #[error("expected {expected}, got {got} ({}: {field})", file.display())]
    Tokenizer {
        /// `tokenizer.json`.
        file: PathBuf,
        /// The part of it.
        field: String,
        /// The model's requirement.
        expected: String,
        /// The value in the file.
        got: String,
        /// How to fix it.
        hint: Option<&'static str>,
    },
}

/// A field among several that cannot be used as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldProblem {
    /// Name of the field; a dot separates levels.
    pub field: String,
    /// The decoder's requirement.
    pub expected: String,
    /// The value in the file.
    pub got: String,
    /// How to fix it.
    pub hint: Option<&'static str>,
}

fn listed(problems: &[FieldProblem]) -> String {
    let each = problems.iter().map(|FieldProblem { field, expected, got, .. }| {
        format!("{field}: expected {expected}, got {got}")
    });
    each.collect::<Vec<_>>().join("; ")
}

impl Explain for Error {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Fields { problems, .. } => problems.iter().find_map(|it| it.hint),
            Self::Config { hint, .. }
            | Self::Tensor { hint, .. }
            | Self::Malformed { hint, .. }
            | Self::Tokenizer { hint, .. } => *hint,
            Self::Io { cause, .. } if cause.kind() == std::io::ErrorKind::NotFound => Some(
                "a model folder holds config.json, tokenizer.json and model.safetensors (or shards with an index)",
            ),
            Self::Io { .. } => None,
        };
        hint.map(str::to_owned)
    }

    fn is_bad_input(&self) -> bool {
        true
    }
}

impl Error {
    /// The file or folder of the error.
    pub fn file(&self) -> &Path {
        match self {
            Self::Io { file, .. }
            | Self::Config { file, .. }
            | Self::Fields { file, .. }
            | Self::Tensor { file, .. }
            | Self::Malformed { file, .. }
            | Self::Tokenizer { file, .. } => file,
        }
    }

    /// One error of several fields of one file; errors of another kind go first.
    pub(crate) fn of_fields(errors: Vec<Self>) -> Option<Self> {
        let mut problems = Vec::new();
        let mut path = None;
        let mut only = None;
        for it in errors {
            let Self::Config { file, field, expected, got, hint } = it else {
                return Some(it);
            };
            problems.push(FieldProblem {
                field: field.clone(),
                expected: expected.clone(),
                got: got.clone(),
                hint,
            });
            path.get_or_insert_with(|| file.clone());
            only = Some(Self::Config { file, field, expected, got, hint });
        }
        match (problems.len(), path) {
            (0 | 1, _) | (_, None) => only,
            (_, Some(file)) => Some(Self::Fields { file, problems }),
        }
    }

    pub(crate) fn io(action: &'static str, file: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let file = file.to_owned();
        move |cause| Self::Io { action, file, cause }
    }
}

/// At most the first 80 characters, so that a hostile file cannot fill the terminal.
pub(crate) fn excerpt(text: &str) -> String {
    hapo_core::excerpt(text, 80)
}
