//! Several models on the same benchmarks, in the layout of the paper's Table 1.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::benchmark::benchmark;
use crate::graded::ProblemResult;
use crate::record::Recorded;
use crate::statistics::{
    Estimate, estimate, estimate_mean_of, mean_paired_difference, paired_difference,
};

/// A table of models and benchmarks. Scores are shares from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Names of the benchmarks.
    pub benchmarks: Vec<String>,
    /// One row per model, in the order given.
    pub rows: Vec<Row>,
}

/// One model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// The model its deltas are against, if any.
    pub base: Option<String>,
    /// Its scores, benchmark by benchmark; `None` where it was not evaluated.
    pub cells: Vec<Option<Cell>>,
    /// Mean over the benchmarks, where it has all of them.
    pub average: Option<Cell>,
}

/// One score.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// avg@k with its interval over problems.
    pub score: Estimate,
    /// The difference to the base, paired problem by problem; `None` without a base that answered the same problems.
    pub delta: Option<Estimate>,
}

/// How a table is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Columns for a terminal.
    Text,
    /// A Markdown table.
    Markdown,
    /// JSON, intervals included.
    Json,
    /// A LaTeX tabular of booktabs.
    Latex,
}

/// Compares records. A model named `X-HAPO` is compared with `X` if that is there; if there is no such pair at all, every
/// model is compared with the first. A benchmark that a record has in part has no score.
pub fn compare(runs: &[(String, Recorded)], seed: u64) -> Comparison {
    let mut benchmarks: Vec<String> = Vec::new();
    for (name, _) in runs.iter().flat_map(|it| &it.1.benchmarks) {
        if !benchmarks.contains(name) {
            benchmarks.push(name.clone());
        }
    }
    // The order of the tables of benchmarks, where they are known.
    benchmarks.sort_by_key(|name| {
        let known = crate::BENCHMARKS.iter().position(|it| it.name == name);
        known.unwrap_or(usize::MAX)
    });
    let host = |name: &str| -> Option<usize> {
        let cut = name.len().checked_sub("-hapo".len())?;
        let (host, end) = (name.get(..cut)?, name.get(cut..)?);
        let is_pair = end.eq_ignore_ascii_case("-hapo");
        runs.iter().position(|it| is_pair && it.0 == host)
    };
    let pairs = runs.iter().any(|it| host(&it.0).is_some());
    let rows = runs.iter().enumerate().map(|(n, (name, run))| {
        let base = if pairs { host(name) } else { (n > 0).then_some(0) };
        let base_run = base.map(|it| &runs[it].1);
        let values: Vec<Option<Paired>> = benchmarks
            .iter()
            .map(|name| paired(whole(run, name)?, base_run.and_then(|base| whole(base, name))))
            .collect();
        let cells = values.iter().map(|it| {
            let it = it.as_ref()?;
            Some(Cell {
                score: estimate(&it.values, seed)?,
                delta: it.base.as_ref().and_then(|base| paired_difference(&it.values, base, seed)),
            })
        });
        Row {
            name: name.clone(),
            base: base.map(|it| runs[it].0.clone()),
            cells: cells.collect(),
            average: average(&values, seed),
        }
    });
    let rows = rows.collect();
    Comparison { benchmarks, rows }
}

/// Benchmarks whose problems' texts differ between two records, with the names of the first two such.
pub fn different_texts(runs: &[(String, Recorded)]) -> BTreeMap<&str, [&str; 2]> {
    let mut first: BTreeMap<&str, (&str, &Value)> = BTreeMap::new();
    let mut differ = BTreeMap::new();
    for (name, recorded) in runs {
        for (benchmark, text) in texts(recorded).into_iter().flatten() {
            let (other, expected) = first.entry(benchmark).or_insert((name, text));
            if *expected != text {
                differ.entry(benchmark.as_str()).or_insert([*other, name]);
            }
        }
    }
    differ
}

/// A benchmark that a record has in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfinished<'a> {
    /// The record's name.
    pub name: &'a str,
    /// The benchmark.
    pub benchmark: &'a str,
    /// Problems that have a result.
    pub problems: usize,
    /// All of its problems.
    pub of: usize,
}

