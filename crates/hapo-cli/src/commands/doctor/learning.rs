//! Whether a run learns, by its numbers and by what was graded again.

use hapo_core::counted;
use hapo_run::{Columns, ResponseShares, changes, nothing_learned};
use hapo_verify::{Extraction, find_answer};

use super::Diagnosis;
use super::record::{Framework, Record};

/// A reward that falls to this share of its best is lost.
const LOST: f64 = 0.4;
/// Numbers that say, beyond a least value and a factor of their beginning, that a policy has left its ground; the factors
/// are those of the guard of `hapo train`.
const GROWS: [(&str, f64, f64, &str); 4] = [
    ("policy/entropy", 0.15, 3.0, "entropy"),
    ("policy/kl_to_reference", 1.0, 3.0, "KL"),
    ("grad_norm", 1.0, 20.0, "the gradient norm"),
    ("response_length/truncated", 0.5, 3.0, "the share of responses that are cut off"),
];
/// A learning rate that no published recipe of this kind exceeds, adapters included.
const HIGH_RATE: f64 = 2e-3;
/// Steps after which a reward that rises by less than this share of its best is flat.
const LONG: usize = 50;
const FLAT: f64 = 0.02;

pub(super) fn examine(record: &Record, found: &mut Diagnosis) {
    let columns = &record.columns;
    if columns.rows() == 0 {
        return;
    }
    found.at += &format!(", {}", counted(columns.rows(), "step", "steps"));
    let limit = record.number("sampling.max_new_tokens").unwrap_or(0.0) as usize;
    let shares = ResponseShares::of_last_steps(columns, limit, seeks_answers(record));
    if shares.is_none() {
        found.skip("answers: no completions with rewards and gold answers are kept");
    }
    for it in shares.or_else(|| by_log(columns, limit)).iter().flat_map(ResponseShares::causes) {
        // Rewards that are wrong themselves are no sign of the answers, nor the last steps of a teacher that came before.
        let is_told = match it.name {
            "unread" => found.has("right-unpaid") || found.has("gold-unread"),
            "no-teacher" => record.columns.finite("gate/beta").iter().any(|it| *it > 0.0),
            _ => false,
        };
        if !is_told {
            // A log alone does not say the limit.
            found.add(it.name, record.framework.says(&it.text).replace(" = 0. ", ". "));
        }
    }
    match (no_number(columns), nothing_learned(columns)) {
        (Some(what), _) => found.add("collapse", what),
        (None, Some(why)) => found.add("nothing-learned", format!("Nothing was learned: {why}.")),
        (None, None) => collapse(record, found),
    }
    if columns.get("reward/policy_only").is_some_and(|it| it.iter().all(|it| it.is_nan())) {
        found.add("reward-missing", "No step has a reward (None or NaN).");
    }
    gate(record, found);
    for it in changes(columns, &record.start) {
        let mut said = format!("{} {}", it.name, it.text());
        if let Some([change, low, high]) = by_thirds(record).filter(|_| it.name == "reward") {
            said += &format!("; by thirds {change:+.3} [{low:+.3}, {high:+.3}]");
            let best = record.columns.finite("reward/policy_only").into_iter().fold(0.0, f64::max);
            let end = it.last.unwrap_or(it.first);
            if columns.rows() >= LONG && high < FLAT * best && end < 0.9 * best {
                found.add("flat", format!("The reward does not rise: {said}."));
            }
        }
        match it.last.filter(|_| it.steps == 0) {
            Some(last) if last < 0.8 * it.first && last < it.first - 0.1 => {
                found.add("eval-fell", format!("{} fell: {}.", it.name, it.text()));
            }
            _ => found.held.push(said),
        }
    }
}

/// As far as numbers tell without completions.
fn by_log(columns: &Columns, limit: usize) -> Option<ResponseShares> {
    let truncated = columns.last_tenth("response_length/truncated")?;
    let without_signal = columns.last_tenth("frac_reward_zero_std").unwrap_or(0.0);
    let others = ResponseShares { boxed: 1.0, read: 1.0, limit, ..ResponseShares::default() };
    Some(ResponseShares { truncated, without_signal, ..others })
}

/// Only marked answers count, by the recipe or by what was paid.
fn seeks_answers(record: &Record) -> bool {
    if record.framework == Framework::Hapo {
        let rule = record.setting("data.grader").zip(record.setting("data.extraction"));
        return rule.is_none_or(|(grader, rule)| hapo_report::seeks_answers(grader, rule));
    }
    let is_unmarked = |text: &str| find_answer(text, Extraction::Announced).is_err();
    let mut paid = record.answers.iter().filter(|it| it.reward.is_some_and(|it| it > 0.0));
    !paid.any(|it| is_unmarked(&it.completion))
}

