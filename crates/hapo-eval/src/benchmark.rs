//! Benchmarks and suites as data: one entry each.

use std::path::{Path, PathBuf};

use hapo_core::{Refusal, found_at};
use hapo_data::Dataset;
use hapo_data::task::{HeldOutSet, MINI6, Split, set_of};
use sha2::{Digest, Sha256};

const NAME_FOLDER: &str = "--data names the folder with the benchmarks' files";

#[derive(Clone, Copy, Debug)]
pub struct Benchmark {
    pub name: &'static str,
    /// Head of its column in tables.
    pub title: &'static str,
    pub summary: &'static str,
    /// k: completions of each problem that its score is defined by; `None` leaves it to the user.
    pub completions: Option<usize>,
    source: Source,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    Task(&'static HeldOutSet, Split),
    /// Read from a file of the user's: how many problems it holds, names under which it goes, in letters and digits
    /// alone, and who publishes it with which [`text_checksum`].
    File {
        problems: usize,
        stems: &'static [&'static str],
        texts: &'static [(&'static str, &'static str)],
    },
}

#[derive(Clone, Copy, Debug)]
pub struct Suite {
    pub name: &'static str,
    pub benchmarks: &'static [Benchmark],
    /// Longest completion, in tokens, that its scores are defined by.
    pub max_tokens: Option<usize>,
}

impl Benchmark {
    pub fn problems(&self, count: usize) -> Result<Dataset, Refusal> {
        match self.source {
            Source::Task(set, split) => set_of(set.family, set.level, split, count),
            Source::File { .. } => {
                let problem = format!("the problems of {} are read from a file", self.name);
                Err(Refusal::input(problem).hint(NAME_FOLDER))
            }
        }
    }

    pub fn is_file(&self) -> bool {
        matches!(self.source, Source::File { .. })
    }

    /// Its problems from the file in `folder` that has one of its names. Rows that repeat a problem, as files for avg@32
    /// hold them, are grouped.
    pub fn read(&self, folder: &Path) -> Result<Dataset, Refusal> {
        let name = self.name;
        let missing = |stems: &str| {
            let folder = folder.display();
            let problem = format!("no file for {name} in {folder}, expected one named {stems}");
            Refusal::input(problem).hint(NAME_FOLDER)
        };
        let Source::File { problems, stems, .. } = self.source else {
            return Err(missing("no file: it is made by the built-in task"));
        };
        let path = find(folder, stems)?.ok_or_else(|| missing(&stems.join(", ")))?;
        let loaded = hapo_data::load(&path)?;
        if let Some(bad) = loaded.bad_rows.first() {
            let problem = format!("{bad} (bad rows in all: {})", loaded.bad_row_count);
            return Err(Refusal::input(problem).hint("correct or remove the row"));
        }
        let rows = loaded.dataset.examples.len();
        let dataset = if rows == problems { loaded.dataset } else { grouped(loaded.dataset) };
        if dataset.examples.len() != problems {
            let (path, found) = (path.display(), dataset.examples.len());
            let expected = format!("expected the {problems} problems of {name}");
            let problem = format!("{path}: {expected}, found {found} in {rows} rows");
            return Err(Refusal::input(problem)
                .hint("give the benchmark's own file, or any file by itself with --data FILE"));
        }
        Ok(dataset)
    }

    /// A warning before a score on these problems is compared with a published one: their text has none of the known
    /// checksums.
    pub fn other_text(&self, dataset: &Dataset) -> Option<String> {
        let Source::File { texts, .. } = self.source else { return None };
        let found = text_checksum(dataset);
        if texts.iter().any(|it| it.1 == found) {
            return None;
        }
        let known: Vec<String> = texts.iter().map(|it| format!("{} {}", it.0, it.1)).collect();
        let (name, known) = (self.name, known.join(", "));
        Some(format!(
            "{name}: the text of the problems has checksum {found}, that of the known copies is {known}"
        ))
    }
}

/// The first 16 hexadecimal digits of the SHA-256 of the problems' texts, one a line, in their own order as texts and
/// with white space of any length as one space: neither the order of the rows nor a copy's line breaks matter.
pub fn text_checksum(dataset: &Dataset) -> String {
    let plain =
        |it: &hapo_data::Example| it.problem.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut texts: Vec<String> = dataset.examples.iter().map(plain).collect();
    texts.sort_unstable();
    let mut hash = Sha256::new();
    for it in texts {
        hash.update(it.as_bytes());
        hash.update(b"\n");
    }
    hapo_core::hex(&hash.finalize()[..8])
}

