//! How a failure ends the program: one message, a hint where there is one, an exit code.

use hapo_core::Refusal;

/// An error of exit code 2 with something the reader can do.
pub fn bad_input(problem: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    Refusal::input(problem.into()).hint(hint.into()).into()
}

/// Prints the error and what to do about it, and gives the exit code, which says whose fault it is. `output` is the
/// option that names the command's output.
pub fn report(error: &anyhow::Error, output: &str) -> u8 {
    let mut faults = error.chain().filter_map(|it| it.downcast_ref::<std::io::Error>());
    // A reader that closed the pipe has seen what it wanted.
    if faults.any(|it| it.kind() == std::io::ErrorKind::BrokenPipe) {
        return 0;
    }
    let (message, hint) = (message(error), hint(error, output));
    // The outermost refusal knows best. An error of another library is no fault of the input.
    let exit_code = if refusals(error).next().is_some_and(Refusal::is_bad_input) { 2 } else { 1 };
    if crate::progress::speaks_json() {
        let json = serde_json::json!({
            "event": "error", "message": message, "hint": hint, "exit_code": exit_code,
        });
        errln!("{json}");
    } else {
        errln!("error: {message}");
        if let Some(hint) = hint {
            errln!("hint: {hint}");
        }
    }
    exit_code
}

/// What the reader can do; `output` is the option that names the command's output.
pub fn hint(error: &anyhow::Error, output: &str) -> Option<String> {
    let hint = refusals(error).find_map(Refusal::how_to_mend)?;
    Some(hint.replace("another output", &format!("another {output}")))
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
