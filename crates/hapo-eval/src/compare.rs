//! Several models on the same benchmarks, in the layout of the paper's Table 1.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Value, json};

use crate::statistics::{Estimate, estimate_mean_of, mean_paired_difference};
use crate::{benchmark::benchmark, grading::ProblemResult, scores::Recorded};

/// A table of models and benchmarks. Scores are shares from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub benchmarks: Vec<String>,
    /// The scores of a benchmark are mean rewards: one other than 0 and 1 occurred.
    pub graded: Vec<bool>,
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub name: String,
    /// The model its deltas are against, if any.
    pub base: Option<String>,
    /// Its scores, benchmark by benchmark; `None` where it was not evaluated.
    pub cells: Vec<Option<Cell>>,
    /// Mean over the benchmarks, where it has all of them.
    pub average: Option<Cell>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// avg@k with its interval over problems.
    pub score: Estimate,
    /// The difference to the base, paired problem by problem; `None` without a base that answered the same problems.
    pub delta: Option<Estimate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    Text,
    Markdown,
    Json,
    Latex,
}

/// Compares records. A model named `X-HAPO` is compared with `X` if that is there; if there is no such pair at all, every
/// model is compared with the first. A benchmark that a record has in part has no score.
pub fn compare(runs: &[(String, Recorded)], seed: u64) -> Comparison {
    let mut seen = BTreeSet::new();
    let names = runs.iter().flat_map(|run| &run.1.benchmarks).map(|(name, _)| name);
    let mut benchmarks: Vec<String> = names.filter(|it| seen.insert(*it)).cloned().collect();
    // The order of the tables of benchmarks, where they are known.
    benchmarks.sort_by_key(|name| {
        crate::BENCHMARKS.iter().position(|known| known.name == name).unwrap_or(usize::MAX)
    });
    let host = |name: &str| -> Option<usize> {
        let cut = name.len().checked_sub("-hapo".len())?;
        let (host, end) = (name.get(..cut)?, name.get(cut..)?);
        let is_pair = end.eq_ignore_ascii_case("-hapo");
        runs.iter().position(|run| is_pair && run.0 == host)
    };
    let is_graded = |name: &String| {
        let results = runs.iter().filter_map(|run| run.1.benchmark(name));
        results.flat_map(BTreeMap::values).any(ProblemResult::is_graded)
    };
    let graded: Vec<bool> = benchmarks.iter().map(is_graded).collect();
    let pairs = runs.iter().any(|run| host(&run.0).is_some());
    let rows = runs.iter().enumerate().map(|(n, (name, run))| {
        let base = if pairs { host(name) } else { (n > 0).then_some(0) };
        let base = base.map(|base| &runs[base]);
        let values: Vec<Option<Paired>> = (benchmarks.iter().zip(&graded))
            .map(|(of, graded)| Paired::of(run, base.map(|base| &base.1), (of, *graded)))
            .collect();
        let cell = |values: &Option<Paired>| cell(std::slice::from_ref(values.as_ref()?), seed);
        let all: Option<Vec<Paired>> = values.iter().cloned().collect();
        Row {
            name: name.clone(),
            base: base.map(|base| base.0.clone()),
            cells: values.iter().map(cell).collect(),
            // A mean over rewards and shares says nothing.
            average: all
                .filter(|_| !graded.contains(&true) || !graded.contains(&false))
                .and_then(|all| self::cell(&all, seed)),
        }
    });
    let rows = rows.collect();
    Comparison { benchmarks, graded, rows }
}

/// Warnings about records before they are compared: benchmarks whose problems' texts differ, and unfinished ones.
pub fn warnings(runs: &[(String, Recorded)]) -> Vec<String> {
    let mut first: BTreeMap<&str, (&str, &Value)> = BTreeMap::new();
    let (mut differ, mut unfinished) = (BTreeMap::new(), Vec::new());
    for (name, run) in runs {
        for (benchmark, text) in run.settings["texts"].as_object().into_iter().flatten() {
            let (other, expected) = first.entry(benchmark).or_insert((name, text));
            if *expected != text {
                differ.entry(benchmark.as_str()).or_insert([*other, name]);
            }
            let (problems, of) =
                (run.benchmark(benchmark).map_or(0, BTreeMap::len), problems_of(run, benchmark));
            if problems < of {
                unfinished.push(format!(
                    "{name}: {problems} of {of} problems of {benchmark}; the score is left out until the same command finishes the record"
                ));
            }
        }
    }
    let differ = differ.into_iter().map(|(benchmark, [one, other])| {
        format!("{benchmark}: the problems' texts differ between {one} and {other}")
    });
    differ.chain(unfinished).collect()
}

fn problems_of(run: &Recorded, benchmark: &str) -> usize {
    run.settings["problems"][benchmark].as_u64().unwrap_or(0) as usize
}

/// The results of a benchmark, where there are all.
fn whole<'r>(run: &'r Recorded, benchmark: &str) -> Option<&'r BTreeMap<usize, ProblemResult>> {
    run.benchmark(benchmark).filter(|results| results.len() >= problems_of(run, benchmark))
}

/// A model's successes on a benchmark, problem by problem, and its base's on the same problems.
#[derive(Clone)]
struct Paired {
    values: Vec<f64>,
    base: Option<Vec<f64>>,
}

