//! `hapo grade`: verdicts on completions.

mod summary;

use std::io::{BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::{borrow::Cow, collections::BTreeMap, sync::mpsc};

use anyhow::Result;
use hapo_core::{Refusal, counted, printable};
use hapo_train::recipe::did_you_mean;
use hapo_verify::{
    Completion, Extracting, Gold, Grader, Judgement, Problem, grade_batch, in_order,
};
use serde_json::{Map, Value, json};

use self::summary::{Summary, label};
use crate::failure::{self, bad_input};
use crate::support::arguments::{GraderArgs, not_an_input};

/// Grade completions against gold answers.
///
/// Reads JSON lines, a JSON array, CSV, Parquet or Arrow IPC with a gold and a completion in each row, and writes one JSON line per row, in order:
/// {"id", "verdict": "correct|wrong|unparsable", "reason", "extracted", `gold_parsed`, `answer_parsed`}. A row that
/// cannot be read gets a null verdict and is named on standard error; the rest are graded, and the exit code is 2.
/// Counts follow on standard error; with labels, also a table of them against the verdicts, and the rows that disagree.
#[derive(clap::Args)]
#[command(
    before_help = "Example: hapo grade 1/2 'so \\boxed{0.5}'\n         hapo grade answers.jsonl --pred-key completion --out graded.jsonl",
    allow_negative_numbers = true
)]
pub(crate) struct Args {
    /// File of rows [default: standard input, JSON lines], or the gold answer of COMPLETION
    #[arg(value_name = "FILE|GOLD")]
    file: Option<PathBuf>,
    /// A completion, graded against the gold answer before it and explained
    #[arg(conflicts_with_all = ["out", "label_key"])]
    completion: Option<String>,
    #[command(flatten)]
    grader: GraderArgs,
    /// Field of the gold answer
    #[arg(long, default_value = "gold")]
    gold_key: String,
    /// Field of the completion
    #[arg(long, default_value = "pred")]
    pred_key: String,
    /// Say in words what was extracted, how both sides were read, and why
    #[arg(long, conflicts_with = "json")]
    explain: bool,
    /// Field of a label, true or false, that verdicts are held against
    #[arg(long)]
    label_key: Option<String>,
    /// Write rows and verdicts to this file; print only the summary
    #[arg(long, conflicts_with = "explain")]
    out: Option<PathBuf>,
    /// Print JSON: the rows (the default), or, with --out, the summary
    #[arg(long)]
    json: bool,
}

const BATCH: usize = 4096;

pub(crate) fn run(args: &Args) -> Result<()> {
    let grader = args.grader.open()?;
    let (mut it, mut ungraded) = (Summary::default(), None);
    if let Some(file) = &args.out {
        not_an_input(file, args.file.as_slice(), "")?;
        // It stays as it was until all rows are graded.
        hapo_run::write_atomically_with(file, |out| -> Result<()> {
            (it, ungraded) = grade(args, grader, out)?;
            Ok(())
        })?;
    } else {
        (it, ungraded) = grade(args, grader, &mut std::io::stdout().lock())?;
    }
    if args.completion.is_some() {
        // The verdict is all there is to say.
    } else if args.out.is_none() {
        errln!("{}\nby {}", it.text(), args.rule());
    } else if args.json {
        outln!("{}", serde_json::to_string(&it)?);
    } else {
        outln!("{}", it.text());
    }
    let (malformed, rows) = (it.malformed, counted(it.rows, "row", "rows"));
    let unread = format!("{malformed} of {rows} could not be read");
    match ungraded {
        None => Ok(()),
        Some(Ungraded::Failed) => {
            let hint = "docs/guides/own-reward.md has a program to begin with";
            Err(bad_input(format!("without a verdict: {malformed} of {rows}"), hint))
        }
        Some(Ungraded::OtherFields(hint)) => Err(bad_input(unread, hint)),
        Some(Ungraded::Unread) => Err(bad_input(unread, args.expected())),
    }
}

