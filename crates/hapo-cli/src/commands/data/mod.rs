//! `hapo data`: what a file of problems holds, which of its rows are bad, the same in another layout, and the built-in
//! task as a file.

mod make;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use anyhow::Result;
use hapo_core::{counted, found_at};
use hapo_data::{
    BadRow, Converted, Decision, FileSummary, Format, Lengths, Only, PromptTemplate, Reading, Row,
    Rows, TemplateChoice, TokenCount, Unread, Written, question_hash, summarise,
};
use hapo_train::grading::gold_of;
use hapo_verify::{Extracting, Extraction, Gold, Grader};

use crate::support::arguments::{ColumnsArg, GraderArgs, TEMPLATES, not_an_input};
use crate::{failure::bad_input, support::admission::AdmissionArgs, support::model};

/// Look at files of problems, check them, convert them, make those of the built-in task.
///
/// Every layout of `hapo list layouts` is read, from JSON lines, a JSON array, Parquet, Arrow IPC, CSV or TSV, also inside
/// gzip or zstd: the content says which it is. A folder as `datasets` or the hub leave it, and a pattern such as
/// 'data/train-*.parquet', stand for all their files.
#[derive(clap::Args)]
#[command(before_help = "Example: hapo data stats train.parquet")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Rows, layout, lengths, teachers, duplicates
    Stats(Stats),
    /// Name every bad row; exit code 2 when there are any
    Check(Check),
    /// Write a file in another layout
    Convert(Convert),
    /// Write the built-in task's problems, as a recipe trains on them
    Make(make::Args),
}

#[derive(clap::Args)]
#[command(
    before_help = "Example: hapo data stats train.parquet --tokenizer model/ --template qwen-boxed"
)]
struct Stats {
    /// Files or folders of problems
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    columns: ColumnsArg,
    /// Count lengths in tokens: a tokenizer.json, or a folder that has one
    #[arg(long)]
    tokenizer: Option<PathBuf>,
    /// Template of the prompts whose tokens are counted; `chat` is that of --tokenizer's folder
    #[arg(long, default_value = "qwen-boxed", hide_possible_values = true, value_parser = TEMPLATES)]
    template: String,
    /// Print JSON, one object per file
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(
    mut_arg("grader", |arg| arg.help("Grader that must read every gold answer, `command:PROGRAM` for the solutions, or `none`")),
    before_help = "Example: hapo data check train.jsonl --drop-bad -o clean.jsonl"
)]
struct Check {
    /// Files or folders of problems
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    columns: ColumnsArg,
    #[command(flatten)]
    grader: GraderArgs,
    /// Write the good rows to --output
    #[arg(long, requires = "output")]
    drop_bad: bool,
    /// File of the good rows
    #[arg(short, long, requires = "drop_bad")]
    output: Option<PathBuf>,
    /// Layout of the good rows
    #[arg(long, value_enum, default_value_t = To::Own)]
    to: To,
    /// Print JSON: an object for each bad row, then one with the counts
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(
    mut_arg("grader", |arg| arg.requires("model")),
    mut_arg("extraction", |arg| arg.requires("model")),
    before_help = "Example: hapo data convert train.jsonl --to verl -o train.parquet"
)]
struct Convert {
    /// File or folder of problems
    file: PathBuf,
    #[command(flatten)]
    columns: ColumnsArg,
    /// Take only rows with this value or range of numbers, COLUMN=VALUE[..VALUE], each problem once; repeatable
    #[arg(long = "where", value_name = "CONDITION")]
    only: Vec<String>,
    /// Layout to write
    #[arg(long, value_enum)]
    to: To,
    /// File to write; .jsonl, .json or .parquet says how
    #[arg(short, long)]
    output: PathBuf,
    #[command(flatten)]
    admission: AdmissionArgs,
    /// Print what was written as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum To {
    /// The native layout
    Own,
    /// verl's, with LUFFY's target for teachers
    Verl,
    /// TRL's
    Trl,
}

