//! The arms, cells, tables and searches of the family. docs/results/plan.md states them in words.
//!
//! An arm is named by its cell and its recipe. Adding a method is one line in [`METHODS`].

use std::sync::LazyLock;

use hapo_data::task::TeacherSteps;

use crate::family::arm::{Arm, Base, LEVELS, RowName, Search, Section, recipe};
use crate::family::ladder::RUNGS;
use crate::family::paper;
use crate::family::real;

/// Seed of the searches.
pub(crate) const SEARCH_SEED: u64 = 1000;
/// The cell of the searches.
const SEARCHED_ON: &str = "0.1-exact";

const RATES: &[f64] = &[5e-5, 1e-4, 2e-4];
const IMITATION_RATES: &[f64] = &[1e-4, 2e-4, 4e-4];
const IMITATION_STEPS: &[f64] = &[10.0, 20.0, 40.0];

/// The method in a group of arms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    /// Every cell of bases and teachers.
    Core,
    /// One cell.
    Others,
    /// *When* the teacher enters.
    When,
    /// *What* enters.
    Controls,
    /// Other numbers of steps.
    Budgets,
    /// Imitation then GRPO, each step and rate an arm.
    Tuned,
    /// The table of every method alone.
    Later,
}

struct Method {
    name: &'static str,
    label: &'static str,
    group: Group,
    recipe: &'static str,
    sets: &'static [&'static str],
}

/// The table of methods: name, label, group, recipe, keys that are set on top.
macro_rules! methods {
    ($($name:literal $label:literal $group:ident $recipe:literal [$($set:literal),*];)*) => {
        &[$(Method {
            name: $name,
            label: $label,
            group: Group::$group,
            recipe: recipe!($recipe),
            sets: &[$($set),*],
        }),*]
    };
}