/// Grades the rows that the arguments name and writes a line for each.
fn grade(
    args: &Args,
    grader: Extracting<'static>,
    to: &mut dyn Write,
) -> Result<(Summary, Option<Ungraded>)> {
    let mut out = Output {
        args,
        explain: args.explain || (args.completion.is_some() && !args.json),
        origin: match &args.file {
            Some(it) => it.to_str().unwrap_or("file").to_owned(),
            None => "standard input".to_owned(),
        },
        grader,
        writer: std::io::BufWriter::new(to),
        summary: Summary::default(),
        ungraded: None,
    };
    if let (Some(gold), Some(completion)) = (&args.file, &args.completion) {
        let row = [
            (args.gold_key.clone(), gold.to_string_lossy().into()),
            (args.pred_key.clone(), completion.as_str().into()),
        ];
        out.batch(&[Ok(Map::from_iter(row))])?;
    } else if let Some(file) = &args.file {
        let mut rows = hapo_data::json_rows(file)?.peekable();
        while rows.peek().is_some() {
            let batch: Result<Vec<Row>, _> = rows.by_ref().take(BATCH).collect();
            out.batch(&batch?)?;
        }
    } else {
        // A writer of rows may wait for a verdict: what has arrived is graded at once.
        let (sender, rows) = mpsc::sync_channel(BATCH);
        let started = std::thread::Builder::new().spawn(move || {
            let lines = hapo_data::json_lines(BufReader::new(std::io::stdin()), "standard input");
            lines.map(|row| sender.send(row)).take_while(Result::is_ok).for_each(drop);
        });
        started.map_err(Refusal::io("start a thread for", Path::new("standard input")))?;
        while let Ok(first) = rows.recv() {
            let batch = std::iter::once(first).chain(rows.try_iter().take(BATCH - 1));
            out.batch(&batch.collect::<Result<Vec<Row>, _>>()?)?;
            out.writer.flush()?;
        }
    }
    out.writer.flush()?;
    if out.summary.rows == 0 {
        let none = format!("{}: expected rows, got none", out.origin);
        return Err(bad_input(none, args.expected()));
    }
    Ok((out.summary, out.ungraded))
}

impl Args {
    fn rule(&self) -> String {
        format!("`{}`, extraction `{}`", self.grader.name(), self.grader.extraction().name())
    }

    fn expected(&self) -> String {
        format!("each row is an object with strings in `{}` and `{}`", self.gold_key, self.pred_key)
    }
}

/// Why the first row without a verdict has none.
enum Ungraded {
    /// The reward failed.
    Failed,
    /// It has other fields; which was meant.
    OtherFields(String),
    /// It is no object, or a field is no string.
    Unread,
}

const MOST_NAMED: usize = 10;

/// A row as it was found: an object, or what is wrong with it.
type Row = Result<Map<String, Value>, String>;

struct Output<'a> {
    args: &'a Args,
    /// True if verdicts are put in words.
    explain: bool,
    origin: String,
    grader: Extracting<'static>,
    writer: std::io::BufWriter<&'a mut dyn Write>,
    summary: Summary,
    ungraded: Option<Ungraded>,
}

