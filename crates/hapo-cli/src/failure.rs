//! How a failure ends the program: one message, a hint where there is one, an exit code.

use std::process::ExitCode;

use hapo_core::Explain;

/// Wrong usage or bad input: exit code 2. Any other error is exit code 1.
#[derive(Debug)]
pub(crate) struct BadInput {
    pub(crate) problem: String,
    pub(crate) hint: Option<String>,
}

impl std::fmt::Display for BadInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for BadInput {}

/// An error of exit code 2 with something the reader can do.
pub(crate) fn bad_input(problem: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    BadInput {
        problem: problem.into(),
        hint: Some(hint.into()),
    }
    .into()
}

/// Prints the error and what to do about it; the exit code says whose fault it is.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    // A reader that closed the pipe has seen what it wanted.
    if error
        .chain()
        .filter_map(|it| it.downcast_ref::<std::io::Error>())
        .any(|it| it.kind() == std::io::ErrorKind::BrokenPipe)
    {
        return ExitCode::SUCCESS;
    }
    eprintln!("error: {}", message(error));
    if let Some(hint) = hint_of(error) {
        eprintln!("hint: {}", with_flags(&hint));
    }
    if is_bad_input(error) {
        ExitCode::from(2)
    } else {
        ExitCode::FAILURE
    }
}

/// The error and its causes, each said once: many errors already quote the one below them.
fn message(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for it in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = it;
        } else if !text.contains(&it) {
            text += &format!(": {it}");
        }
    }
    text
}

/// What the command line calls the things that the libraries' hints name.
const FLAGS: &[(&str, &str)] = &[
    ("another record", "another --out"),
    ("name the folder with", "--data names the folder with"),
    (
        "evaluate on any file by itself",
        "any file by itself with --data FILE",
    ),
    (
        "or leave bad rows out",
        "or leave bad rows out: hapo data check FILE --drop-bad -o OUT",
    ),
    ("shorten the completions", "lower --max-tokens"),
];

/// A hint in the words of the command line.
fn with_flags(hint: &str) -> String {
    let mut text = hint.to_owned();
    for (phrase, flag) in FLAGS {
        text = text.replace(phrase, flag);
    }
    text
}

fn hint_of(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|it| {
        if let Some(it) = it.downcast_ref::<BadInput>() {
            it.hint.clone()
        } else if let Some(it) = it.downcast_ref::<hapo_train::Error>() {
            it.hint()
        } else if let Some(it) = it.downcast_ref::<hapo_hub::Error>() {
            it.hint()
        } else if let Some(it) = it.downcast_ref::<hapo_model::Error>() {
            it.hint()
        } else if let Some(it) = it.downcast_ref::<hapo_data::Error>() {
            it.hint()
        } else if let Some(it) = it.downcast_ref::<hapo_eval::Error>() {
            it.hint()
        } else if let Some(it) = it.downcast_ref::<hapo_study::Error>() {
            it.hint()
        } else if let Some(it) = it.downcast_ref::<hapo_teacher::Error>() {
            it.hint()
        } else if let Some(it) = it.downcast_ref::<hapo_report::Error>() {
            it.hint()
        } else {
            None
        }
    })
}

fn is_bad_input(error: &anyhow::Error) -> bool {
    error.chain().any(|it| {
        it.is::<BadInput>()
            || it.is::<hapo_model::Error>()
            || it.is::<hapo_data::Error>()
            || it
                .downcast_ref::<hapo_hub::Error>()
                .is_some_and(hapo_hub::Error::is_bad_input)
            || it
                .downcast_ref::<hapo_sampler::Error>()
                .is_some_and(hapo_sampler::Error::is_bad_input)
            || it
                .downcast_ref::<hapo_train::Error>()
                .is_some_and(hapo_train::Error::is_bad_input)
            || it
                .downcast_ref::<hapo_eval::Error>()
                .is_some_and(hapo_eval::Error::is_bad_input)
            || it
                .downcast_ref::<hapo_study::Error>()
                .is_some_and(hapo_study::Error::is_bad_input)
            || it
                .downcast_ref::<hapo_teacher::Error>()
                .is_some_and(hapo_teacher::Error::is_bad_input)
            || it
                .downcast_ref::<hapo_report::Error>()
                .is_some_and(hapo_report::Error::is_bad_input)
    })
}
