//! `hapo data`: what a file of problems holds, which of its rows are bad, and the same in another layout.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use hapo_data::{BadRow, Example, Format, Row, Rows, Template, Writer, question_hash};
use hapo_model::Tokenizer;
use hapo_verify::{Gold, Grader};
use serde::Serialize;

use crate::failure::bad_input;
use crate::support::model;

/// Look at files of problems, check them, convert them.
///
/// Every layout of `hapo list layouts` is read, from JSON lines, a JSON array, Parquet or Arrow IPC, also inside
/// gzip or zstd. The content says which it is.
#[derive(clap::Args)]
#[command(before_help = "Example: hapo data stats train.parquet")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Rows, layout, lengths, teachers, duplicates, kinds of answers
    Stats(Stats),
    /// Name every bad row; exit code 2 when there are any
    Check(Check),
    /// Write a file in another layout
    Convert(Convert),
}

#[derive(clap::Args)]
#[command(
    before_help = "Example: hapo data stats train.parquet --tokenizer model/ --template qwen-boxed"
)]
struct Stats {
    /// Files of problems
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Count lengths in tokens: a tokenizer.json, or a folder that has one
    #[arg(long)]
    tokenizer: Option<PathBuf>,
    /// Template of the prompts whose tokens are counted
    #[arg(long, default_value = "qwen-boxed")]
    template: String,
    /// Print JSON, one object per file
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(before_help = "Example: hapo data check train.jsonl --drop-bad -o clean.jsonl")]
struct Check {
    /// Files of problems
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Grader that must be able to read every gold answer; `none` leaves them alone
    #[arg(long, default_value = "math")]
    grader: String,
    /// Write the good rows to --output
    #[arg(long, requires = "output")]
    drop_bad: bool,
    /// File of the good rows
    #[arg(short, long, requires = "drop_bad")]
    output: Option<PathBuf>,
    /// Layout of the good rows
    #[arg(long, value_enum, default_value_t = To::Own)]
    to: To,
    /// Print JSON, one object per bad row
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(before_help = "Example: hapo data convert train.jsonl --to verl -o train.parquet")]
struct Convert {
    /// File of problems
    file: PathBuf,
    /// Layout to write
    #[arg(long, value_enum)]
    to: To,
    /// File to write
    #[arg(short, long)]
    output: PathBuf,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum To {
    /// Our own JSON lines
    Own,
    /// verl's Parquet, with LUFFY's target for teachers
    Verl,
    /// TRL's JSON lines
    Trl,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.command {
        Command::Stats(args) => stats(args),
        Command::Check(args) => check(args),
        Command::Convert(args) => {
            convert(&args.file, args.to, &args.output, |_, _| Ok(None)).map(drop)
        }
    }
}

/// What `hapo data stats` says of a file.
#[derive(Serialize)]
struct Summary {
    file: String,
    layout: &'static str,
    container: &'static str,
    compression: Option<&'static str>,
    rows: u64,
    bad_rows: u64,
    first_bad_row: Option<String>,
    /// Rows that ask and answer the same count once.
    distinct_prompts: u64,
    /// How many prompts stand in the file that often: k of avg@k.
    prompts_by_copies: BTreeMap<u64, u64>,
    /// Prompts with one text and several answers or sources.
    problems_with_several_answers: u64,
    already_rendered: u64,
    with_system_text: u64,
    several_turns: u64,
    with_teacher: u64,
    teacher_coverage: f64,
    teachers: u64,
    without_gold: u64,
    several_golds: u64,
    answers_by_kind: BTreeMap<&'static str, u64>,
    sources: BTreeMap<String, u64>,
    characters_of_problems: Option<Lengths>,
    template: Option<&'static str>,
    tokens_of_prompts: Option<Lengths>,
    tokens_of_teachers: Option<Lengths>,
    ignored_fields: BTreeMap<String, u64>,
}

#[derive(Serialize)]
struct Lengths {
    min: u32,
    mean: f64,
    median: u32,
    p95: u32,
    max: u32,
}

/// Sources that are counted by name; a file may have one per row.
const SOURCES: usize = 100;

fn stats(args: &Stats) -> Result<()> {
    let template = hapo_data::find_template(&args.template)?;
    let tokenizer = args
        .tokenizer
        .as_deref()
        .map(model::open_tokenizer)
        .transpose()?;
    let mut out = std::io::stdout().lock();
    for (number, file) in args.files.iter().enumerate() {
        let it = summary(file, tokenizer.as_ref(), template)?;
        if args.json {
            writeln!(out, "{}", serde_json::to_string(&it)?)?;
        } else {
            if number > 0 {
                writeln!(out)?;
            }
            print(&mut out, &it)?;
        }
    }
    Ok(())
}

fn summary(
    file: &Path,
    tokenizer: Option<&Tokenizer>,
    template: &'static Template,
) -> Result<Summary> {
    let mut rows = hapo_data::open(file)?;
    let mut it = Summary {
        file: file.display().to_string(),
        layout: rows.layout().name,
        container: rows.container().name(),
        compression: rows.compression(),
        rows: 0,
        bad_rows: 0,
        first_bad_row: None,
        distinct_prompts: 0,
        prompts_by_copies: BTreeMap::new(),
        problems_with_several_answers: 0,
        already_rendered: 0,
        with_system_text: 0,
        several_turns: 0,
        with_teacher: 0,
        teacher_coverage: 0.0,
        teachers: 0,
        without_gold: 0,
        several_golds: 0,
        answers_by_kind: BTreeMap::new(),
        sources: BTreeMap::new(),
        characters_of_problems: None,
        template: tokenizer.map(|_| template.name),
        tokens_of_prompts: None,
        tokens_of_teachers: None,
        ignored_fields: BTreeMap::new(),
    };
    let mut copies: HashMap<u128, u64> = HashMap::new();
    let mut answers_of_problem: HashMap<u128, u64> = HashMap::new();
    let (mut characters, mut prompts, mut teachers) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows.by_ref() {
        it.rows += 1;
        let example = match row? {
            Row::Good(example) => example,
            Row::Bad(bad) => {
                it.bad_rows += 1;
                it.first_bad_row.get_or_insert_with(|| bad.to_string());
                continue;
            }
        };
        let count = copies.entry(question_hash(&example)).or_default();
        *count += 1;
        if *count == 1 {
            let problem = Example {
                problem: example.problem.clone(),
                ..Example::default()
            };
            *answers_of_problem
                .entry(question_hash(&problem))
                .or_default() += 1;
        }
        it.already_rendered += u64::from(example.rendered.is_some());
        it.with_system_text += u64::from(example.system.is_some());
        it.several_turns += u64::from(!example.messages.is_empty());
        it.with_teacher += u64::from(!example.teachers.is_empty());
        it.teachers += example.teachers.len() as u64;
        it.several_golds += u64::from(!example.other_answers.is_empty());
        if example.answer.is_empty() {
            it.without_gold += 1;
        } else {
            *it.answers_by_kind.entry(kind(&example.answer)).or_default() += 1;
        }
        if let Some(source) = &example.source
            && (it.sources.len() < SOURCES || it.sources.contains_key(source))
        {
            *it.sources.entry(source.clone()).or_default() += 1;
        }
        characters.push(example.problem.chars().count() as u32);
        if let Some(tokenizer) = tokenizer {
            let rendered = hapo_data::render(template, &example.problem);
            // A prompt that the file renders itself is counted as it stands there.
            let prompt = example.rendered.as_deref().unwrap_or(&rendered);
            prompts.push(tokenizer.encode(prompt)?.len() as u32);
            for solution in &example.teachers {
                // The end token counts, as it does against the response limit.
                teachers.push(tokenizer.encode(solution)?.len() as u32 + 1);
            }
        }
    }
    it.distinct_prompts = copies.len() as u64;
    for count in copies.values() {
        *it.prompts_by_copies.entry(*count).or_default() += 1;
    }
    it.problems_with_several_answers =
        answers_of_problem.values().filter(|it| **it > 1).count() as u64;
    it.teacher_coverage = it.with_teacher as f64 / (it.rows - it.bad_rows).max(1) as f64;
    it.characters_of_problems = lengths(characters);
    it.tokens_of_prompts = lengths(prompts);
    it.tokens_of_teachers = lengths(teachers);
    it.ignored_fields.clone_from(rows.ignored_fields());
    Ok(it)
}

fn lengths(mut all: Vec<u32>) -> Option<Lengths> {
    all.sort_unstable();
    let (min, max) = (*all.first()?, *all.last()?);
    let at = |share: f64| all[((all.len() - 1) as f64 * share).round() as usize];
    Some(Lengths {
        min,
        mean: all.iter().map(|it| f64::from(*it)).sum::<f64>() / all.len() as f64,
        median: at(0.5),
        p95: at(0.95),
        max,
    })
}

/// What a gold answer looks like; the grader decides what it means.
fn kind(answer: &str) -> &'static str {
    let text = answer.trim().trim_matches('$').trim();
    let digits = |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit());
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits(&unsigned.replace(',', "")) {
        "integer"
    } else if unsigned.parse::<f64>().is_ok_and(f64::is_finite) {
        "decimal"
    } else if unsigned
        .split_once('/')
        .is_some_and(|(a, b)| digits(a) && digits(b))
        || (unsigned.starts_with("\\frac") || unsigned.starts_with("\\dfrac"))
    {
        "fraction"
    } else if unsigned.contains(',') {
        "several values, a tuple or an interval"
    } else if matches!(text.trim_matches(['(', ')']), "A" | "B" | "C" | "D" | "E") {
        "choice"
    } else if text.contains('=') {
        "equation"
    } else if text.contains(['\\', '^', '_', '{']) {
        "other LaTeX"
    } else if text
        .chars()
        .all(|it| it.is_alphabetic() || it.is_whitespace())
    {
        "words"
    } else {
        "other"
    }
}