const METHODS: &[Method] = methods! {
    "grpo" "GRPO" Core "grpo" [];
    "maxrl" "MaxRL" Core "maxrl" [];
    "sft" "SFT" Core "sft" [];
    "sft-grpo" "SFT, then GRPO" Core "sft-grpo" ["stage.grpo.steps=60", "stage.sft.optim.lr=2e-4", "stage.grpo.optim.lr=1e-4"];
    "sft-grpo-few" "5 steps of SFT, then GRPO" Core "sft-grpo" ["stage.sft.steps=5", "stage.grpo.steps=60"];
    "luffy" "LUFFY" Core "luffy" [];
    "trapo" "TRAPO" Core "trapo" [];
    "hapo-method" "HAPO" Core "hapo-method" [];
    "superrl" "SuperRL" Core "superrl" [];
    "scaf-grpo" "Scaf-GRPO" Core "scaf-grpo" [];
    "relift" "ReLIFT" Core "relift" [];
    "ampo" "AMPO" Core "ampo" [];
    "always-early" "always, first 17 steps" When "hapo-method" ["hapo.success_limit=7", "hapo.turn_off_epoch=0.85", "hapo.steepness=1000000"];
    "yoked" "as often as HAPO, random groups" When "hapo-method" ["hapo.gate=yoked", "hapo.record={HAPO}"];
    "no-signal" "groups of equal rewards" Controls "hapo-method" ["hapo.gate=no-signal"];
    "prefix" "HAPO's gate, prefix" Controls "hapo-method" ["hapo.injection=prefix"];
    "hint" "HAPO's gate, hint" Controls "hapo-method" ["hapo.injection=hint", "data.max_prompt_tokens=160"];
    "distill" "HAPO's gate, distillation" Controls "distill" ["stage.distill.steps=60"];
    "rlep" "RLEP" Others "rlep" [];
    "prefix-rft" "Prefix-RFT" Others "prefix-rft" [];
    "questa" "QuestA" Others "questa" [];
    "sdpo" "SDPO" Others "sdpo" [];
    "edge" "EDGE-GRPO" Others "edge" [];
    "luffy-hapo" "LUFFY-HAPO" Others "luffy-hapo" [];
    "srft" "SRFT" Others "srft" [];
    "srft-hapo" "SRFT-HAPO" Others "srft-hapo" [];
    "hindsight" "TRAPO, worst rollout" Others "hindsight" [];
    "hapo-table1" "HAPO, not annealed" Others "hapo-table1" [];
    "trapo-original" "TRAPO, its own prefixes" Others "trapo-original" [];
    "luffy-original" "LUFFY, its code" Others "luffy-original" [];
    "uft" "UFT" Others "uft" [];
    "hpt" "HPT" Others "hpt" [];
    "chord-mu" "CHORD-µ" Others "chord-mu" [];
    "chord-phi" "CHORD-φ" Others "chord-phi" [];
    "ghpo" "GHPO" Others "ghpo" [];
    "kdrl" "KDRL" Others "kdrl" ["stage.kdrl.steps=60"];
    "opd" "OPD" Others "opd" ["stage.opd.steps=60"];
    "ngrpo" "NGRPO" Others "ngrpo" [];
    "w-reinforce" "W-REINFORCE" Others "w-reinforce" [];
    "repo" "RePO" Others "repo" [];
    "exgrpo" "ExGRPO" Others "exgrpo" [];
    "dapo" "DAPO" Others "dapo" [];
    "gspo" "GSPO" Others "gspo" [];
    "tgopd" "TGOPD" Later "tgopd" ["stage.tgopd.steps=60"];
    "mfc" "MFC" Later "mfc" [];
    "grpo-quarter" "GRPO, ¼ of the steps" Budgets "grpo" ["steps=15"];
    "sft-grpo-quarter" "SFT, then GRPO, ¼" Budgets "sft-grpo" ["stage.sft.steps=10", "stage.grpo.steps=15"];
    "trapo-quarter" "TRAPO, ¼" Budgets "trapo" ["steps=15"];
    "hapo-quarter" "HAPO, ¼" Budgets "hapo-method" ["steps=15", "hapo.turn_off_epoch=0.375"];
    "grpo-4" "GRPO, 4 times the steps" Budgets "grpo" ["steps=240"];
    "sft-grpo-4" "SFT, then GRPO, 4 times" Budgets "sft-grpo" ["stage.sft.steps=160", "stage.grpo.steps=240"];
    "trapo-4" "TRAPO, 4 times" Budgets "trapo" ["steps=240"];
    "hapo-4" "HAPO, 4 times" Budgets "hapo-method" ["steps=240", "hapo.turn_off_epoch=6"];
    // Where a stage of SFT has more than two looks, it could stop before its end.
    "sft1-5e-5" "1 of SFT at 5e-5, then GRPO" Tuned "sft-grpo" ["stage.sft.steps=1", "stage.sft.optim.lr=5e-5"];
    "sft1-1e-4" "1 of SFT at 1e-4, then GRPO" Tuned "sft-grpo" ["stage.sft.steps=1", "stage.sft.optim.lr=1e-4"];
    "sft1-2e-4" "1 of SFT at 2e-4, then GRPO" Tuned "sft-grpo" ["stage.sft.steps=1", "stage.sft.optim.lr=2e-4"];
    "sft2-5e-5" "2 of SFT at 5e-5, then GRPO" Tuned "sft-grpo" ["stage.sft.steps=2", "stage.sft.optim.lr=5e-5"];
    "sft2-1e-4" "2 of SFT at 1e-4, then GRPO" Tuned "sft-grpo" ["stage.sft.steps=2", "stage.sft.optim.lr=1e-4"];
    "sft2-2e-4" "2 of SFT at 2e-4, then GRPO" Tuned "sft-grpo" ["stage.sft.steps=2", "stage.sft.optim.lr=2e-4"];
    "sft5-5e-5" "5 of SFT at 5e-5, then GRPO" Tuned "sft-grpo" ["stage.sft.steps=5", "stage.sft.eval.patience=0", "stage.sft.optim.lr=5e-5"];
    "sft5-1e-4" "5 of SFT at 1e-4, then GRPO" Tuned "sft-grpo" ["stage.sft.steps=5", "stage.sft.eval.patience=0", "stage.sft.optim.lr=1e-4"];
    "sft5-2e-4" "5 of SFT at 2e-4, then GRPO" Tuned "sft-grpo" ["stage.sft.steps=5", "stage.sft.eval.patience=0", "stage.sft.optim.lr=2e-4"];
    "sft10-5e-5" "10 of SFT at 5e-5, then GRPO" Tuned "sft-grpo" ["stage.sft.steps=10", "stage.sft.eval.patience=0", "stage.sft.optim.lr=5e-5"];
    "sft10-1e-4" "10 of SFT at 1e-4, then GRPO" Tuned "sft-grpo" ["stage.sft.steps=10", "stage.sft.eval.patience=0", "stage.sft.optim.lr=1e-4"];
    "sft10-2e-4" "10 of SFT at 2e-4, then GRPO" Tuned "sft-grpo" ["stage.sft.steps=10", "stage.sft.eval.patience=0", "stage.sft.optim.lr=2e-4"];
};

