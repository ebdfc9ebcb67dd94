//! Benchmarks as data: one entry each.

use hapo_data::Dataset;
use hapo_data::task::{HeldOutSet, MINI6, held_out};

/// A set of held-out problems.
#[derive(Clone, Copy, Debug)]
pub struct Benchmark {
    /// Name on the command line.
    pub name: &'static str,
    /// One line for `hapo list benchmarks`.
    pub summary: &'static str,
    set: &'static HeldOutSet,
}

impl Benchmark {
    /// Its first `count` problems, the same for every run.
    pub fn problems(&self, count: usize) -> Result<Dataset, hapo_data::Error> {
        held_out(self.set, count)
    }
}

/// Every benchmark: `mini6`, the six held-out sets of the built-in task.
pub const BENCHMARKS: &[Benchmark] = &[
    mini(0, "n-digit × 1-digit products, 6 digits"),
    mini(1, "n-digit × 1-digit products, 7 digits"),
    mini(2, "sums of three numbers, 5 digits"),
    mini(3, "sums of three numbers, 6 digits"),
    mini(4, "solutions of a*x+b=c, 4 digits"),
    mini(5, "solutions of a*x+b=c, 5 digits"),
];

const fn mini(index: usize, summary: &'static str) -> Benchmark {
    Benchmark {
        name: MINI6[index].name,
        summary,
        set: &MINI6[index],
    }
}

/// The benchmark of that name.
pub fn benchmark(name: &str) -> Option<&'static Benchmark> {
    BENCHMARKS.iter().find(|it| it.name == name)
}
