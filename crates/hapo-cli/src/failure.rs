//! How a failure ends the program: one message, a hint where there is one, an exit code.

use std::error::Error;
use std::process::ExitCode;

use hapo_core::Explain;

use crate::progress::speaks_json;

/// Wrong usage or bad input: exit code 2. Any other error is exit code 1.
#[derive(Debug)]
pub(crate) struct BadInput {
    problem: String,
    hint: Option<String>,
}

impl std::fmt::Display for BadInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.problem)
    }
}

impl Error for BadInput {}

impl Explain for BadInput {
    fn hint(&self) -> Option<String> {
        self.hint.clone()
    }

    fn is_bad_input(&self) -> bool {
        true
    }
}

/// An error of exit code 2 with something the reader can do.
pub(crate) fn bad_input(problem: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    BadInput { problem: problem.into(), hint: Some(hint.into()) }.into()
}

/// Prints the error and what to do about it; the exit code says whose fault it is. `output` is the option that names
/// the command's output.
pub(crate) fn report(error: &anyhow::Error, output: &str) -> ExitCode {
    // A reader that closed the pipe has seen what it wanted.
    if error
        .chain()
        .filter_map(|it| it.downcast_ref::<std::io::Error>())
        .any(|it| it.kind() == std::io::ErrorKind::BrokenPipe)
    {
        return ExitCode::SUCCESS;
    }
    let mut explained = error.chain().filter_map(explained);
    let hint = explained.clone().find_map(Explain::hint).map(|it| with_flags(&it, output));
    let exit_code = if explained.any(Explain::is_bad_input) { 2 } else { 1 };
    if speaks_json() {
        let message = message(error);
        let json = serde_json::json!({
            "event": "error", "message": message, "hint": hint, "exit_code": exit_code,
        });
        eprintln!("{json}");
    } else {
        eprintln!("error: {}", message(error));
        if let Some(hint) = hint {
            eprintln!("hint: {hint}");
        }
    }
    ExitCode::from(exit_code)
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
    ("another run folder", "another --run-dir"),
    (
        "resume with the changed recipe and inputs",
        "resume with what is there now by --resume --force-recipe",
    ),
    ("resume with the changed recipe", "resume with the changed recipe by --resume --force-recipe"),
    (
        "resume with a lower optim.lr",
        "resume with a lower optim.lr: --resume --force-recipe --set optim.lr=…",
    ),
    ("on the disk, then resume", "on the disk, then --resume"),
    ("name the folder with", "--data names the folder with"),
    ("evaluate on any file by itself", "any file by itself with --data FILE"),
    ("or leave bad rows out", "or leave bad rows out: hapo data check FILE --drop-bad -o OUT"),
    ("shorten the completions", "lower --max-tokens"),
    ("resume it, or", "continue it with --resume, or"),
    ("or start afresh", "or --fresh to start afresh"),
    ("start it first", "leave out --resume to start it"),
    ("set the API key", "set the key in the variable that --api-key-env names"),
    (
        "check the endpoint (it usually ends in /v1) and the model",
        "check --endpoint (it usually ends in /v1) and --model",
    ),
    (
        "check the model, the longest completion and the extra fields; a null there removes a field of the request",
        "check --model, --max-tokens and --extra; a field is removed by --extra '{\"seed\": null}'",
    ),
    (
        "resume and retry the failed attempts",
        "add --retry-failed: it resumes where it stopped and retries the failed attempts",
    ),
    ("name the folder of a run", "name the --run-dir of a `hapo train`"),
    ("port 0 takes", "--port 0 takes"),
];

/// A hint in the words of the command line; `output` is the option that names the command's output.
fn with_flags(hint: &str, output: &str) -> String {
    let mut text = hint.replace("another output", &format!("another {output}"));
    for (phrase, flag) in FLAGS {
        text = text.replace(phrase, flag);
    }
    text
}

/// What an error knows beyond its message; `None` for one of another library.
fn explained<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a dyn Explain> {
    fn of<'a, E: Error + Explain + 'static>(
        error: &'a (dyn Error + 'static),
    ) -> Option<&'a dyn Explain> {
        error.downcast_ref::<E>().map(|it| it as &dyn Explain)
    }
    None.or_else(|| of::<BadInput>(error))
        .or_else(|| of::<hapo_data::Error>(error))
        .or_else(|| of::<hapo_eval::Error>(error))
        .or_else(|| of::<hapo_hub::Error>(error))
        .or_else(|| of::<hapo_model::ComputeError>(error))
        .or_else(|| of::<hapo_model::Error>(error))
        .or_else(|| of::<hapo_model::LoadError>(error))
        .or_else(|| of::<hapo_report::Error>(error))
        .or_else(|| of::<hapo_run::Error>(error))
        .or_else(|| of::<hapo_sampler::Error>(error))
        .or_else(|| of::<hapo_serve::Error>(error))
        .or_else(|| of::<hapo_study::Error>(error))
        .or_else(|| of::<hapo_teacher::Error>(error))
        .or_else(|| of::<hapo_train::Error>(error))
}