impl Output<'_> {
    /// Grades rows on all cores and writes their lines in order.
    fn batch(&mut self, rows: &[Row]) -> Result<()> {
        let read: Vec<Result<Pair<'_>, String>> = rows.iter().map(|it| self.pair(it)).collect();
        if self.summary.rows == 0 {
            let golds = read.iter().flatten().map(|it| &*it.0);
            if let Some(it) = hapo_eval::unsuited(self.args.grader.name(), golds) {
                errln!("warning: {it}");
            }
        }
        let mut judgements = self.judgements(rows, &read).into_iter();
        for (row, read) in rows.iter().zip(&read) {
            self.summary.rows += 1;
            let row = row.as_ref().ok();
            let (why, problem) = match read {
                Err(it) => (row.map_or(Ungraded::Unread, |row| self.unread(row)), it.clone()),
                Ok((gold, _)) => {
                    let judgement = judgements.next().expect("one judgement per pair");
                    let label = self.args.label_key.as_ref().map(|key| {
                        let of_row = row.and_then(|it| it.get(key));
                        label(of_row).map_err(|problem| format!("{key}: {problem}"))
                    });
                    match (judgement.failure(), label.transpose()) {
                        (Some(problem), _) => (Ungraded::Failed, problem.to_owned()),
                        (None, Err(problem)) => (Ungraded::Unread, problem),
                        (None, Ok(label)) => {
                            self.summary.add(gold, label, &judgement);
                            self.judged(row, gold, &judgement)?;
                            continue;
                        }
                    }
                }
            };
            self.ungraded.get_or_insert(why);
            self.unjudged(row, &problem)?;
        }
        if self.summary.rows > BATCH && std::io::stderr().is_terminal() {
            errln!("{} rows", self.summary.rows);
        }
        Ok(())
    }

    /// The row's name: its field `id`, or else its number.
    fn id(&self, row: Option<&Map<String, Value>>) -> Value {
        row.and_then(|it| it.get("id")).cloned().unwrap_or(json!(self.summary.rows))
    }

    /// Writes a line of the given fields: behind the row's own with `--out`.
    fn write(&mut self, row: Option<&Map<String, Value>>, fields: Value) -> Result<()> {
        let mut line = match row {
            Some(row) if self.args.out.is_some() => Value::Object(row.clone()),
            _ => json!({ "id": self.id(row) }),
        };
        if let (Value::Object(line), Value::Object(fields)) = (&mut line, fields) {
            line.extend(fields);
        }
        writeln!(self.writer, "{line}")?;
        Ok(())
    }

    fn judgements(&self, rows: &[Row], read: &[Result<Pair<'_>, String>]) -> Vec<Judgement> {
        let grader = self.grader;
        if !self.args.grader.is_own() {
            let pairs = read.iter().filter_map(|it| it.as_ref().ok());
            let all: Vec<(Vec<String>, &str)> =
                pairs.map(|it| (hapo_data::golds_in(&it.0), &*it.1)).collect();
            let each = all.iter().flat_map(|(golds, pred)| golds.iter().map(|it| (&**it, *pred)));
            let mut each = grade_batch(&self.grader, &each.collect::<Vec<_>>()).into_iter();
            // Any gold answer counts; without a match, the first says why.
            let of_row = |(golds, _): &(Vec<String>, &str)| {
                let mut of_row: Vec<Judgement> = each.by_ref().take(golds.len()).collect();
                let correct = of_row.iter().position(|it| it.verdict.is_correct());
                of_row.swap_remove(correct.unwrap_or(0))
            };
            return all.iter().map(of_row).collect();
        }
        let pairs = rows.iter().zip(read);
        let pairs = pairs.filter_map(|(row, pair)| Some((row.as_ref().ok()?, pair.as_ref().ok()?)));
        let judge = |(row, (gold, pred)): &(&Map<String, Value>, &Pair<'_>)| {
            let text = |key: &str| row.get(key).and_then(Value::as_str);
            let json = serde_json::to_string(row).expect("it was read as JSON");
            let problem = Problem {
                text: text("prompt").or_else(|| text("problem")).unwrap_or_default(),
                golds: &[gold],
                row: Some(&json),
            };
            let truncated = row.get("truncated").and_then(Value::as_bool).unwrap_or(false);
            let gold = Gold::of(&grader, &problem).expect("it reads any gold answer");
            let completion = Completion { text: pred, truncated };
            Ok::<_, std::convert::Infallible>(gold.judge_completion(completion))
        };
        let Ok(judgements) = in_order(grader.workers(), &pairs.collect::<Vec<_>>(), judge);
        judgements
    }

    fn unjudged(&mut self, row: Option<&Map<String, Value>>, problem: &str) -> Result<()> {
        self.summary.malformed += 1;
        let reason = format!("row {}: {problem}", self.summary.rows);
        match self.summary.malformed {
            ..=MOST_NAMED => errln!("{}: {reason}", self.origin),
            n if n == MOST_NAMED + 1 => errln!("… and more rows without a verdict"),
            _ => {}
        }
        let fields = json!({ "verdict": null, "reason": reason, "extracted": null, "gold_parsed": null, "answer_parsed": null });
        self.write(row, fields)
    }

    /// Why this row, an object, cannot be read.
    fn unread(&self, row: &Map<String, Value>) -> Ungraded {
        let keys = [&self.args.gold_key, &self.args.pred_key];
        if row.is_empty() || keys.iter().all(|key| row.contains_key(*key)) {
            return Ungraded::Unread;
        }
        let names: Vec<String> = row.keys().take(8).map(|it| format!("`{it}`")).collect();
        let absent = keys.into_iter().find(|key| !row.contains_key(*key));
        let known: Vec<&str> = row.keys().map(String::as_str).collect();
        let absent = absent.expect("one of the keys is no field");
        let names = names.join(", ");
        let name = format!("rows have the fields {names}: name two with --gold-key and --pred-key");
        Ungraded::OtherFields(printable(&did_you_mean(absent, &known, "", &name)))
    }

    fn pair<'r>(&self, row: &'r Row) -> Result<Pair<'r>, String> {
        let row = row.as_ref().map_err(Clone::clone)?;
        let field =
            |key: &str| text_of(row.get(key)).map_err(|problem| format!("{key}: {problem}"));
        Ok((field(&self.args.gold_key)?, field(&self.args.pred_key)?))
    }

    fn judged(
        &mut self,
        row: Option<&Map<String, Value>>,
        gold: &str,
        it: &Judgement,
    ) -> Result<()> {
        let verdict = it.verdict.name();
        let reason = match it.verdict {
            hapo_verify::Verdict::Unparsable(why) if it.reward.is_none() => {
                failure::once(&[why.to_string(), it.reason.to_string()])
            }
            _ => it.reason.to_string(),
        };
        if self.explain {
            let extracted = it.extracted.as_deref().unwrap_or("(nothing)");
            writeln!(self.writer, "{}: {verdict}", printable(&self.id(row).to_string()))?;
            for (name, text) in [
                ("gold", gold),
                ("read as", &it.gold_read),
                ("extracted", extracted),
                ("read as", &it.answer_read),
                ("because", &reason),
                ("by", &self.args.rule()),
            ] {
                writeln!(self.writer, "  {name:<9}  {}", printable(text))?;
            }
            return Ok(());
        }
        let mut fields = json!({ "verdict": verdict, "reason": reason, "extracted": it.extracted,
            "gold_parsed": it.gold_read, "answer_parsed": it.answer_read });
        if let Some(reward) = it.reward {
            fields["reward"] = reward.into();
        }
        if !it.parts.is_empty() {
            fields["parts"] = json!(it.parts.iter().cloned().collect::<BTreeMap<_, _>>());
        }
        self.write(row, fields)
    }
}