impl To {
    fn format(self, file: &Path, reading: &Reading, tokens: bool) -> Result<Format> {
        Ok(match self {
            To::Own => Format::Own,
            To::Trl => Format::Trl,
            // The columns of a Parquet file are fixed before its first row.
            To::Verl => Format::Verl { teachers: hapo_data::most_teachers(file, reading)?, tokens },
        })
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.command {
        Command::Stats(args) => stats(args),
        Command::Check(args) => check(args),
        Command::Convert(args) => {
            let mut reading = args.columns.reading()?;
            let only = args.only.iter().map(|it| Only::parse(it));
            reading.only = only.collect::<Result<_, _>>()?;
            let file = args.file.as_path();
            check_columns(file, &reading)?;
            let tokens = args.admission.model.is_some();
            if tokens && args.to != To::Verl {
                let problem = "--model: expected --to verl, the other layouts have texts";
                return Err(bad_input(problem, "leave --model out"));
            }
            let mut admission = args.admission.open()?;
            let format = args.to.format(file, &reading, tokens)?;
            let (mut seen, mut copies) = (HashSet::new(), 0_u64);
            let decide = |rows: &Rows<'_>, row: &Row| match (row, &mut admission) {
                (Row::Good(it), _) if !args.only.is_empty() && !seen.insert(question_hash(it)) => {
                    copies += 1;
                    Ok(Decision::Skip)
                }
                (_, None) => Ok(Decision::Write(None)),
                (_, Some(solutions)) => solutions.decide(rows, row),
            };
            let written = convert(file, &reading, &args.output, format, decide)?;
            if !args.only.is_empty() {
                let problems = counted(written.rows, "problem", "problems");
                errln!("{problems}; {} left out", counted(copies, "copy is", "copies are"));
            }
            if let Some(solutions) = &admission {
                solutions.print_counts();
            }
            say_written(&written, &args.output, args.json)
        }
        Command::Make(args) => make::run(args),
    }
}

fn say_written(written: &Written, output: &Path, json: bool) -> Result<()> {
    if json {
        // As text: a path that is no UTF-8 has no JSON.
        let json = serde_json::json!({
            "output": output.display().to_string(), "rows": written.rows, "teachers_left_out": written.teachers_left_out,
            "systems_left_out": written.systems_left_out, "without_source": written.without_source,
        });
        outln!("{json}");
    }
    Ok(())
}

fn stats(args: &Stats) -> Result<()> {
    let template = stats_template(args)?;
    let reading = args.columns.reading()?;
    let tokenizer = args.tokenizer.as_deref().map(model::open_tokenizer).transpose()?;
    let tokens = |text: &str| -> Result<usize> {
        let tokenizer = tokenizer.as_ref().expect("tokens are counted with one");
        Ok(tokenizer.encode(text)?.len())
    };
    let count = tokenizer.is_some().then_some(TokenCount { tokens: &tokens, template: &template });
    for (number, file) in args.files.iter().enumerate() {
        let it = summarise(file, &reading, count.as_ref())?;
        hapo_train::check_columns(&it.file, &it.named_columns)?;
        if args.json {
            outln!("{}", serde_json::to_string(&it)?);
            continue;
        }
        if number > 0 {
            outln!();
        }
        outln!("{}", it.file);
        for (name, text) in lines(&it) {
            outln!("  {name:<22} {text}");
        }
    }
    Ok(())
}

/// The template of the prompts: one of the table, or that of the tokenizer's folder.
fn stats_template(args: &Stats) -> Result<PromptTemplate> {
    let choice = TemplateChoice::named(&args.template);
    if let Some(named) = choice.check()? {
        return Ok(named.into());
    }
    let mut folder = None;
    if let Some(path) = args.tokenizer.as_deref() {
        let is_dir = found_at(path)?.is_some_and(|it| it.is_dir());
        folder = (is_dir || hapo_model::folder::is_model(path)?).then_some(path);
    }
    let Some(folder) = folder else {
        let problem = "--template chat: expected the folder of a model as --tokenizer";
        return Err(bad_input(problem, "the model's own template lies beside its tokenizer"));
    };
    let files = hapo_model::folder::read_tokenizer_files(folder)?;
    Ok(hapo_sampler::choose_template(choice, &folder.display().to_string(), &files)?)
}