fn grouped(mut dataset: Dataset) -> Dataset {
    let mut seen = std::collections::HashSet::new();
    dataset.examples.retain(|it| seen.insert((it.problem.clone(), it.answer.clone())));
    dataset
}

/// The file whose name up to the first dot is one of `stems`; of several, the first by name.
fn find(folder: &Path, stems: &[&str]) -> Result<Option<PathBuf>, Refusal> {
    let is_named = |it: &PathBuf| {
        let name = it.file_name().and_then(|it| it.to_str()).unwrap_or("");
        let stem = name.split('.').next().unwrap_or("").chars();
        let plain: String = stem.filter(char::is_ascii_alphanumeric).collect();
        stems.contains(&plain.to_ascii_lowercase().as_str())
    };
    let mut files = hapo_run::entries(folder)?;
    files.sort();
    for file in files.into_iter().filter(is_named) {
        if found_at(&file)?.is_some_and(|it| it.is_file()) {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// `mini6`: the six held-out sets of the built-in task.
const MINI: &[Benchmark] = &[
    task(0, MINI6[0].name, Split::HeldOut, "n-digit × 1-digit products, 5 digits"),
    task(1, MINI6[1].name, Split::HeldOut, "n-digit × 1-digit products, 6 digits"),
    task(2, MINI6[2].name, Split::HeldOut, "sums of three numbers, 4 digits"),
    task(3, MINI6[3].name, Split::HeldOut, "sums of three numbers, 5 digits"),
    task(4, MINI6[4].name, Split::HeldOut, "solutions of a*x+b=c, 3 digits"),
    task(5, MINI6[5].name, Split::HeldOut, "solutions of a*x+b=c, 4 digits"),
];

/// `mini-dev`: the same six of the development split, for what is chosen: a checkpoint, a rate.
const DEVELOPMENT: &[Benchmark] = &[
    task(0, "dev-multiply-5", Split::Development, "products to choose by, 5 digits"),
    task(1, "dev-multiply-6", Split::Development, "products to choose by, 6 digits"),
    task(2, "dev-add-4", Split::Development, "sums to choose by, 4 digits"),
    task(3, "dev-add-5", Split::Development, "sums to choose by, 5 digits"),
    task(4, "dev-linear-3", Split::Development, "solutions to choose by, 3 digits"),
    task(5, "dev-linear-4", Split::Development, "solutions to choose by, 4 digits"),
];

const fn task(index: usize, name: &'static str, split: Split, summary: &'static str) -> Benchmark {
    let source = Source::Task(&MINI6[index], split);
    Benchmark { name, title: name, summary, completions: None, source }
}

/// Benchmarks that are read from files. Columns: name, title; summary; k, problems; names of files; who publishes the texts
/// with which checksum.
macro_rules! files {
    ($($name:literal, $title:literal; $summary:literal; $k:literal, $problems:literal; [$($stem:literal),*]; $text:expr;)*) => {
        &[$(Benchmark {
            name: $name,
            title: $title,
            summary: $summary,
            completions: Some($k),
            source: Source::File {
                problems: $problems,
                stems: &[$($stem),*],
                texts: &[$text],
            },
        }),*]
    };
}

/// `math6`: the paper's Table 1.
const MATH: &[Benchmark] = files! {
    "math500", "Math-500"; "MATH-500, 500 problems, pass@1; from a file"; 1, 500;
        ["math500", "math500test", "math"]; ("LUFFY", "afd36321b206cfd4");
    "olympiad", "Olympiad Bench"; "OlympiadBench, 675 problems, pass@1; from a file"; 1, 675;
        ["olympiad", "olympiadbench", "olympiadbenchmath"]; ("LUFFY", "7ac00aa605feacb2");
    "minerva", "Minerva"; "Minerva, 272 problems, pass@1; from a file"; 1, 272;
        ["minerva", "minervamath"]; ("OAT and LUFFY", "efb004107063379e");
    "aime24", "AIME24"; "AIME 2024, 30 problems, avg@32; from a file"; 32, 30;
        ["aime24", "aime2024", "aime"]; ("LUFFY", "e72bec57e47cb5ac");
    "amc", "AMC"; "AMC, 83 problems, avg@32; from a file"; 32, 83;
        ["amc", "amc23", "amc2223"]; ("OAT and LUFFY", "0ed67708c2d1c69e");
    "aime25", "AIME25"; "AIME 2025, 30 problems, avg@32; from a file"; 32, 30;
        ["aime25", "aime2025"]; ("TRAPO", "9318432afefa4c26");
};

pub const BENCHMARKS: &[Benchmark] = &{
    let mut all = [MINI[0]; 18];
    let mut i = 0;
    while i < 6 {
        all[i] = MINI[i];
        all[6 + i] = DEVELOPMENT[i];
        all[12 + i] = MATH[i];
        i += 1;
    }
    all
};

pub const SUITES: &[Suite] = &[
    Suite { name: "mini6", benchmarks: MINI, max_tokens: None },
    Suite { name: "mini-dev", benchmarks: DEVELOPMENT, max_tokens: None },
    Suite { name: "math6", benchmarks: MATH, max_tokens: Some(8192) },
];

pub fn benchmark(name: &str) -> Option<&'static Benchmark> {
    BENCHMARKS.iter().find(|it| it.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapo_data::Example;

    fn write(path: &Path, problems: usize, times: usize) {
        let example = |i: usize| Example {
            id: i.to_string(),
            problem: format!("p{}", i / times),
            answer: "1".into(),
            ..Example::default()
        };
        let mut file = std::fs::File::create(path).unwrap();
        let examples = (0..problems * times).map(example);
        examples.for_each(|it| hapo_data::write_row(&mut file, &it).unwrap());
    }

    #[test]
    fn what_is_chosen_by_is_not_what_is_reported() {
        use hapo_data::task::split_of;
        let problems = |name: &str| -> Vec<String> {
            let sets = SUITES.iter().find(|it| it.name == name).unwrap().benchmarks.iter();
            let sets = sets.flat_map(|it| it.problems(64).unwrap().examples);
            sets.map(|it| it.problem).collect()
        };
        let (chosen, reported) = (problems("mini-dev"), problems("mini6"));
        assert_eq!((chosen.len(), reported.len()), (384, 384));
        assert!(chosen.iter().all(|it| split_of(it) == Split::Development));
        assert!(reported.iter().all(|it| split_of(it) == Split::HeldOut));
    }

    #[test]
    fn the_papers_suite_has_the_papers_counts() {
        let suite = SUITES.iter().find(|it| it.name == "math6").unwrap();
        let it: Vec<(&str, Option<usize>)> =
            suite.benchmarks.iter().map(|it| (it.title, it.completions)).collect();
        let expected = [
            ("Math-500", Some(1)),
            ("Olympiad Bench", Some(1)),
            ("Minerva", Some(1)),
            ("AIME24", Some(32)),
            ("AMC", Some(32)),
            ("AIME25", Some(32)),
        ];
        assert_eq!(it, expected);
        assert_eq!(BENCHMARKS.len(), 18);
        for it in BENCHMARKS {
            assert_eq!(benchmark(it.name).unwrap().name, it.name);
        }
    }

    #[test]
    fn a_text_is_the_same_in_another_order_and_with_other_white_space() {
        let dataset = |problems: &[&str]| Dataset {
            examples: problems
                .iter()
                .map(|it| Example { problem: (*it).to_owned(), ..Example::default() })
                .collect(),
        };
        let one = text_checksum(&dataset(&["Find $x$.\n", "How  many?"]));
        assert_eq!(one, text_checksum(&dataset(&["How many?", " Find\n$x$."])));
        assert_ne!(one, text_checksum(&dataset(&["How many?", "Find $y$."])));
        // sha256("Find $x$.\nHow many?\n")
        assert_eq!(one, "01024cac0425c3a9");
    }

    #[test]
    fn files_are_found_by_name_grouped_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let aime = benchmark("aime24").unwrap();
        let message = aime.read(folder.path()).unwrap_err().to_string();
        assert!(message.starts_with("no file for aime24 in "), "{message}");
        let path = folder.path().join("AIME_2024.jsonl");
        write(&path, 30, 1);
        assert_eq!(aime.read(folder.path()).unwrap().examples.len(), 30);
        write(&path, 30, 32);
        let dataset = aime.read(folder.path()).unwrap();
        assert_eq!(dataset.examples.len(), 30);
        assert_eq!(dataset.examples[1].id, "32");
        let warning = aime.other_text(&dataset).unwrap();
        assert!(warning.contains("LUFFY e72bec57e47cb5ac"), "{warning}");
        write(&path, 29, 32);
        assert_eq!(
            aime.read(folder.path()).unwrap_err().to_string(),
            format!("{}: expected the 30 problems of aime24, found 29 in 928 rows", path.display())
        );
        write(&folder.path().join("aime25.jsonl"), 30, 1);
        assert_eq!(benchmark("aime25").unwrap().read(folder.path()).unwrap().examples.len(), 30);
    }
}
