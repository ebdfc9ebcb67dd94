//! A study's tables as Markdown and as a page.

use std::fmt::Write as _;

use hapo_eval::Estimate;

use crate::chart;
use crate::html::escaped;
use crate::tables::{CURVES, Row, StudyResults, Table, label};

/// Before the tables of the page.
const HEAD: &str = "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
    <title>hapo study mini</title><style>:root{color-scheme:light dark;font:15px system-ui}\
    body{max-width:80rem;margin:2rem auto;padding:0 1rem}.scroll{overflow-x:auto}.charts{display:flex;flex-wrap:wrap;gap:1rem}figure{margin:0}\
    table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
    td,th{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #8885;white-space:nowrap}\
    td:first-child,th:first-child{text-align:left}</style><h1>The paper in miniature</h1>\n";

impl StudyResults {
    /// The tables as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!(
            "Runs by hapo {}, on {}. Success on {} held-out problems of each benchmark, {} completions each at temperature {}; \
             in brackets the 95 % interval over seeds and problems, which one seed does not give.\n",
            self.builds.join(" and "),
            self.cpu,
            self.problems,
            self.completions,
            self.temperature
        );
        if !self.learning_rates.is_empty() {
            let rates: Vec<String> =
                self.learning_rates.iter().map(|(name, rate)| format!("{name} {rate:e}")).collect();
            text += &format!(
                "Learning rates, chosen on the development split: {}.\n",
                rates.join(", ")
            );
        }
        for table in &self.tables {
            text += &format!("\n## {}\n\n", table.title);
            text += &scores(table, &self.benchmarks);
            text += &differences(table);
            text += &curves(table);
        }
        text
    }

    /// The tables as a page, with charts.
    pub(crate) fn html(&self) -> String {
        let mut body = String::new();
        let markdown = self.markdown();
        let mut in_table = false;
        for line in markdown.lines().chain([""]) {
            if line.starts_with("|---") {
                continue;
            }
            if line.starts_with('|') {
                body += if in_table { "" } else { "<div class=scroll><table>\n" };
                body += &table_row(line, if in_table { "td" } else { "th" });
                in_table = true;
                continue;
            }
            if in_table {
                body += "</table></div>\n";
                in_table = false;
            }
            match line.strip_prefix("## ") {
                Some(title) => {
                    body += &format!("<h2>{}</h2>\n", escaped(title));
                    body += &self.charts(title);
                }
                None if line.is_empty() => {}
                None => body += &format!("<p>{}</p>\n", escaped(line)),
            }
        }
        format!("{HEAD}{body}</html>\n")
    }

    /// The curves of a table's rows over the steps.
    fn charts(&self, title: &str) -> String {
        let Some(table) = self.tables.iter().find(|it| it.title == title) else {
            return String::new();
        };
        let rows: Vec<&Row> = (table.rows.iter())
            .filter(|it| it.steps.iter().flatten().any(|it| it.is_finite()))
            .collect();
        let labels: Vec<&str> = rows.iter().map(|it| it.label).collect();
        let charts = CURVES.iter().enumerate().filter_map(|(n, (_, name))| {
            let lines: Vec<&[f64]> = rows.iter().map(|it| &*it.steps[n]).collect();
            chart::chart(name, &lines)
        });
        let charts: String = charts.collect();
        if charts.is_empty() {
            return charts;
        }
        format!("{}<div class=charts>{charts}</div>\n", chart::legend(&labels))
    }
}

/// A line of a Markdown table as a row of a page's.
fn table_row(line: &str, tag: &str) -> String {
    let mut row = String::from("<tr>");
    for it in line.trim_matches('|').split('|') {
        let _ = write!(row, "<{tag}>{}</{tag}>", escaped(it.trim()));
    }
    row + "</tr>\n"
}

fn scores(table: &Table, benchmarks: &[String]) -> String {
    let mut text = String::from("| | seeds |");
    for it in benchmarks {
        let _ = write!(text, " {it} |");
    }
    text += " average | tokens | s |\n|---|---|";
    text += &"---|".repeat(benchmarks.len() + 3);
    text += "\n";
    for row in &table.rows {
        let _ = write!(text, "| {} | {} |", row.label, row.seeds);
        for it in &row.by_benchmark {
            let _ = write!(text, " {it:.3} |");
        }
        let average = interval(row.average, row.seeds, false);
        let _ = writeln!(text, " {average} | {:.0} | {:.0} |", row.tokens, row.seconds);
    }
    text
}

fn differences(table: &Table) -> String {
    let mut text = String::from("\n| difference | seeds | average |\n|---|---|---|\n");
    for it in &table.differences {
        let average =
            it.average.map_or_else(|| "–".to_owned(), |all| interval(all, it.seeds, true));
        let (row, baseline) = (label(it.row), label(it.baseline));
        let _ = writeln!(text, "| {row} over {baseline} | {} | {average} |", it.seeds);
    }
    text
}

fn curves(table: &Table) -> String {
    let mut text =
        String::from("\nMeans over the first, middle and last third of the steps:\n\n| |");
    for (_, name) in CURVES {
        let _ = write!(text, " {name} |");
    }
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(CURVES.len()));
    for row in table.rows.iter().filter(|it| it.name != "base") {
        let curves: Vec<String> = row.curves.iter().map(|it| curve(*it)).collect();
        let _ = writeln!(text, "| {} | {} |", row.label, curves.join(" | "));
    }
    text
}

/// A mean with its interval; of one seed without, since seeds differ by more than problems.
fn interval(it: Estimate, seeds: usize, signed: bool) -> String {
    match (seeds, signed) {
        (0 | 1, true) => format!("{:+.3}", it.mean),
        (0 | 1, false) => format!("{:.3}", it.mean),
        (_, true) => format!("{:+.3} [{:+.3}, {:+.3}]", it.mean, it.low, it.high),
        (_, false) => format!("{:.3} [{:.3}, {:.3}]", it.mean, it.low, it.high),
    }
}

fn curve(thirds: [f64; 3]) -> String {
    let texts = thirds.map(|it| match it {
        it if it.is_nan() => "–".to_owned(),
        it if it.abs() >= 10.0 => format!("{it:.0}"),
        it => format!("{it:.2}"),
    });
    if texts.iter().all(|it| it == "–") { "–".to_owned() } else { texts.join(" → ") }
}