/// Says that a file's solutions are left unread, where it looks like it.
fn warn_of_unread(unread_solutions: &BTreeMap<String, u64>, file: &Path) {
    for (name, count) in unread_solutions {
        let (file, rows) = (file.display(), counted(*count, "row", "rows"));
        errln!(
            "warning: {file}: `{name}` looks like solutions ({rows}) and is not read; --columns problem=…,answer=…,teacher={name} reads it"
        );
    }
}

fn lines(it: &FileSummary) -> Vec<(&'static str, String)> {
    let packed = it.compression.map(|it| format!(" in {it}"));
    let (container, packed) = (it.container, packed.unwrap_or_default());
    let copies = it.prompts_by_copies.iter();
    let copies: Vec<String> = copies.map(|(k, n)| format!("{n} × {k}")).collect();
    let mut lines = vec![
        ("layout", format!("{} ({container}{packed})", it.layout)),
        ("rows", format!("{}, {} of them bad", it.rows, it.bad_rows)),
    ];
    lines.extend(it.first_bad_row.clone().map(|it| ("first bad row", it)));
    let prompts = format!("{} ({})", it.distinct_prompts, copies.join(", "));
    lines.push(("distinct prompts", prompts));
    if let n @ 1.. = it.problems_with_several_answers {
        let problems = counted(n, "problem appears", "problems appear");
        lines.push((
            "with several answers",
            format!("{problems} with different answers or sources"),
        ));
    }
    let share = it.teacher_coverage * 100.0;
    let solutions = counted(it.teachers, "solution", "solutions");
    let teachers = format!("{} ({share:.1} %), {solutions}", it.with_teacher);
    lines.push(("with a teacher", teachers));
    let counts = [
        ("already rendered", it.already_rendered),
        ("with a system text", it.with_system_text),
        ("of several turns", it.several_turns),
        ("without a gold answer", it.without_gold),
        ("several gold answers", it.several_golds),
    ];
    let present = counts.into_iter().filter(|it| it.1 > 0);
    lines.extend(present.map(|(name, count)| (name, count.to_string())));
    if let Some(first) = &it.first_not_rendered {
        lines.push(("not rendered", format!("{}, the first: {first}", it.not_rendered)));
    }
    if !it.sources.is_empty() {
        lines.push(("sources", most_frequent(&it.sources)));
    }
    let lengths = [
        ("characters, problem", it.characters_of_problems),
        ("tokens, prompt", it.tokens_of_prompts),
        ("tokens, teacher", it.tokens_of_teachers),
    ];
    lines.extend(lengths.into_iter().filter_map(|(name, it)| {
        let Lengths { min, mean, max, .. } = it?;
        let (median, p95) = (it?.median, it?.p95);
        let text = format!("min {min}, mean {mean:.1}, median {median}, 95 % {p95}, max {max}");
        Some((name, text))
    }));
    let unread = [
        ("unread solutions?", &it.unread.unread_solutions),
        ("part of the question?", &it.unread.unread_questions),
        ("fields nobody reads", &it.unread.ignored_fields),
    ];
    let unread = unread.into_iter().filter(|it| !it.1.is_empty());
    lines.extend(unread.map(|(name, counts)| (name, most_frequent(counts))));
    lines
}

fn most_frequent(counts: &BTreeMap<impl std::fmt::Display, u64>) -> String {
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_by_key(|it| std::cmp::Reverse(it.1));
    let texts: Vec<String> = counts.iter().map(|it| format!("{} {}", it.0, it.1)).collect();
    texts.join(", ")
}

