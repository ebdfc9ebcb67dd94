//! `hapo list`: what there is.

use anyhow::Result;

/// What there is: methods, operators, graders, templates, layouts, benchmarks.
#[derive(clap::Args)]
#[command(before_help = "Example: hapo list methods")]
pub(crate) struct Args {
    /// Only this table
    #[arg(value_enum)]
    what: Option<Table>,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Table {
    Methods,
    Operators,
    Graders,
    Templates,
    Layouts,
    Benchmarks,
    Families,
}

/// A table, its title, and its rows of name and summary.
type Listing = (Table, &'static str, Vec<(&'static str, &'static str)>);

pub(crate) fn run(args: &Args) -> Result<()> {
    let tables: [Listing; 7] = [
        (
            Table::Methods,
            "methods",
            hapo_core::METHODS
                .iter()
                .flat_map(|it| {
                    let variants = it.variants.iter().map(|it| (it.name, it.summary));
                    [(it.name, it.summary)].into_iter().chain(variants)
                })
                .collect(),
        ),
        (
            Table::Operators,
            "operators",
            hapo_core::OPERATORS
                .iter()
                .map(|it| (it.name, it.summary))
                .collect(),
        ),
        (
            Table::Graders,
            "graders",
            hapo_verify::GRADERS
                .iter()
                .map(|it| (it.name(), it.summary()))
                .collect(),
        ),
        (
            Table::Templates,
            "templates",
            hapo_data::TEMPLATES
                .iter()
                .map(|it| (it.name, it.origin))
                .chain([(hapo_data::CHAT, hapo_data::CHAT_ORIGIN)])
                .collect(),
        ),
        (
            Table::Layouts,
            "layouts",
            hapo_data::DATASET_LAYOUTS
                .iter()
                .map(|it| (it.name, it.summary))
                .collect(),
        ),
        (
            Table::Benchmarks,
            "benchmarks",
            hapo_eval::BENCHMARKS
                .iter()
                .map(|it| (it.name, it.summary))
                .collect(),
        ),
        (
            Table::Families,
            "families",
            hapo_data::task::FAMILIES
                .iter()
                .map(|it| (it.name, it.summary))
                .collect(),
        ),
    ];
    for (_, title, rows) in tables
        .iter()
        .filter(|it| args.what.is_none_or(|what| what == it.0))
    {
        if args.what.is_none() {
            outln!("{title}");
        }
        let width = rows.iter().map(|it| it.0.len()).max().unwrap_or(0);
        for (name, summary) in rows {
            outln!("  {name:width$}  {summary}");
        }
    }
    Ok(())
}