impl Paired {
    /// `None` where the run does not have all problems: those of the first are no score of it.
    fn of(
        run: &Recorded,
        base: Option<&Recorded>,
        (benchmark, is_graded): (&str, bool),
    ) -> Option<Self> {
        let run = whole(run, benchmark).filter(|results| !results.is_empty())?;
        let value = if is_graded { ProblemResult::reward } else { ProblemResult::success };
        let values = |of: &BTreeMap<usize, ProblemResult>| of.values().map(value).collect();
        let base = base.and_then(|base| whole(base, benchmark)).filter(|base| {
            let key =
                |(number, of): (&usize, &ProblemResult)| (*number, of.id.clone(), of.gold.clone());
            run.iter().map(key).eq(base.iter().map(key))
        });
        Some(Self { values: values(run), base: base.map(values) })
    }
}

/// The mean over sets, each weighing the same.
fn cell(sets: &[Paired], seed: u64) -> Option<Cell> {
    let values: Vec<&[f64]> = sets.iter().map(|set| set.values.as_slice()).collect();
    let pairs = sets.iter().map(|set| Some((set.values.as_slice(), set.base.as_deref()?)));
    let pairs: Option<Vec<(&[f64], &[f64])>> = pairs.collect();
    let delta = pairs.and_then(|pairs| mean_paired_difference(&pairs, seed));
    Some(Cell { score: estimate_mean_of(&values, seed)?, delta })
}

impl Comparison {
    /// The table as text. Scores and deltas are in percent, mean rewards times 100; a star marks a delta whose 95 % interval leaves out 0.
    pub fn render(&self, layout: Layout) -> String {
        match layout {
            Layout::Text => padded(&self.lines(|_, cell| plain(cell))),
            Layout::Markdown => self.markdown(),
            Layout::Json => format!("{}\n", json!(self)),
            Layout::Latex => self.latex(),
        }
    }

    /// The heads, and each model with its scores and their average; `shown` writes the score of a column.
    fn lines(&self, shown: impl Fn(usize, Option<Cell>) -> String) -> Vec<Vec<String>> {
        let titles = self.benchmarks.iter().zip(&self.graded).map(|(name, graded)| {
            let title = benchmark(name).map_or(name.as_str(), |known| known.title);
            if *graded { format!("{title}, mean reward") } else { title.to_owned() }
        });
        let heads = ["Method".to_owned()].into_iter().chain(titles);
        let heads = heads.chain(["Avg Acc".to_owned()]).collect();
        let row = |row: &Row| {
            let cells = row.all().enumerate().map(|(column, cell)| shown(column, cell));
            [row.name.clone()].into_iter().chain(cells).collect()
        };
        [heads].into_iter().chain(self.rows.iter().map(row)).collect()
    }

    fn markdown(&self) -> String {
        let mut text = String::new();
        for (n, line) in self.lines(|_, cell| plain(cell)).iter().enumerate() {
            text += &format!("| {} |\n", line.join("\n").replace('|', "\\|").replace('\n', " | "));
            if n == 0 {
                text += &format!("|---|{}\n", "---:|".repeat(line.len() - 1));
            }
        }
        text
    }

    fn latex(&self) -> String {
        let mut lines = self.lines(|column, cell| self.in_latex(column, cell));
        lines[0].iter_mut().for_each(|head| *head = escaped(head));
        lines[1..].iter_mut().for_each(|line| line[0] = escaped(&line[0]));
        let columns = "c".repeat(lines[0].len() - 1);
        let mut text = format!("\\begin{{tabular}}{{l{columns}}}\n\\toprule\n");
        for (n, line) in lines.iter().enumerate() {
            text += &format!("{} \\\\\n", line.join(" & "));
            if n == 0 {
                text += "\\midrule\n";
            }
        }
        text + "\\bottomrule\n\\end{tabular}\n"
    }

    /// The best score of a column is bold, the second best underlined.
    fn in_latex(&self, column: usize, cell: Option<Cell>) -> String {
        let Some(cell) = cell else { return "--".to_owned() };
        let scores =
            self.rows.iter().filter_map(|row| row.all().nth(column)?.map(|cell| cell.score.mean));
        let mut better: Vec<f64> = scores.filter(|score| *score > cell.score.mean).collect();
        better.sort_by(f64::total_cmp);
        better.dedup();
        let value = format!("{:.2}", 100.0 * cell.score.mean);
        let value = match better.len() {
            0 => format!("\\textbf{{{value}}}"),
            1 => format!("\\underline{{{value}}}"),
            _ => value,
        };
        match cell.delta {
            Some(delta) => format!("{value}\\,{{\\scriptsize ({})}}", signed(delta)),
            None => value,
        }
    }
}

/// A table as lines of text, each column as wide as its widest cell.
pub fn padded(table: &[Vec<String>]) -> String {
    let width = |column: usize| table.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..table[0].len()).filter_map(width).collect();
    let mut text = String::new();
    for row in table {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

impl Row {
    fn all(&self) -> impl Iterator<Item = Option<Cell>> {
        self.cells.iter().copied().chain([self.average])
    }
}

fn plain(cell: Option<Cell>) -> String {
    let Some(Cell { score, delta }) = cell else { return "-".to_owned() };
    let delta = delta.map_or(String::new(), |delta| format!(" ({})", signed(delta)));
    format!("{:.2}{delta}", 100.0 * score.mean)
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
    use crate::grading::GradedCompletion;
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
        let left_out = "the score is left out until the same command finishes the record";
        let expected = [
            "x: the problems' texts differ between new and other".to_owned(),
            format!("new: 3 of 4 problems of x; {left_out}"),
            format!("cut: 2 of 4 problems of x; {left_out}"),
        ];
        assert_eq!(warnings(&runs), expected);
        let table = compare(&runs, 0);
        let scores: Vec<Option<f64>> =
            table.rows.iter().map(|it| it.cells[0].map(|it| it.score.mean)).collect();
        assert_eq!(scores, [None, Some(0.5), None, Some(0.5)]);
    }
}