fn check(args: &Check) -> Result<()> {
    let (name, extraction) = (args.grader.name(), args.grader.extraction());
    let grader = if name == "none" { None } else { Some(args.grader.open()?.grader()) };
    // Rows that are converted are not kept whole, and a custom reward gets whole rows.
    let whole = !(args.drop_bad && args.grader.is_own());
    let mut solutions = Solutions::new(grader.filter(|_| whole), extraction);
    let reading = args.columns.reading()?;
    args.files.iter().try_for_each(|it| check_columns(it, &reading))?;
    let (mut rows_in_all, mut bad_rows) = (0_u64, 0_u64);
    let mut is_good = |rows: &Rows<'_>, row: &Row| -> Result<bool> {
        rows_in_all += 1;
        let Some(bad) = judge(rows, row, grader) else {
            solutions.add(row)?;
            return Ok(true);
        };
        bad_rows += 1;
        if args.json {
            let BadRow { file, row, field, expected, got, .. } = bad;
            let bad = serde_json::json!({"file": file, "row": row, "field": field, "expected": expected, "found": got});
            outln!("{bad}");
        } else {
            outln!("{bad}");
        }
        Ok(false)
    };
    if let Some(output) = &args.output {
        let [file] = &args.files[..] else {
            let problem = format!("--drop-bad: expected one file, got {}", args.files.len());
            return Err(bad_input(problem, "clean the files one by one"));
        };
        let format = args.to.format(file, &reading, false)?;
        let written = convert(file, &reading, output, format, |rows, row| {
            Ok(if is_good(rows, row)? { Decision::Write(None) } else { Decision::Skip })
        })?;
        let (file, output) = (file.display(), output.display());
        let bad = counted(bad_rows, "bad row", "bad rows");
        errln!("{file}: {bad}; {} written to {output}", counted(written.rows, "row", "rows"));
        solutions.say(args);
        return Ok(());
    }
    let (mut systems, mut golds, mut not_whole) = (0_u64, Vec::new(), Vec::new());
    let mut answers: HashMap<String, String> = HashMap::new();
    let mut contradicted = BTreeSet::new();
    for file in &args.files {
        let keeps_fields = args.grader.is_own();
        let reading = Reading { keeps_fields, ..reading.clone() };
        let mut rows = hapo_data::open_all(std::slice::from_ref(file), &reading)?;
        while let Some(row) = rows.next() {
            let row = row?;
            is_good(&rows, &row)?;
            if let Row::Good(example) = row {
                systems += u64::from(example.system.is_some());
                golds.push(example.answer.clone());
                let first =
                    answers.entry(example.problem.clone()).or_insert(example.answer.clone());
                if *first != example.answer {
                    contradicted.insert(example.problem);
                }
            }
        }
        not_whole.extend(rows.unread.not_whole(&file.display().to_string()));
        tell_of(&rows, file, keeps_fields);
    }
    if args.json {
        outln!("{}", serde_json::json!({"rows": rows_in_all, "bad_rows": bad_rows}));
    }
    solutions.say(args);
    if systems > 0 {
        let rows = counted(systems, "row has a system text", "rows have a system text");
        errln!("{rows}: template `chat` and servers get it, the other templates have their own");
    }
    if let Some(first) = contradicted.first() {
        let problems = counted(contradicted.len(), "problem has", "problems have");
        let first = hapo_core::excerpt(first, 80);
        errln!("warning: {problems} different answers in different rows, the first: {first}");
    }
    if let Some(it) = hapo_eval::unsuited(name, golds.iter().map(String::as_str)) {
        errln!("warning: {it}");
    }
    let refusal = if bad_rows == 0 { not_whole.pop() } else { None };
    for it in &not_whole {
        errln!("{it}");
    }
    if let Some(refusal) = refusal {
        return Err(refusal.into());
    }
    if bad_rows == 0 {
        errln!("{}, none bad", counted(rows_in_all, "row", "rows"));
        return Ok(());
    }
    let hint = "correct them, or write the others: hapo data check FILE --drop-bad -o OUT";
    Err(bad_input(format!("{} of {rows_in_all}", counted(bad_rows, "bad row", "bad rows")), hint))
}