/// Keys of the confidence gate, which others refuse.
const CONFIDENCE: [&str; 4] =
    ["hapo.success_limit", "hapo.annealing", "hapo.turn_off_epoch", "hapo.steepness"];

/// Methods whose runs no trace enters: one run serves every teacher.
const WITHOUT_TEACHER: &[&str] = &["grpo", "maxrl", "repo", "exgrpo"];

/// A base and a teacher.
struct Cell {
    name: &'static str,
    title: &'static str,
    base: Base,
    teacher: TeacherSteps,
    seeds: u64,
    /// The group of its arms, and those of the core that are among them too.
    group: Group,
    core: &'static [&'static str],
}

const COMPARED: &[&str] = &["grpo", "sft-grpo", "trapo", "hapo-method"];

macro_rules! cells {
    ($($name:literal $title:literal $base:expr, $teacher:ident, $seeds:literal, $group:ident $core:expr;)*) => {
        &[$(Cell {
            name: $name,
            title: $title,
            base: $base,
            teacher: TeacherSteps::$teacher,
            seeds: $seeds,
            group: Group::$group,
            core: $core,
        }),*]
    };
}

/// In the order in which they are made.
const CELLS: &[Cell] = cells! {
    "0-exact" "0 %, exact traces" Base::Rung(0), Exact, 20, Core &[];
    "0-repeated" "0 %, a style that imitation does not learn" Base::Rung(0), Repeated, 20, Core &[];
    "0.1-exact" "0.1 %, exact traces" Base::Rung(1), Exact, 5, Core &[];
    "controls" "0 %, exact traces: what enters" Base::Rung(0), Exact, 5, Controls &["trapo", "hapo-method"];
    "when" "0 %, exact traces: when the teacher enters" Base::Rung(0), Exact, 20, When &["trapo", "hapo-method"];
    "flawed" "0 %, a wrong step in 30 % of the traces" Base::Rung(0), Flawed, 5, Core &["sft-grpo", "trapo", "hapo-method", "ampo"];
    "0.1-repeated" "0.1 %, a style that imitation does not learn" Base::Rung(1), Repeated, 5, Core &[];
    "5-exact" "5 %, exact traces" Base::Rung(2), Exact, 5, Core &[];
    "5-repeated" "5 %, a style that imitation does not learn" Base::Rung(2), Repeated, 5, Core &[];
    "others" "0 %, exact traces: every other method (one cell)" Base::Rung(0), Exact, 5, Others &["grpo", "sft-grpo", "hapo-method"];
    "budgets" "0 %, exact traces: ¼, 1 and 4 times the steps" Base::Rung(0), Exact, 5, Budgets COMPARED;
    "0-repeated-tuned" "0 %, a style that imitation does not learn: SFT, then GRPO, tuned there" Base::Rung(0), Repeated, 3, Tuned COMPARED;
    "0.1-repeated-tuned" "0.1 %, a style that imitation does not learn: SFT, then GRPO, tuned there" Base::Rung(1), Repeated, 3, Tuned COMPARED;
    "pilot" "The shipped base, exact traces (pilot)" Base::Shipped, Exact, 2, Core &[];
    "methods" "Every method, 40 steps from the shipped base" Base::Shipped, Exact, 1, Others &[];
};
/// Tables that are made only where they are named.
pub(crate) const ONLY_NAMED: [&str; 4] =
    ["0-repeated-tuned", "0.1-repeated-tuned", "pilot", METHODS_TABLE];
const METHODS_TABLE: &str = "methods";

/// Keys of the runs of [`METHODS_TABLE`], for 40 steps of the method.
const SHORT: [&str; 8] = [
    "steps=40",
    "stage.opd.steps=40",
    "stage.kdrl.steps=40",
    "stage.tgopd.steps=40",
    "stage.half.steps=20",
    "stage.quarter.steps=20",
    "uft.steps=27",
    "prefix-rft.steps=40",
];

impl Cell {
    fn methods(&self) -> impl Iterator<Item = &'static Method> + '_ {
        let is_of_core = |method: &Method| match (self.group, self.core) {
            (Group::Core, []) => true,
            (_, core) => core.contains(&method.name),
        };
        METHODS.iter().filter(move |method| match method.group {
            _ if self.name == METHODS_TABLE => {
                method.name == "hapo-method" || hapo_core::method(method.name).is_some()
            }
            Group::Core => is_of_core(method),
            group => group == self.group,
        })
    }

