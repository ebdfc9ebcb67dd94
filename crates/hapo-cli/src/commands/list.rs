//! `hapo list`: the tables of names.

use hapo_train::recipe::{BUILTIN_RECIPES, BuiltinRecipe};
use serde_json::{Value, json};

/// List methods, gates, operators, graders, templates, layouts, benchmarks, model families, recipes.
#[derive(clap::Args)]
#[command(before_help = "Example: hapo list methods")]
pub(crate) struct Args {
    /// Only this table
    #[arg(value_enum)]
    what: Option<Table>,
    /// Print JSON: a list of names and summaries for each table
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Table {
    Methods,
    Gates,
    Operators,
    Graders,
    Templates,
    Layouts,
    Benchmarks,
    Families,
    TaskFamilies,
    Recipes,
}

type Row = (&'static str, String);

fn rows<T>(table: &[T], row: impl Fn(&T) -> (&'static str, &'static str)) -> Vec<Row> {
    let named = table.iter().map(row);
    named.map(|(name, summary)| (name, summary.to_owned())).collect()
}

/// The built-in recipes, the shorter runs first.
fn recipes() -> Vec<Row> {
    let hours = |it: &BuiltinRecipe| it.hours().and_then(|it| it.parse().ok()).unwrap_or(0.0);
    let mut all: Vec<&BuiltinRecipe> = BUILTIN_RECIPES.iter().collect();
    all.sort_by(|a, b| f64::total_cmp(&hours(a), &hours(b)));
    let row = |it: &BuiltinRecipe| match it.hours() {
        Some(hours) => (it.name, format!("{hours} h on two cores. {}", it.summary())),
        None => (it.name, it.summary().to_owned()),
    };
    all.into_iter().map(row).collect()
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let chat = [(hapo_data::CHAT, hapo_data::CHAT_ORIGIN)];
    let mut templates = rows(hapo_data::TEMPLATES, |it| (it.name, it.origin));
    templates.extend(rows(&chat, |it| *it));
    let methods = hapo_core::METHODS.iter().flat_map(|it| {
        let variants = it.variants.iter().map(|it| (it.name, it.summary));
        [(it.name, it.summary)].into_iter().chain(variants).collect::<Vec<_>>()
    });
    let methods = rows(&methods.collect::<Vec<_>>(), |it| *it);
    let layouts = rows(hapo_data::DATASET_LAYOUTS, |it| (it.name, it.summary));
    let task_families = rows(hapo_data::task::FAMILIES, |it| (it.name, it.summary));
    let tables = [
        (Table::Methods, "methods", methods),
        (Table::Gates, "gates", rows(hapo_core::GATES, |it| (it.name, it.summary))),
        (Table::Operators, "operators", rows(hapo_core::OPERATORS, |it| (it.name, it.summary))),
        (Table::Graders, "graders", rows(hapo_verify::GRADERS, |it| (it.name(), it.summary()))),
        (Table::Templates, "templates", templates),
        (Table::Layouts, "layouts", layouts),
        (Table::Benchmarks, "benchmarks", rows(hapo_eval::BENCHMARKS, |it| (it.name, it.summary))),
        (Table::Families, "families", rows(hapo_model::FAMILIES, |it| (it.name, it.summary))),
        (Table::TaskFamilies, "task families", task_families),
        (Table::Recipes, "recipes", recipes()),
    ];
    let chosen = tables.iter().filter(|it| args.what.is_none_or(|what| what == it.0));
    if args.json {
        let entry = |(name, summary): &Row| json!({"name": name, "summary": summary});
        let named = chosen.map(|(_, title, rows)| {
            ((*title).to_owned(), rows.iter().map(entry).collect::<Value>())
        });
        outln!("{}", Value::Object(named.collect()));
        return Ok(());
    }
    for (_, title, rows) in chosen {
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
