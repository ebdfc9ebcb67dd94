//! The help in groups, and the key that an unknown flag stands for.

use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use hapo_train::recipe::{did_you_mean, key_of_word};

/// The commands in the groups of `hapo --help`; the last group has every other one.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Start", &["quickstart", "new", "plan", "train", "watch", "report", "runs"]),
    ("Use a model", &["eval", "generate", "chat", "serve", "grade", "merge", "push"]),
    ("Data", &["data", "teacher", "fetch"]),
    ("Research", &["schedule", "methods", "replay", "logprobs", "conformance", "export"]),
    ("Other", &[]),
];

/// The command line, its help in groups.
pub(crate) fn in_groups(command: Command) -> Command {
    let grouped = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let mut groups = String::new();
    for (title, names) in GROUPS {
        groups += &format!("{title}:\n");
        let others = command.get_subcommands().filter(|it| !it.is_hide_set());
        let others: Vec<&str> = others.map(Command::get_name).collect();
        let rest = others.into_iter().filter(|it| names.is_empty() && !grouped(it));
        for name in names.iter().copied().chain(rest) {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            groups +=
                &format!("  {name:<12} {}\n", about.map(ToString::to_string).unwrap_or_default());
        }
        groups.push('\n');
    }
    command.help_template(format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
    ))
}

/// Prints what is wrong with the arguments; a flag that is a key of a recipe, or another trainer's word for one, is shown
/// as `--set` takes it.
pub(crate) fn refuse(error: &clap::Error, command: &Command, arguments: &[OsString]) -> u8 {
    let flag = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(it)) if error.kind() == ErrorKind::UnknownArgument => Some(it),
        _ => None,
    };
    let takes_set = |it: &Command| it.get_arguments().any(|it| it.get_long() == Some("set"));
    let is_recipes = command
        .get_subcommands()
        .any(|it| arguments.get(1).is_some_and(|word| word == it.get_name()) && takes_set(it));
    let key = flag.filter(|_| is_recipes).and_then(|it| key_of_word(it));
    if let Some(word) = unknown_command(error, command, arguments) {
        let names: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        let hint = did_you_mean(word, &names, "hapo ", "`hapo help` lists the commands");
        errln!("error: there is no command `{word}`\nhint: {hint}");
        return 2;
    }
    match (flag, key) {
        (Some(flag), Some(key)) => {
            errln!(
                "error: unexpected argument '{flag}'\nhint: it is a key of the recipe: --set {key}=VALUE"
            );
            2
        }
        _ => error.exit(),
    }
}

/// The word that is in the place of a command and is none, also behind `help`.
fn unknown_command<'a>(
    error: &clap::Error,
    command: &Command,
    arguments: &'a [OsString],
) -> Option<&'a str> {
    let is_first = error.kind() == ErrorKind::InvalidSubcommand;
    let word = arguments.iter().skip(1).find(|it| *it != "help").filter(|_| is_first)?.to_str()?;
    command.find_subcommand(word).is_none().then_some(word)
}
