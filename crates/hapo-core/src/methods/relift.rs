use super::hpt::switch;
use super::prelude::*;

/// arXiv 2506.07527: GRPO's loss in every step, and `L = −mean(log π)` over the demonstrations of `batch` failed
/// prompts in an update of their own once as many wait.
///
/// `ReLIFT`: a prompt whose rollouts all fail waits in front of a queue; when the queue holds `batch`, the first are
/// imitated after the step's updates (TheRoadQaQ/ReLIFT). The authors' code has a second optimiser for imitation; here
/// both share one (D43).
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "relift",
    summary: "GRPO, and updates of imitation on the demonstrations of failed prompts as they fill a batch",
    make: |settings| {
        let batch = settings.relift.batch;
        check("relift.batch", batch > 0, "at least 1", batch)?;
        let help = Help::needing(Needs { memory: true, ..Needs::ROLLOUTS })
            .entering(|group, offer| match offer.teachers {
                [] => group.unchanged(Intervention::OpenWithoutTeacher),
                _ => group.unchanged(Intervention::Injected),
            })
            .remembering(move |before, step, _| {
                let failed = step.iter().filter(|group| group.injected());
                before.with_queued(failed.map(MixedGroup::prompt), batch)
            });
        Ok(Method {
            plan: Plan { can_be_gated: false, ..switch(true) },
            help,
            unread_keys: &["teacher", "sampling.remembered_tokens"],
            ..Method::new(grpo(settings.advantage))
        })
    },
    ..MethodEntry::NEW
};

own! {
    /// `[relift]`; what is not written is as published.
    Own {
        /// Demonstrations of an update of imitation.
        batch: usize = 128,
    }
}
