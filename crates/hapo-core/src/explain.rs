//! Errors that explain themselves.

use std::fmt;

/// What an error knows beyond its message. It is implemented by the error of every crate whose errors reach a user.
pub trait Explain {
    /// How to fix it, if known.
    fn hint(&self) -> Option<String> {
        self.remedy().map(|remedy| remedy.to_string())
    }

    /// The hint, where programs have options or arguments of their own for it.
    fn remedy(&self) -> Option<Remedy> {
        None
    }

    /// Whether the input is at fault rather than the machine or the program.
    fn is_bad_input(&self) -> bool;
}

macro_rules! remedies {
    ($($remedy:ident: $words:literal,)+) => {
        /// A hint that programs give by their own options or arguments; printed, it has the words of the libraries.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Remedy {
            $(#[doc = $words] $remedy,)+
        }

        impl fmt::Display for Remedy {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$remedy => $words,)+
                })
            }
        }
    };
}

remedies! {
    ResumeRun: "resume it, or choose another run folder",
    ResumeChangedRecipe: "choose another run folder, or resume with the changed recipe",
    ResumeChangedInputs: "put them back, choose another run folder, or resume with the changed recipe and inputs",
    RestoreCheckpoints: "restore the folder `checkpoints` from a copy, or choose another run folder",
    RestoreCheckpoint: "restore the folder from a copy, or choose another run folder",
    LowerLearningRate: "resume with a lower optim.lr",
    FreeDisk: "free space on the disk, then resume",
    NameBenchmarks: "name the folder with the benchmarks' files",
    WholeBenchmark: "give the benchmark's own file, or evaluate on any file by itself",
    ShortenCompletions: "remove the row, or shorten the completions",
    DropBadRows: "correct the row, or leave bad rows out",
    WaitForOutput: "wait for it, or choose another output",
    OtherOutput: "choose another output, or start afresh",
    SameSettings: "use the settings it was started with, or another output",
    SameSettingsOrAfresh: "use the settings it was started with, or another output, or start afresh",
    SameData: "use the data it was begun with, or another output",
    StartFirst: "start it first",
    SetApiKey: "set the API key",
    CheckEndpoint: "check the endpoint (it usually ends in /v1) and the model",
    CheckRequest: "check the model, the longest completion and the extra fields; a null there removes a field of the request",
    RetryFailed: "once it is up again, resume and retry the failed attempts",
    NameRun: "name the folder of a run, or a folder of such folders; `hapo quickstart` makes three in minutes",
    FreePort: "another program may hold the port; port 0 takes a free one",
}

/// A number with what it counts, and whatever of the sentence agrees with it: `1 row is`, `2 rows are`.
pub fn counted<N: std::fmt::Display + Copy + PartialEq + From<u8>>(
    n: N,
    one: &str,
    many: &str,
) -> String {
    let word = if n == N::from(1) { one } else { many };
    format!("{n} {word}")
}

/// A text as a message quotes it: its first `most` characters on one line, none of them a control character, and an
/// ellipsis where there were more.
pub fn excerpt(text: &str, most: usize) -> String {
    let mut kept = text.chars();
    let mut quoted: String = (&mut kept)
        .take(most)
        .map(|it| match it {
            it if it.is_whitespace() => ' ',
            it if it.is_control() => '\u{fffd}',
            it => it,
        })
        .collect();
    if kept.next().is_some() {
        quoted.push('…');
    }
    quoted
}

/// The message of a caught panic.
pub fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}

#[cfg(test)]
mod tests {
    use super::{counted, excerpt};

    #[test]
    fn one_is_singular_and_none_is_not() {
        let all = [0_usize, 1, 2].map(|n| counted(n, "row is", "rows are"));
        assert_eq!(all, ["0 rows are", "1 row is", "2 rows are"]);
    }

    #[test]
    fn excerpts_are_one_line_and_cut_between_characters() {
        assert_eq!(excerpt("a\nb\0", 4), "a b\u{fffd}");
        assert_eq!(excerpt("ééé", 2), "éé…");
        assert_eq!(excerpt("", 0), "");
    }
}
