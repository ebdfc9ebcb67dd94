//! Learning rates, by measurement where there is one: docs/guides/lora.md has the same table with its sources.

pub(super) struct Rate {
    /// Parameters below which it holds, of models of that size.
    below: f64,
    lora: bool,
    pub(super) lr: &'static str,
    /// That of `sft`.
    pub(super) imitation: &'static str,
    /// That of a stage behind `sft`.
    pub(super) after: &'static str,
    /// The longest run that is proposed at it.
    pub(super) steps: u64,
    pub(super) evidence: &'static str,
}

#[rustfmt::skip]
const RATES: [Rate; 6] = [
    Rate { below: 2e7, lora: false, lr: "1e-4", imitation: "2e-4", after: "1e-4", steps: 60, evidence: "the best of three, measured at 1.6M" },
    Rate { below: 2e7, lora: true, lr: "1e-3", imitation: "1e-3", after: "5e-4", steps: 60, evidence: "the best of three, measured at 1.6M" },
    Rate { below: 4e8, lora: false, lr: "5e-5", imitation: "5e-5", after: "1e-5", steps: 40, evidence: "a tenth of the adapter's, not measured" },
    Rate { below: 4e8, lora: true, lr: "5e-4", imitation: "5e-4", after: "1e-4", steps: 40, evidence: "measured at 135M over 10 to 40 steps" },
    Rate { below: f64::INFINITY, lora: false, lr: "5e-6", imitation: "5e-6", after: "5e-6", steps: 200, evidence: "the paper's at 3B and 7B, not tuned" },
    Rate { below: f64::INFINITY, lora: true, lr: "5e-5", imitation: "5e-5", after: "5e-5", steps: 200, evidence: "ten times that of all weights, not tuned" },
];

pub(super) fn rate(config: &hapo_model::Config, lora: bool) -> &'static Rate {
    let layers = 12.0 * (config.layers * config.hidden * config.hidden) as f64;
    let fits = |it: &&Rate| it.lora == lora && layers < it.below;
    RATES.iter().find(fits).expect("the last rows take any size")
}

#[cfg(test)]
mod tests {
    use super::RATES;

    #[test]
    fn the_guide_has_the_same_rates() {
        let guide = include_str!("../../../../../docs/guides/lora.md");
        for it in RATES {
            let what = if it.lora { "adapter" } else { "all weights" };
            let row = format!("| {what} | {} | {} | {} |", it.lr, it.imitation, it.after);
            assert!(guide.contains(&row), "{row}");
        }
    }
}