fn print(out: &mut impl Write, it: &Summary) -> Result<()> {
    writeln!(out, "{}", it.file)?;
    let mut line = |name: &str, text: String| writeln!(out, "  {name:<22} {text}");
    let packed = it
        .compression
        .map_or(String::new(), |it| format!(" in {it}"));
    line(
        "layout",
        format!("{} ({}{packed})", it.layout, it.container),
    )?;
    line("rows", format!("{}, {} of them bad", it.rows, it.bad_rows))?;
    if let Some(bad) = &it.first_bad_row {
        line("first bad row", bad.clone())?;
    }
    let copies: Vec<String> = it
        .prompts_by_copies
        .iter()
        .map(|(k, prompts)| format!("{prompts} × {k}"))
        .collect();
    line(
        "distinct prompts",
        format!("{} ({})", it.distinct_prompts, copies.join(", ")),
    )?;
    if it.problems_with_several_answers > 0 {
        line(
            "with several answers",
            format!(
                "{} problems stand there with different answers or sources",
                it.problems_with_several_answers
            ),
        )?;
    }
    line(
        "with a teacher",
        format!(
            "{} ({:.1} %), {} solutions",
            it.with_teacher,
            it.teacher_coverage * 100.0,
            it.teachers
        ),
    )?;
    for (name, count) in [
        ("already rendered", it.already_rendered),
        ("with a system text", it.with_system_text),
        ("of several turns", it.several_turns),
        ("without a gold", it.without_gold),
        ("with several golds", it.several_golds),
    ] {
        if count > 0 {
            line(name, count.to_string())?;
        }
    }
    let table = |counts: Vec<(&str, u64)>| {
        let mut counts = counts;
        counts.sort_by_key(|it| std::cmp::Reverse(it.1));
        let shown: Vec<String> = counts
            .iter()
            .map(|(name, n)| format!("{name} {n}"))
            .collect();
        shown.join(", ")
    };
    line(
        "answers",
        table(it.answers_by_kind.iter().map(|it| (*it.0, *it.1)).collect()),
    )?;
    if !it.sources.is_empty() {
        line(
            "sources",
            table(it.sources.iter().map(|it| (it.0.as_str(), *it.1)).collect()),
        )?;
    }
    for (name, lengths) in [
        ("characters, problem", &it.characters_of_problems),
        ("tokens, prompt", &it.tokens_of_prompts),
        ("tokens, teacher", &it.tokens_of_teachers),
    ] {
        if let Some(Lengths {
            min,
            mean,
            median,
            p95,
            max,
        }) = lengths
        {
            line(
                name,
                format!("min {min}, mean {mean:.1}, median {median}, 95 % {p95}, max {max}"),
            )?;
        }
    }
    if !it.ignored_fields.is_empty() {
        let ignored = it.ignored_fields.iter().map(|it| (it.0.as_str(), *it.1));
        line("fields nobody reads", table(ignored.collect()))?;
    }
    Ok(())
}