/// The benchmarks that records have in part.
pub fn unfinished(runs: &[(String, Recorded)]) -> Vec<Unfinished<'_>> {
    let mut all = Vec::new();
    for (name, run) in runs {
        for benchmark in texts(run).into_iter().flat_map(Map::keys) {
            let problems = run.benchmark(benchmark).map_or(0, BTreeMap::len);
            let of = problems_of(run, benchmark);
            if problems < of {
                all.push(Unfinished {
                    name: name.as_str(),
                    benchmark: benchmark.as_str(),
                    problems,
                    of,
                });
            }
        }
    }
    all
}

/// Checksums of a record's problems, benchmark by benchmark.
fn texts(run: &Recorded) -> Option<&Map<String, Value>> {
    run.settings.get("texts")?.as_object()
}

/// The number of a benchmark's problems.
fn problems_of(run: &Recorded, benchmark: &str) -> usize {
    run.settings["problems"][benchmark].as_u64().unwrap_or(0) as usize
}

/// A record's results of a benchmark, where it has all of them: those of the first problems are no score of it.
fn whole<'a>(run: &'a Recorded, benchmark: &str) -> Option<&'a BTreeMap<usize, ProblemResult>> {
    let results = run.benchmark(benchmark)?;
    (results.len() >= problems_of(run, benchmark)).then_some(results)
}

/// A model's successes, problem by problem, and its base's on the same problems.
struct Paired {
    values: Vec<f64>,
    base: Option<Vec<f64>>,
}

fn paired(
    run: &BTreeMap<usize, ProblemResult>,
    base: Option<&BTreeMap<usize, ProblemResult>>,
) -> Option<Paired> {
    if run.is_empty() {
        return None;
    }
    let values =
        |it: &BTreeMap<usize, ProblemResult>| it.values().map(ProblemResult::success).collect();
    let same = |base: &&BTreeMap<usize, ProblemResult>| {
        let keys =
            |(number, it): (&usize, &ProblemResult)| (*number, it.id.clone(), it.gold.clone());
        run.iter().map(keys).eq(base.iter().map(keys))
    };
    Some(Paired { values: values(run), base: base.filter(same).map(values) })
}

fn average(sets: &[Option<Paired>], seed: u64) -> Option<Cell> {
    let sets: Vec<&Paired> = sets.iter().map(Option::as_ref).collect::<Option<_>>()?;
    let values: Vec<&[f64]> = sets.iter().map(|it| it.values.as_slice()).collect();
    let pairs = sets.iter().map(|it| Some((it.values.as_slice(), it.base.as_deref()?)));
    let pairs: Option<Vec<(&[f64], &[f64])>> = pairs.collect();
    let delta = pairs.and_then(|pairs| mean_paired_difference(&pairs, seed));
    Some(Cell { score: estimate_mean_of(&values, seed)?, delta })
}

impl Comparison {
    /// The table as text. Scores and deltas are in percent; a star marks a delta whose 95 % interval leaves out 0.
    pub fn render(&self, layout: Layout) -> String {
        match layout {
            Layout::Text => self.text(),
            Layout::Markdown => self.markdown(),
            Layout::Json => format!("{}\n", json!(self)),
            Layout::Latex => self.latex(),
        }
    }

    fn heads(&self) -> Vec<String> {
        let title = |it: &String| benchmark(it).map_or(it.clone(), |it| it.title.to_owned());
        let mut heads = vec!["Method".to_owned()];
        heads.extend(self.benchmarks.iter().map(title));
        heads.push("Avg Acc".to_owned());
        heads
    }

