//! How a failure ends the program: one message, a hint where there is one, an exit code.

use hapo_core::{Hint, Refusal, Remedy};

use crate::progress::speaks_json;

/// An error of exit code 2 with something the reader can do.
pub fn bad_input(problem: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    Refusal::input(problem.into()).hint(hint.into()).into()
}

/// Prints the error and what to do about it, and gives the exit code, which says whose fault it is. `output` is the
/// option that names the command's output.
pub fn report(error: &anyhow::Error, output: &str) -> u8 {
    // A reader that closed the pipe has seen what it wanted.
    if error
        .chain()
        .filter_map(|it| it.downcast_ref::<std::io::Error>())
        .any(|it| it.kind() == std::io::ErrorKind::BrokenPipe)
    {
        return 0;
    }
    let hint = hint(error, output);
    // The outermost refusal knows best. An error of another library is no fault of the input.
    let exit_code = if refusals(error).next().is_some_and(Refusal::is_bad_input) { 2 } else { 1 };
    if speaks_json() {
        let message = message(error);
        let json = serde_json::json!({
            "event": "error", "message": message, "hint": hint, "exit_code": exit_code,
        });
        errln!("{json}");
    } else {
        errln!("error: {}", message(error));
        if let Some(hint) = hint {
            errln!("hint: {hint}");
        }
    }
    exit_code
}

/// What the reader can do, by the options of the command line.
pub fn hint(error: &anyhow::Error, output: &str) -> Option<String> {
    refusals(error).find_map(Refusal::how_to_mend).map(|hint| match hint {
        Hint::Remedy(remedy) => by_options(*remedy, output),
        Hint::Text(text) => text.to_string(),
    })
}

fn refusals(error: &anyhow::Error) -> impl Iterator<Item = &Refusal> {
    error.chain().filter_map(|cause| cause.downcast_ref())
}

/// The error and its causes, each said once: many errors already quote the one below them.
pub fn message(error: &anyhow::Error) -> String {
    once(&error.chain().map(ToString::to_string).collect::<Vec<_>>())
}

/// Texts joined by colons, without those that an earlier one quotes.
pub(crate) fn once(texts: &[String]) -> String {
    let mut text = String::new();
    for it in texts {
        if text.is_empty() {
            text.clone_from(it);
        } else if !text.contains(it) {
            text += &format!(": {it}");
        }
    }
    text
}

/// A remedy by the options of the command line; `output` is the one that names the command's output.
fn by_options(remedy: Remedy, output: &str) -> String {
    let text = match remedy {
        Remedy::ResumeRun => "continue it with --resume, or choose another --run-dir",
        Remedy::ResumeChangedRecipe => {
            "choose another --run-dir, or resume with the changed recipe by --resume --force-recipe"
        }
        Remedy::ResumeChangedInputs => {
            "put them back, choose another --run-dir, or resume with what is there now by --resume --force-recipe"
        }
        Remedy::RestoreCheckpoints => {
            "restore the folder `checkpoints` from a copy, or choose another --run-dir"
        }
        Remedy::RestoreCheckpoint => "restore the folder from a copy, or choose another --run-dir",
        Remedy::LowerLearningRate => {
            "resume with a lower optim.lr: --resume --force-recipe --set optim.lr=…"
        }
        Remedy::FreeDisk => "free space on the disk, then --resume",
        Remedy::NameBenchmarks => "--data names the folder with the benchmarks' files",
        Remedy::WholeBenchmark => {
            "give the benchmark's own file, or any file by itself with --data FILE"
        }
        Remedy::ShortenCompletions => "remove the row, or lower --max-tokens",
        Remedy::DropBadRows => {
            "correct the row, or leave bad rows out: hapo data check FILE --drop-bad -o OUT"
        }
        Remedy::WaitForOutput => return format!("wait for it, or choose another {output}"),
        Remedy::OtherOutput => {
            return format!("choose another {output}, or --fresh to start afresh");
        }
        Remedy::SameSettings => {
            return format!("use the settings it was started with, or another {output}");
        }
        Remedy::SameSettingsOrAfresh => {
            return format!(
                "use the settings it was started with, or another {output}, or --fresh to start afresh"
            );
        }
        Remedy::SameData => return format!("use the data it was begun with, or another {output}"),
        Remedy::StartFirst => "leave out --resume to start it",
        Remedy::SetApiKey => "set the key in the variable that --api-key-env names",
        Remedy::CheckEndpoint => "check --endpoint (it usually ends in /v1) and --model",
        Remedy::CheckRequest => {
            "check --model, --max-tokens and --extra; a field is removed by --extra '{\"seed\": null}'"
        }
        Remedy::RetryFailed => {
            "once it is up again, add --retry-failed: it resumes where it stopped and retries the failed attempts"
        }
        Remedy::NameRun => {
            "name the --run-dir of a `hapo train`, or a folder of such folders; `hapo quickstart` makes three in minutes"
        }
    };
    text.to_owned()
}