fn check(args: &Check) -> Result<()> {
    let grader = match args.grader.as_str() {
        "none" => None,
        name => Some(hapo_verify::grader(name).map_err(|it| {
            bad_input(
                it.to_string(),
                "`hapo list graders` names them, `none` is none of them",
            )
        })?),
    };
    let mut bad_rows = 0_u64;
    let mut report = |bad: &BadRow| -> Result<()> {
        bad_rows += 1;
        if args.json {
            let BadRow {
                file,
                row,
                field,
                expected,
                got,
                ..
            } = bad;
            outln!(
                "{}",
                serde_json::json!({"file": file, "row": row, "field": field, "expected": expected, "found": got})
            );
        } else {
            outln!("{bad}");
        }
        Ok(())
    };
    if let (true, Some(output)) = (args.drop_bad, &args.output) {
        let [file] = &args.files[..] else {
            return Err(bad_input(
                format!("--drop-bad: expected one file, got {}", args.files.len()),
                "clean the files one by one",
            ));
        };
        let written = convert(file, args.to, output, |rows, row| {
            let bad = judge(rows, row, grader);
            bad.iter().try_for_each(&mut report)?;
            Ok(Some(bad.is_some()))
        })?;
        eprintln!(
            "{}: {bad_rows} bad rows; {written} rows written to {}",
            file.display(),
            output.display()
        );
        return Ok(());
    }
    let mut rows_in_all = 0_u64;
    for file in &args.files {
        let mut rows = hapo_data::open(file)?;
        while let Some(row) = rows.next() {
            rows_in_all += 1;
            if let Some(bad) = judge(&rows, &row?, grader) {
                report(&bad)?;
            }
        }
    }
    if bad_rows == 0 {
        eprintln!("{rows_in_all} rows, none bad");
        return Ok(());
    }
    Err(bad_input(
        format!("{bad_rows} of {rows_in_all} rows are bad"),
        "correct them, or write the others: hapo data check FILE --drop-bad -o OUT",
    ))
}