/// Says how the rows of a file were read where somebody may have meant it otherwise.
fn tell_of(rows: &Rows<'_>, file: &Path, keeps_fields: bool) {
    warn_of_unread(&rows.unread.unread_solutions, file);
    let file = file.display();
    if let n @ 1.. = rows.e_notation {
        let one = "answer in e-notation is read as a number";
        let answers = counted(n, one, "answers in e-notation are read as numbers");
        errln!("{file}: {answers} (1e-5 is 0.00001)");
    }
    if let Some(it) = not_read(&rows.unread).filter(|_| !keeps_fields) {
        errln!("{file}: {it}");
    }
    for (name, count) in &rows.unread.labels_left_out {
        let rows = counted(*count, "row", "rows");
        errln!("{file}: `{name}` is no label in {rows} and is left out");
    }
}

/// The fields that nobody reads: a misspelt one is among them.
pub(super) fn not_read(unread: &Unread) -> Option<String> {
    let said = |name: &String| {
        unread.unread_solutions.contains_key(name) || unread.unread_questions.contains_key(name)
    };
    let fields = unread.ignored_fields.iter().filter(|it| !said(it.0));
    let fields: BTreeMap<_, _> = fields.map(|(name, rows)| (name.as_str(), *rows)).collect();
    (!fields.is_empty()).then(|| format!("fields that are not read: {}", most_frequent(&fields)))
}

/// Refuses the name of a column that no row has. Reads no further than the row with the last of them.
fn check_columns(file: &Path, reading: &Reading) -> Result<()> {
    let mut rows = hapo_data::open_all(&[file.to_owned()], reading)?;
    while !rows.named_columns.missing.is_empty()
        && let Some(row) = rows.next()
    {
        row?;
    }
    Ok(hapo_train::check_columns(&file.display().to_string(), &rows.named_columns)?)
}

pub(super) struct Solutions {
    /// The rule that was asked for, then others by which more might count.
    rules: Vec<Rule>,
    /// Those of gold answers that the grader reads.
    pub(super) all: u64,
}

struct Rule {
    extraction: Extraction,
    grader: Extracting<'static>,
    /// Correct solutions, of another rule than the first those that are wrong by that.
    correct: u64,
}

impl Solutions {
    pub(super) fn new(grader: Option<&'static dyn Grader>, extraction: Extraction) -> Self {
        let reads_answers = grader.is_some_and(Grader::reads_answers);
        let others = if reads_answers { Extraction::ALL } else { &[] };
        let others = others.iter().map(|it| it.1).filter(|it| *it != extraction);
        let rule =
            |it| Some(Rule { extraction: it, grader: Extracting::new(grader?, it), correct: 0 });
        Self { rules: std::iter::once(extraction).chain(others).filter_map(rule).collect(), all: 0 }
    }

    pub(super) fn correct(&self) -> u64 {
        self.rules.first().map_or(0, |it| it.correct)
    }

    pub(super) fn add(&mut self, row: &Row) -> Result<()> {
        let Row::Good(example) = row else { return Ok(()) };
        let Some((asked, others)) = self.rules.split_first_mut() else { return Ok(()) };
        if example.teachers.is_empty() {
            return Ok(());
        }
        let Ok(gold) = gold_of(&asked.grader, example) else { return Ok(()) };
        for solution in &example.teachers {
            self.all += 1;
            if is_correct(&gold, solution)? {
                asked.correct += 1;
                continue;
            }
            for rule in &mut *others {
                let Ok(gold) = gold_of(&rule.grader, example) else { continue };
                rule.correct += u64::from(is_correct(&gold, solution)?);
            }
        }
        Ok(())
    }

