//! The help in groups, and the key that an unknown flag stands for.

use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use hapo_train::recipe::{did_you_mean, key_of_word};

/// The commands in the groups of `hapo --help`; the last group has every other one.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Start", &["quickstart", "new", "plan", "train", "report", "runs", "doctor"]),
    ("Use a model", &["eval", "generate", "chat", "serve", "grade", "merge", "push"]),
    ("Data", &["data", "teacher", "fetch"]),
    ("Research", &["schedule", "methods", "replay", "logprobs", "export"]),
    ("Other", &[]),
];

/// Flags of other trainers that are no flags of a command with a recipe, and what to write.
const OTHER_FLAGS: [(&str, &str); 5] = [
    ("--data", "it is a key of the recipe: --set data.train=FILE"),
    ("--dry-run", "`hapo plan RECIPE` estimates a run without starting it"),
    ("--lora", "it is a section of the recipe: --set lora.rank=16"),
    ("--model", "it is a key of the recipe: --set model.path=MODEL"),
    ("--output-dir", "the folder of the run is --run-dir DIR"),
];

/// Words of other programs that are no commands, and the ones that do it.
const OTHER_COMMANDS: [(&str, &str); 2] =
    [("evaluate", "hapo eval"), ("resume", "hapo train RUN --resume")];

pub(crate) fn in_groups(command: Command) -> Command {
    let grouped = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let mut groups = String::new();
    for (title, names) in GROUPS {
        groups += &format!("{title}:\n");
        let others = command.get_subcommands().filter(|it| !it.is_hide_set());
        let rest = others.map(Command::get_name).filter(|it| names.is_empty() && !grouped(it));
        for name in names.iter().copied().chain(rest) {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            groups += &format!("  {name:<12} {about}\n");
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
    let named = |flag: &String| {
        let flag = flag.replace('_', "-");
        let hint = OTHER_FLAGS.iter().find(|(name, _)| *name == flag).map(|it| it.1.to_owned());
        let key =
            || Some(format!("it is a key of the recipe: --set {}=VALUE", key_of_word(&flag)?));
        hint.or_else(key)
    };
    let instead = flag.filter(|_| is_recipes).and_then(named);
    // The word that is in the place of a command and is none, also behind `help`.
    let is_first = error.kind() == ErrorKind::InvalidSubcommand;
    let word = arguments.iter().skip(1).find(|it| *it != "help").filter(|_| is_first);
    let word = word.and_then(|it| it.to_str());
    if let Some(word) = word.filter(|it| command.find_subcommand(it).is_none()) {
        let names: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        let other = OTHER_COMMANDS.iter().find(|(name, _)| *name == word);
        let meant = || did_you_mean(word, &names, "hapo ", "`hapo help` lists the commands");
        let hint = other.map_or_else(meant, |(_, command)| format!("write `{command}`"));
        errln!("error: there is no command `{word}`\nhint: {hint}");
        return 2;
    }
    let (Some(flag), Some(instead)) = (flag, instead) else { error.exit() };
    errln!("error: unexpected argument '{flag}'\nhint: {instead}");
    2
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    /// Words of a line of help, without what clap or we write in brackets behind it.
    fn words(help: &str) -> usize {
        help.split(" [default: ").next().unwrap_or_default().split_whitespace().count()
    }

    fn check(command: &Command, path: &str, long: &mut Vec<String>) {
        let abouts = command.get_about().into_iter().map(|it| (path.to_owned(), it.to_string()));
        let of_argument =
            |it: &clap::Arg| Some((format!("{path} {}", it.get_id()), it.get_help()?.to_string()));
        let helps = command.get_arguments().filter(|it| !it.is_hide_set()).filter_map(of_argument);
        long.extend(
            abouts
                .chain(helps)
                .filter(|(_, help)| words(help) > 15)
                .map(|(at, help)| format!("{at}: {help}")),
        );
        for it in command.get_subcommands().filter(|it| !it.is_hide_set()) {
            check(it, &format!("{path} {}", it.get_name()), long);
        }
    }

    #[test]
    fn a_line_of_help_has_at_most_15_words() {
        let mut long = Vec::new();
        for it in crate::Cli::command().get_subcommands().filter(|it| !it.is_hide_set()) {
            check(it, &format!("hapo {}", it.get_name()), &mut long);
        }
        assert!(long.is_empty(), "{}", long.join("\n"));
    }
}
