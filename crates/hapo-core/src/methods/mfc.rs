use super::prelude::*;

/// arXiv 2609.13997: GRPO's loss on groups behind the first `g_used` hints, `g_used` uniform in 0 to g; g falls to it
/// where the mean reward is at least `success`.
///
/// MFC, the monotone frontier curriculum: a prompt's g is at first the number of its hints, and a failure changes
/// nothing. Unverified: from a summary. Left out, of the authors' code: a draw of g itself in 3 of 4 visits, one success
/// for the mean, and a g that rises after three failures.
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "mfc",
    summary: "GRPO behind some of a prompt's hints, the most of which falls with its successes",
    make: |settings| {
        let success = settings.mfc.success;
        check("mfc.success", success.is_finite(), "a number", success)?;
        let needs = Needs { hints: true, memory: true, ..Needs::ROLLOUTS };
        let help = Help::needing(needs).growing(|group| {
            let frontier = group.frontier.unwrap_or(group.hints).min(group.hints);
            match group.rng().below(frontier as u64 + 1) as usize {
                shown @ 1.. if group.part == 0 => {
                    Growth::under(group.size, Context::Hint(shown - 1))
                }
                _ => Growth::once(group),
            }
        });
        Ok(Method {
            help: help.remembering(move |before, step, _| before.with_frontiers(step, success)),
            unread_keys: &[
                "teacher",
                "advantage.group",
                "guard.beta_rise",
                "sampling.dynamic_sampling",
                "sampling.remembered_tokens",
            ],
            ..Method::new(grpo(settings.advantage))
        })
    },
    ..MethodEntry::NEW
};

own! {
    /// `[mfc]`.
    Own {
        /// The mean reward of a group from which on g falls to the hints that it was shown.
        success: f64 = 0.5,
    }
}