    fn say(&self, args: &Check) {
        let [asked, others @ ..] = &self.rules[..] else { return };
        if self.all == 0 {
            return;
        }
        let (grader, rule) = (args.grader.name(), args.grader.extraction().name());
        let (correct, all) = (asked.correct, counted(self.all, "solution", "solutions"));
        errln!("correct by grader `{grader}` with extraction `{rule}`: {correct} of {all}");
        // Of equal ones the first is the strictest.
        if let Some(best) = others.iter().rev().max_by_key(|it| it.correct)
            && best.correct > 0
        {
            let (rule, more) = (best.extraction.name(), best.correct);
            errln!("with `--extraction {rule}`, {more} more would count");
        }
    }
}

fn is_correct(gold: &Gold, solution: &str) -> Result<bool> {
    let judgement = gold.judge(solution);
    match judgement.failure() {
        Some(it) => Err(bad_input(format!("the reward failed: {it}"), "what it printed is above")),
        None => Ok(judgement.verdict.is_correct()),
    }
}

/// The fault of a row, in its layout or for the grader.
pub(super) fn judge(
    rows: &Rows<'_>,
    row: &Row,
    grader: Option<&'static dyn Grader>,
) -> Option<BadRow> {
    let example = match row {
        Row::Bad(bad) => return Some(bad.clone()),
        Row::Good(example) => example,
    };
    // A custom reward may need no gold answer.
    let grader = grader.filter(|it| !hapo_net::reward::is_own(it.name()))?;
    let expected = format!("a gold answer that grader `{}` reads", grader.name());
    if example.answer.is_empty() {
        return Some(rows.bad_row(example.row, "answer", &expected, "nothing"));
    }
    let reason = match Gold::any(grader, example.golds()) {
        Err(reason) => reason.to_string(),
        Ok(_) if says_nothing(&example.answer) => "it says nothing".to_owned(),
        Ok(gold) if !is_own_answer(&gold, &example.answer) => {
            "not even the gold answer itself is correct".to_owned()
        }
        Ok(_) => return None,
    };
    let shown: String = example.answer.chars().take(80).collect();
    let got = format!("{shown:?} ({reason})");
    Some(rows.bad_row(example.row, "answer", &expected, &got))
}

/// True if a text holds marks and invisible characters alone, which are no answer.
fn says_nothing(answer: &str) -> bool {
    let is_mark = |it: char| {
        it.is_whitespace()
            || it.is_control()
            || "?!#.,;:\"'`~|_$@&\u{200b}\u{200c}\u{200d}\u{2060}\u{feff}".contains(it)
    };
    answer.chars().all(is_mark)
}

fn is_own_answer(gold: &Gold, answer: &str) -> bool {
    let says = |text: String| gold.judge(&text).verdict == hapo_verify::Verdict::Correct;
    says(format!("\\boxed{{{answer}}}")) || says(answer.to_owned())
}

/// Writes the rows of a file, by its named columns where it has some, that `decide` keeps.
fn convert(
    file: &Path,
    reading: &Reading,
    output: &Path,
    format: Format,
    decide: impl FnMut(&Rows<'_>, &Row) -> Result<Decision>,
) -> Result<Written> {
    let files = hapo_data::data_files(file)?;
    not_an_input(output, &files, "")?;
    let Converted { written, unread } = hapo_data::convert(file, reading, output, format, decide)?;
    warn_of_unread(&unread.unread_solutions, file);
    if let n @ 1.. = written.systems_left_out {
        let texts = counted(n, "system text is", "system texts are");
        errln!("{texts} left out: this layout has no place for it");
    }
    if let n @ 1.. = written.teachers_left_out {
        let solutions = counted(n, "solution is", "solutions are");
        errln!("{solutions} left out: this layout holds the first of a row");
    }
    if let n @ 1.. = written.without_source {
        let (rows, source) = (counted(n, "row names", "rows name"), hapo_data::VERL_SOURCE);
        errln!(
            "note: {rows} no source; data_source is {source} there, by which verl compares the last box"
        );
    }
    Ok(written)
}