/// A teacher that is wanted and never comes.
fn gate(record: &Record, found: &mut Diagnosis) {
    let beta = record.columns.finite("gate/beta");
    let failed: f64 = record.columns.finite("groups/all_fail").iter().sum();
    let entered = beta.iter().filter(|it| **it > 0.0).count();
    // Rows of methods without a teacher have a gate that is closed.
    let method = record.setting("hapo.method").or_else(|| record.setting("method"));
    let wants_none = matches!(method, Some("grpo" | "maxrl"))
        || record.framework == Framework::Hapo && record.setting("hapo.turn_off_epoch").is_none();
    if beta.is_empty() || wants_none || found.has("no-teacher") {
        return;
    }
    if entered > 0 || failed == 0.0 {
        let untaught: f64 = record.columns.finite("gate/open_no_teacher").iter().sum();
        let groups = record.number("sampling.prompts_per_step").unwrap_or(0.0);
        let taught = groups * beta.iter().sum::<f64>();
        if found.has("nothing-learned") && groups > 0.0 && untaught > taught {
            let what = format!(
                "{untaught:.0} groups failed and had no solution to show, {taught:.0} had one."
            );
            return found.add("no-teacher", what);
        }
        let steps = counted(entered, "step", "steps");
        return found.held.push(format!("a teacher entered in {steps}, {failed:.0} groups failed"));
    }
    let is_closed = record.columns.finite("gate/success_limit").first().is_some_and(|it| *it < 0.0);
    let because = if is_closed {
        "the gate was closed from the first step on"
    } else {
        "none was admitted; `hapo data check` says which are wrong, and the limit must hold one"
    };
    let what = format!("No teacher entered, though {failed:.0} groups failed: {because}.");
    found.add("no-teacher", what);
}

/// Means of the first and the last third of a column's numbers, and the largest of the first ones.
fn ends(record: &Record, name: &str) -> Option<[f64; 3]> {
    let values = record.columns.finite(name);
    let n = values.len() / 3;
    let mean = |part: &[f64]| part.iter().sum::<f64>() / n as f64;
    let peak = values.get(..n)?.iter().copied().fold(0.0, f64::max);
    (n > 1).then(|| [mean(&values[..n]), mean(&values[values.len() - n..]), peak])
}

/// A loss or a gradient that is NaN or infinite up to the end.
fn no_number(columns: &Columns) -> Option<String> {
    [("loss", "loss"), ("grad_norm", "gradient norm")].into_iter().find_map(|(name, words)| {
        let values = columns.get(name)?;
        let last = values.iter().rposition(|it| it.is_finite()).map_or(0, |it| it + 1);
        // The last look or two have none.
        let step = (values.len() >= last + 3).then(|| columns.steps()[last])?;
        Some(format!("The {words} is no number (NaN) from step {step} on."))
    })
}

/// Numbers that leave the ground, with the rate that may be why.
fn collapse(record: &Record, found: &mut Diagnosis) {
    let rates = record.columns.finite("lr");
    let rate = rates.iter().copied().fold(record.number("optim.lr").unwrap_or(0.0), f64::max);
    let key = record.framework.says("optim.lr");
    let mut signs = Vec::new();
    if let Some([first, last, peak]) = ends(record, "reward/policy_only")
        && peak > 0.1
        && last < LOST * first.max(peak / 2.0)
    {
        signs.push(format!("the reward fell from {peak:.3} to {last:.3}"));
    }
    for (name, least, factor, words) in GROWS {
        if let Some([first, last, _]) = ends(record, name).filter(|it| it[0] > 0.0 || it[1] < 1.0)
            && last > least.max(factor * first)
        {
            signs.push(format!("{words} rose from {first:.3} to {last:.3}"));
        }
    }
    let said = if signs.is_empty() { "nothing broke yet".to_owned() } else { signs.join("; ") };
    if rate > HIGH_RATE {
        found.add("high-rate", format!("{key} = {rate}, where 1e-6 to 1e-4 is usual: {said}."));
    } else if signs.is_empty() {
        let end = rates.last().copied().unwrap_or(rate);
        found.held.push(format!("reward, entropy, KL, gradients and lengths stay in bounds; {key} {rate}, {end} at the end"));
    } else {
        found.add("collapse", format!("The run falls apart at {key} = {rate}: {said}."));
    }
}

/// The change of the reward between the first and the last third, with a 95 % interval over steps.
fn by_thirds(record: &Record) -> Option<[f64; 3]> {
    let values = record.columns.finite("reward/policy_only");
    let n = values.len() / 3;
    let moments = |part: &[f64]| {
        let mean = part.iter().sum::<f64>() / n as f64;
        [mean, part.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / (n as f64 - 1.0)]
    };
    let [first, last] = [&values[..n], &values[values.len() - n..]].map(moments);
    let (change, half) = (last[0] - first[0], 1.96 * ((first[1] + last[1]) / n as f64).sqrt());
    (n > 2).then_some([change, change - half, change + half])
}
