//! `hapo methods`: the table of the methods, and the page of each.

use anyhow::Result;

use crate::failure::bad_input;
use crate::support::arguments::Suggesting;

/// Print the table of the methods, or the page of one: idea, settings, departures from the paper.
#[derive(clap::Args)]
#[command(before_help = "Example: hapo methods uft")]
pub(crate) struct Args {
    /// Method or variant, of `hapo list methods`, or hapo
    #[arg(hide_possible_values = true, value_parser = PAGE_NAMES)]
    name: Option<String>,
}

macro_rules! pages {
    ($($name:literal,)+) => {
        &[$((
            $name,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/methods/", $name, ".md")),
        ),)+]
    };
}

/// Names and texts of the pages in `docs/methods`, the table first.
const PAGES: &[(&str, &str)] = pages![
    "README",
    "ampo",
    "chord-mu",
    "chord-phi",
    "edge",
    "exgrpo",
    "ghpo",
    "grpo",
    "hapo",
    "hpt",
    "kdrl",
    "luffy",
    "maxrl",
    "ngrpo",
    "opd",
    "prefix-rft",
    "questa",
    "relift",
    "repo",
    "rlep",
    "scaf-grpo",
    "sdpo",
    "sft",
    "srft",
    "superrl",
    "trapo",
    "uft",
    "w-reinforce",
];

/// Names of the pages.
const PAGE_NAMES: Suggesting = Suggesting(|| PAGES[1..].iter().map(|page| page.0).collect());

pub(crate) fn run(args: &Args) -> Result<()> {
    let Some(name) = &args.name else {
        outln!("{}", PAGES[0].1.trim_end());
        return Ok(());
    };
    // A variant stands on the page of its method.
    let of_variant =
        hapo_core::METHODS.iter().find(|it| it.variants.iter().any(|it| it.name == name));
    let wanted = of_variant.map_or(name.as_str(), |it| it.name);
    let page = PAGES[1..].iter().find(|it| it.0 == wanted).ok_or_else(|| {
        bad_input(format!("unknown method `{name}`"), "`hapo methods` lists them")
    })?;
    outln!("{}", page.1.trim_end());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_and_every_file_has_its_page() {
        for it in hapo_core::METHODS {
            assert!(PAGES.iter().any(|page| page.0 == it.name), "{}", it.name);
        }
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/methods");
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), PAGES.len());
    }
}