    fn text(&self) -> String {
        let mut lines = vec![self.heads()];
        for row in &self.rows {
            let mut line = vec![row.name.clone()];
            line.extend(row.all().map(|it| it.map_or("-".to_owned(), plain)));
            lines.push(line);
        }
        let width = |column: usize| {
            let widths = lines.iter().map(|it| it[column].chars().count());
            widths.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
        let mut text = String::new();
        for line in &lines {
            let mut padded = format!("{:<1$}", line[0], widths[0]);
            for (it, width) in line.iter().zip(&widths).skip(1) {
                padded += &format!("  {it:<width$}");
            }
            text += padded.trim_end();
            text.push('\n');
        }
        text
    }

    fn markdown(&self) -> String {
        let heads: Vec<String> = self.heads().iter().map(|it| it.replace('|', "\\|")).collect();
        let mut text = format!("| {} |\n|---|", heads.join(" | "));
        text += &"---:|".repeat(heads.len() - 1);
        text.push('\n');
        for row in &self.rows {
            text += &format!("| {} |", row.name.replace('|', "\\|"));
            for it in row.all() {
                text += &format!(" {} |", it.map_or("-".to_owned(), plain));
            }
            text.push('\n');
        }
        text
    }

    fn latex(&self) -> String {
        let heads: Vec<String> = self.heads().iter().map(|it| escaped(it)).collect();
        let columns = "c".repeat(heads.len() - 1);
        let mut text = format!(
            "\\begin{{tabular}}{{l{columns}}}\n\\toprule\n{} \\\\\n\\midrule\n",
            heads.join(" & ")
        );
        for row in &self.rows {
            let mut line = vec![escaped(&row.name)];
            for (column, it) in row.all().enumerate() {
                let Some(it) = it else {
                    line.push("--".to_owned());
                    continue;
                };
                let value = format!("{:.2}", 100.0 * it.score.mean);
                let better = self.better(column, it.score.mean);
                let mut cell = match better {
                    0 => format!("\\textbf{{{value}}}"),
                    1 => format!("\\underline{{{value}}}"),
                    _ => value,
                };
                if let Some(delta) = it.delta {
                    cell += &format!("\\,{{\\scriptsize ({})}}", signed(delta));
                }
                line.push(cell);
            }
            text += &format!("{} \\\\\n", line.join(" & "));
        }
        text + "\\bottomrule\n\\end{tabular}\n"
    }

    /// How many different scores of a column are better.
    fn better(&self, column: usize, score: f64) -> usize {
        let mut above: Vec<f64> = self
            .rows
            .iter()
            .filter_map(|it| it.all().nth(column)?.map(|it| it.score.mean))
            .filter(|it| *it > score)
            .collect();
        above.sort_by(f64::total_cmp);
        above.dedup();
        above.len()
    }
}

impl Row {
    /// Its scores and its average.
    fn all(&self) -> impl Iterator<Item = Option<Cell>> {
        self.cells.iter().copied().chain([self.average])
    }
}

fn plain(it: Cell) -> String {
    let score = format!("{:.2}", 100.0 * it.score.mean);
    match it.delta {
        Some(delta) => format!("{score} ({})", signed(delta)),
        None => score,
    }
}

fn signed(delta: Estimate) -> String {
    let star = if delta.low > 0.0 || delta.high < 0.0 { "*" } else { "" };
    format!("{:+.2}{star}", 100.0 * delta.mean)
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for it in text.chars() {
        match it {
            '\\' => escaped += "\\textbackslash{}",
            '~' => escaped += "\\textasciitilde{}",
            '^' => escaped += "\\textasciicircum{}",
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => escaped.extend(['\\', it]),
            _ => escaped.push(it),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graded::GradedCompletion;
    use expect_test::{Expect, expect};
    use hapo_core::Verdict;

    fn run(name: &str, sets: &[(&str, &[u8])]) -> (String, Recorded) {
        let answers = |(number, it): (usize, &u8)| {
            let answer = GradedCompletion {
                text: String::new(),
                verdict: if *it == 1 { Verdict::Correct } else { Verdict::Wrong },
                reward: None,
                other: None,
                answer: None,
                vote: Some(0),
                tokens: None,
                ended: true,
            };
            let it = ProblemResult {
                id: number.to_string(),
                gold: "1".into(),
                completions: vec![answer],
            };
            (number, it)
        };
        let benchmarks = sets
            .iter()
            .map(|(name, it)| ((*name).to_owned(), it.iter().enumerate().map(answers).collect()));
        let recorded = Recorded { settings: Value::Null, benchmarks: benchmarks.collect() };
        (name.to_owned(), recorded)
    }

    fn runs() -> Vec<(String, Recorded)> {
        vec![
            run("GRPO", &[("amc", &[1, 0, 0, 0]), ("math500", &[1, 1, 0, 0])]),
            run("TRAPO", &[("math500", &[0, 0, 0, 0]), ("amc", &[1, 0, 0, 0])]),
            run("TRAPO-HAPO", &[("math500", &[1, 1, 1, 1]), ("amc", &[0, 1, 0, 0])]),
            run("other_1", &[("math500", &[1, 0, 0])]),
        ]
    }

    fn check(layout: Layout, expected: &Expect) {
        expected.assert_eq(&compare(&runs(), 0).render(layout));
    }

    #[test]
    fn hapo_is_compared_with_its_host_in_every_layout() {
        check(
            Layout::Text,
            &expect![[r#"
                Method      Math-500           AMC            Avg Acc
                GRPO        50.00              25.00          37.50
                TRAPO       0.00               25.00          12.50
                TRAPO-HAPO  100.00 (+100.00*)  25.00 (+0.00)  62.50 (+50.00*)
                other_1     33.33              -              -
            "#]],
        );
        check(
            Layout::Markdown,
            &expect![[r#"
                | Method | Math-500 | AMC | Avg Acc |
                |---|---:|---:|---:|
                | GRPO | 50.00 | 25.00 | 37.50 |
                | TRAPO | 0.00 | 25.00 | 12.50 |
                | TRAPO-HAPO | 100.00 (+100.00*) | 25.00 (+0.00) | 62.50 (+50.00*) |
                | other_1 | 33.33 | - | - |
            "#]],
        );
        check(
            Layout::Latex,
            &expect![[r#"
                \begin{tabular}{lccc}
                \toprule
                Method & Math-500 & AMC & Avg Acc \\
                \midrule
                GRPO & \underline{50.00} & \textbf{25.00} & \underline{37.50} \\
                TRAPO & 0.00 & \textbf{25.00} & 12.50 \\
                TRAPO-HAPO & \textbf{100.00}\,{\scriptsize (+100.00*)} & \textbf{25.00}\,{\scriptsize (+0.00)} & \textbf{62.50}\,{\scriptsize (+50.00*)} \\
                other\_1 & 33.33 & -- & -- \\
                \bottomrule
                \end{tabular}
            "#]],
        );
        let json: Value = serde_json::from_str(&compare(&runs(), 0).render(Layout::Json)).unwrap();
        assert_eq!(json["rows"][2]["base"], "TRAPO");
        assert_eq!(json["rows"][2]["cells"][0]["delta"]["low"], 1.0);
        assert_eq!(json["rows"][1]["cells"][0]["delta"], Value::Null);
        assert_eq!(json["rows"][3]["average"], Value::Null);
    }

    #[test]
    fn without_a_pair_the_first_is_the_base_and_other_problems_are_not_compared() {
        let runs = [
            run("a", &[("x", &[1, 0])]),
            run("b", &[("x", &[1, 1])]),
            run("c", &[("x", &[1, 1, 1])]),
        ];
        let table = compare(&runs, 0);
        let deltas: Vec<Option<f64>> =
            table.rows.iter().map(|it| it.cells[0].unwrap().delta.map(|it| it.mean)).collect();
        assert_eq!(deltas, [None, Some(0.5), None]);
        assert_eq!(table.rows[1].base.as_deref(), Some("a"));
    }

    #[test]
    fn an_unfinished_record_has_no_score_and_is_named() {
        let mut runs = [
            run("new", &[("x", &[1, 1, 1])]),
            run("whole", &[("x", &[1, 0, 1, 0]), ("y", &[1])]),
            run("cut", &[("x", &[1, 1])]),
            run("other", &[("x", &[1, 0])]),
        ];
        for (run, (text, n)) in runs.iter_mut().zip([("f0", 4), ("f0", 4), ("f0", 4), ("f1", 2)]) {
            run.1.settings = json!({ "texts": { "x": text }, "problems": { "x": n } });
        }
        let found: Vec<_> = unfinished(&runs)
            .iter()
            .map(|it| (it.name, it.benchmark, it.problems, it.of))
            .collect();
        assert_eq!(found, [("new", "x", 3, 4), ("cut", "x", 2, 4)]);
        let table = compare(&runs, 0);
        let scores: Vec<Option<f64>> =
            table.rows.iter().map(|it| it.cells[0].map(|it| it.score.mean)).collect();
        assert_eq!(scores, [None, Some(0.5), None, Some(0.5)]);
    }
}