/// What is wrong with a row, in its layout or for the grader.
fn judge(rows: &Rows<'_>, row: &Row, grader: Option<&'static dyn Grader>) -> Option<BadRow> {
    let example = match row {
        Row::Bad(bad) => return Some(bad.clone()),
        Row::Good(example) => example,
    };
    let grader = grader?;
    let expected = format!("a gold answer that grader `{}` reads", grader.name());
    if example.answer.is_empty() {
        return Some(rows.bad_row(example.row, "answer", &expected, "nothing"));
    }
    let reason = Gold::any(grader, example.golds()).err()?;
    let shown: String = example.answer.chars().take(80).collect();
    let got = format!("{shown:?} ({reason})");
    Some(rows.bad_row(example.row, "answer", &expected, &got))
}

/// Writes the good rows of a file; gives their number. `look` says of a row whether it is to be left out;
/// where it says nothing, a bad row ends the writing.
fn convert(
    file: &Path,
    to: To,
    output: &Path,
    mut look: impl FnMut(&Rows<'_>, &Row) -> Result<Option<bool>>,
) -> Result<u64> {
    let format = match to {
        To::Own => Format::Own,
        To::Trl => Format::Trl,
        // The columns of a Parquet file are fixed before its first row.
        To::Verl => Format::Verl {
            teachers: most_teachers(file)?,
        },
    };
    let mut writer = Writer::create(output, format)?;
    let mut rows = hapo_data::open(file)?;
    while let Some(row) = rows.next() {
        let row = row?;
        match (look(&rows, &row)?, row) {
            (Some(true), _) => {}
            (_, Row::Good(example)) => writer.write(&example)?,
            (_, Row::Bad(bad)) => {
                return Err(bad_input(
                    bad.to_string(),
                    "correct the row, or leave bad rows out: hapo data check FILE --drop-bad -o OUT",
                ));
            }
        }
    }
    let written = writer.finish()?;
    if written.teachers_left_out > 0 {
        eprintln!(
            "{} solutions beyond the first of their row are left out: this layout has a place for one",
            written.teachers_left_out
        );
    }
    Ok(written.rows)
}

fn most_teachers(file: &Path) -> Result<usize> {
    let mut most = 0;
    for row in hapo_data::open(file)? {
        if let Row::Good(example) = row? {
            most = most.max(example.teachers.len());
        }
    }
    Ok(most)
}
