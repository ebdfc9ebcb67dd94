use super::prelude::*;

/// arXiv 2507.13266: GRPO's loss on groups that are sampled and trained on behind the prompt with a part of its
/// solution.
///
/// `QuestA`: a curriculum of two runs, the first with half of the solution in the question, the second with a quarter,
/// from the first's checkpoint (foreverlasting1202/QuestA). Every prompt that has the hint shows it, in every step;
/// evaluate without.
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "questa",
    summary: "GRPO behind prompts that show one of their hints, in every step",
    make: |settings| {
        let hint = settings.questa.hint;
        let range = 1..=Context::MOST_HINTS;
        let wanted = format!("1 to {}", Context::MOST_HINTS);
        check("questa.hint", range.contains(&hint), wanted, hint)?;
        let help = Help::needing(Needs { hints: true, ..Needs::ROLLOUTS });
        Ok(Method {
            help: help.growing(move |group| match group.part {
                0 if hint <= group.hints => Growth::under(group.size, Context::Hint(hint - 1)),
                _ => Growth::once(group),
            }),
            unread_keys: &["teacher", "advantage.group", "guard.beta_rise"],
            ..Method::new(grpo(settings.advantage))
        })
    },
    ..MethodEntry::NEW
};

own! {
    /// `[questa]`.
    Own {
        /// Which of a prompt's hints is shown, from 1: with `data.hints = "solution"` 1, 2 and 3 are 25, 50 and 75 %.
        hint: usize = 2,
    }
}