    fn base_name(&self) -> String {
        match self.base {
            Base::Rung(rung) => RUNGS[rung].to_owned(),
            _ => self.name.to_owned(),
        }
    }

    /// The name of its arm: of its base and teacher, so that cells share runs.
    fn arm_name(&self, method: &str) -> String {
        let teacher = match self.teacher {
            _ if WITHOUT_TEACHER.contains(&method) => "",
            TeacherSteps::Exact | TeacherSteps::Two => "-exact",
            TeacherSteps::Repeated => "-repeated",
            TeacherSteps::Flawed => "-flawed",
        };
        format!("{}{teacher}-{method}", self.base_name())
    }

    fn arm(&self, method: &Method) -> Arm {
        let mut sets = vec![
            "data.teacher_coverage=0.25".to_owned(),
            format!("data.teacher_steps={}", self.teacher_of(method)),
        ];
        sets.extend(method.sets.iter().map(|it| (*it).to_owned()));
        if method.group == Group::Tuned {
            // The dose is the question: GRPO starts from its end, and not from the best look.
            let grpo = ["steps=60", "optim.lr=1e-4", "model.path=stage:sft@last"];
            sets.extend(grpo.map(|it| format!("stage.grpo.{it}")));
        }
        if self.name == METHODS_TABLE {
            let of_recipe = SHORT.into_iter().filter(|set| has_stage(method.recipe, set));
            sets.extend(of_recipe.map(str::to_owned));
        }
        Arm {
            name: self.arm_name(method.name),
            recipe: Some(method.recipe),
            sets,
            unset: if method.sets.iter().any(|set| set.starts_with("hapo.gate=")) {
                CONFIDENCE.map(str::to_owned).to_vec()
            } else {
                Vec::new()
            },
            search: match method.group {
                // A control is HAPO with one thing changed: it has HAPO's rate.
                Group::When | Group::Controls => "hapo-method",
                Group::Tuned => "",
                _ => method.name,
            }
            .to_owned(),
            tuned: (method.name == "sft-grpo").then_some("stage.sft.steps"),
            base: self.base,
            levels: LEVELS,
            teacher: self.teacher,
        }
    }

    /// AMPO and RLEP choose among two teachers where the cell's is exact.
    fn teacher_of(&self, method: &Method) -> &'static str {
        match self.teacher {
            TeacherSteps::Exact if ["ampo", "rlep"].contains(&method.name) => "two",
            TeacherSteps::Exact => "exact",
            TeacherSteps::Two => "two",
            TeacherSteps::Repeated => "repeated",
            TeacherSteps::Flawed => "flawed",
        }
    }

    fn section(&self) -> Section {
        let row = |method: &Method| RowName {
            arm: self.arm_name(method.name),
            label: method.label.to_owned(),
        };
        // The null hypothesis beside every method; HAPO beside its host and beside no teacher.
        let has = |name: &str| self.methods().any(|method| method.name == name);
        let mut pairs = Vec::new();
        for method in self.methods() {
            let pair = match method.name {
                "sft-grpo" => continue,
                name if has("sft-grpo") => (name, "sft-grpo"),
                "hapo-method" => continue,
                name => ("hapo-method", name),
            };
            pairs.push(pair);
        }
        if has("sft-grpo") {
            pairs.extend(
                ["trapo", "grpo"].into_iter().filter(|it| has(it)).map(|it| ("hapo-method", it)),
            );
        }
        let named = |(row, baseline): (&str, &str)| (self.arm_name(row), self.arm_name(baseline));
        Section {
            name: self.name.to_owned(),
            title: self.title.to_owned(),
            rows: self.methods().map(row).collect(),
            pairs: pairs.into_iter().map(named).collect(),
            seeds: self.seeds,
        }
    }
}

/// True unless the key is of a stage that the recipe does not have.
pub(crate) fn has_stage(recipe: &str, set: &str) -> bool {
    let stage = set.strip_prefix("stage.").and_then(|rest| rest.split_once('.'));
    stage.is_none_or(|(stage, _)| recipe.contains(&format!("[[stage]]\nname = {stage:?}")))
}