type Pair<'a> = (Cow<'a, str>, Cow<'a, str>);

/// The text of a field. A number counts as its text: gold answers are often bare.
fn text_of(field: Option<&Value>) -> Result<Cow<'_, str>, String> {
    // From here on a float is no longer the number that was written.
    const EXACT_BELOW: f64 = 9_007_199_254_740_992.0;
    let got = match field {
        Some(Value::String(it)) => return Ok(Cow::Borrowed(it.as_str())),
        Some(Value::Number(it)) => match it.as_f64().filter(|_| it.is_f64()) {
            Some(float) if float.abs() >= EXACT_BELOW => {
                let expected = "expected a string or a number below 2^53";
                return Err(format!("{expected}, got {it}, which may be rounded"));
            }
            // Without an exponent, which the grader would read as Euler's number.
            Some(float) => return Ok(Cow::Owned(float.to_string())),
            None => return Ok(Cow::Owned(it.to_string())),
        },
        Some(Value::Null) => "null",
        Some(Value::Bool(_)) => "a boolean",
        Some(Value::Array(_)) => "a list",
        Some(Value::Object(_)) => "an object",
        None => "nothing",
    };
    Err(format!("expected a string, got {got}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_its_own_digits_or_is_refused() {
        let text = |value: Value| text_of(Some(&value)).map(Cow::into_owned);
        for (value, digits) in [
            (json!(9_007_199_254_740_993_u64), "9007199254740993"),
            (json!(u64::MAX), "18446744073709551615"),
            (json!(9_007_199_254_740_991.0), "9007199254740991"),
            (json!(-2.5e-7), "-0.00000025"),
        ] {
            assert_eq!(text(value).as_deref(), Ok(digits));
        }
        for value in [9_007_199_254_740_992.0, -1.5e300] {
            let problem = text(json!(value)).unwrap_err();
            assert!(problem.starts_with("expected a string or a number below 2^53"), "{problem}");
        }
    }
}
