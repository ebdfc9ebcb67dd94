//! `hapo methods`: the table of the methods, and the page of each.

use hapo_train::recipe::did_you_mean;

use crate::{failure::bad_input, support::arguments::Suggesting};

/// Print the table of the methods, or the page of one: idea, settings, departures from the paper.
#[derive(clap::Args)]
#[command(before_help = "Example: hapo methods uft")]
pub(crate) struct Args {
    /// Method or variant, of `hapo list methods`, or hapo
    #[arg(hide_possible_values = true, value_parser = PAGE_NAMES)]
    name: Option<String>,
}

/// Names and texts of the pages in `docs/methods`, the table first.
const PAGES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/pages.rs"));

const PAGE_NAMES: Suggesting = Suggesting(|| PAGES[1..].iter().map(|page| page.0).collect());

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let Some(name) = &args.name else {
        for [name, idea, needs] in rows(PAGES[0].1) {
            let needs = if needs == "nothing" { String::new() } else { format!(" [{needs}]") };
            outln!("{name:<12} {idea}{needs}");
        }
        outln!(
            "\nIn brackets: what the data or the run must have. A method's page: hapo methods uft"
        );
        return Ok(());
    };
    // A variant stands on the page of its method.
    let of_variant =
        hapo_core::METHODS.iter().find(|it| it.variants.iter().any(|it| it.name == name));
    let wanted = of_variant.map_or(name.as_str(), |it| it.name);
    let page = PAGES[1..].iter().find(|it| it.0 == wanted).ok_or_else(|| {
        let hint = did_you_mean(name, &(PAGE_NAMES.0)(), "", "`hapo methods` lists them");
        bad_input(format!("unknown method `{name}`"), hint)
    })?;
    outln!("{}", page.1.trim_end());
    Ok(())
}

/// Name, idea and needs in each row of the table, which has the verdict between them.
fn rows(table: &str) -> impl Iterator<Item = [&str; 3]> {
    table.lines().filter(|it| it.starts_with("| [")).filter_map(|row| {
        let mut cells = row.split('|').skip(1).map(str::trim);
        let name = cells.next()?.strip_prefix('[')?.split(']').next()?;
        Some([name, cells.next()?, cells.nth(1)?])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_row_for_each_page() {
        let mut names: Vec<&str> = rows(PAGES[0].1).map(|it| it[0]).collect();
        names.sort_unstable();
        assert_eq!(names, PAGES[1..].iter().map(|it| it.0).collect::<Vec<_>>());
        let uft = rows(PAGES[0].1).find(|it| it[0] == "uft").unwrap();
        assert_eq!(uft, ["uft", "rollouts behind a part of a trace that shrinks; R3", "traces"]);
    }

    #[test]
    fn every_method_and_every_file_has_its_page() {
        for it in hapo_core::METHODS {
            assert!(PAGES.iter().any(|page| page.0 == it.name), "{}", it.name);
        }
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/methods");
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), PAGES.len());
    }
}