/// Every arm; a table is a choice of them, so that no run is made twice.
pub(crate) static ARMS: LazyLock<Vec<Arm>> = LazyLock::new(|| {
    let mut arms: Vec<Arm> = real::arms().chain(paper::arms()).collect();
    // A search may be of a method that its cell's table does not have.
    let searched = CELLS.iter().filter(|cell| cell.name == SEARCHED_ON);
    let searched = searched.flat_map(|cell| METHODS.iter().map(|method| cell.arm(method)));
    let of_cells = CELLS.iter().flat_map(|cell| cell.methods().map(|method| cell.arm(method)));
    for arm in of_cells.chain(searched) {
        if arms.iter().all(|known| known.name != arm.name) {
            arms.push(arm);
        }
    }
    arms
});

/// The tables, in the order in which they are made.
pub(crate) static SECTIONS: LazyLock<Vec<Section>> =
    LazyLock::new(|| CELLS.iter().map(Cell::section).chain(real::sections()).collect());

/// Every search.
pub(crate) static SEARCHES: LazyLock<Vec<Search>> = LazyLock::new(|| {
    let cell =
        CELLS.iter().find(|cell| cell.name == SEARCHED_ON).expect("the cell is in the table");
    let searched =
        METHODS.iter().filter(|method| !matches!(method.group, Group::Controls | Group::Tuned));
    let of_methods = searched.map(|method| Search {
        name: method.name.to_owned(),
        arm: cell.arm_name(method.name),
        values: match method.name {
            "sft" => IMITATION_RATES,
            "sft-grpo" => IMITATION_STEPS,
            _ => RATES,
        },
    });
    of_methods.chain(real::searches()).collect()
});

/// The arm of that name.
pub(crate) fn find(name: &str) -> &'static Arm {
    ARMS.iter().find(|arm| arm.name == name).expect("a table's rows are arms, which a test sees to")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use hapo_train::{Overrides, Recipe};

    use super::*;

    #[test]
    fn every_row_is_an_arm_and_every_arm_a_recipe() {
        let names: BTreeSet<&str> = ARMS.iter().map(|arm| arm.name.as_str()).collect();
        assert_eq!(names.len(), ARMS.len());
        for section in &*SECTIONS {
            let of_pairs = section.pairs.iter().flat_map(|(row, baseline)| [row, baseline]);
            for arm in section.rows.iter().map(|row| &row.arm).chain(of_pairs) {
                assert!(names.contains(arm.as_str()), "{arm}");
            }
        }
        for arm in &*ARMS {
            let Some(text) = arm.recipe else { continue };
            let mut sets = arm.sets.clone();
            sets.push("eval.suite=development".to_owned());
            if arm.base == Base::Pretrained {
                sets.push("data.train=train.jsonl".to_owned());
            }
            let unset = arm.unset.clone();
            let sets = Overrides { unset, of_many: true, ..Overrides::set(sets) };
            Recipe::parse_stages(text, &arm.name, &arm.name, &sets).unwrap();
            // The paper's rows have their recipes' rates; of an arm for each value there is nothing to search.
            if arm.search.is_empty() {
                let is_set = arm.sets.contains(&"stage.grpo.optim.lr=1e-4".to_owned());
                assert!(is_set || arm.name.starts_with("paper-"), "{}", arm.name);
                continue;
            }
            let search = SEARCHES.iter().find(|search| search.name == arm.search).unwrap();
            assert_eq!(search.values.len(), 3, "as many settings for every arm");
            find(&search.arm);
        }
    }

    /// The plan's core, its cells and its seeds.
    #[test]
    fn the_cells_are_those_of_the_plan() {
        let rows = |name: &str| SECTIONS.iter().find(|it| it.name == name).unwrap();
        assert_eq!((rows("0-exact").rows.len(), rows("0-exact").seeds), (12, 20));
        assert_eq!((rows("5-repeated").rows.len(), rows("5-repeated").seeds), (12, 5));
        assert_eq!((rows("controls").rows.len(), rows("flawed").rows.len()), (6, 4));
        assert_eq!((rows("when").rows.len(), rows("when").seeds), (4, 20));
        assert_eq!((rows("others").rows.len(), rows("budgets").rows.len()), (28, 12));
        // Four numbers of steps, three rates.
        assert_eq!((rows("0-repeated-tuned").rows.len(), rows("0-repeated-tuned").seeds), (16, 3));
        assert_eq!(rows(METHODS_TABLE).rows.len(), hapo_core::METHODS.len() + 1);
        // GRPO's runs are those of both teachers.
        assert_eq!(rows("0-exact").rows[0].arm, rows("0-repeated").rows[0].arm);
        let plan = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/results/plan.md"));
        for section in &*SECTIONS {
            assert!(plan.contains(&format!("`{}`", section.name)), "{}", section.name);
        }
    }
}
