use super::prelude::*;

/// arXiv 2507.07451: GRPO's loss on every group with `replayed` of the prompt's verified traces added, whose ratio is
/// taken to the weights at the start of the step.
///
/// RLEP: the traces are successes of an earlier run, drawn without replacement at each visit, and have the clipped
/// surrogate as if they had been sampled now (Kwai-Klear/RLEP, which fills up with empty responses where a prompt has
/// too few; here what there is is added).
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "rlep",
    summary: "GRPO with two verified traces of an earlier run added to every group",
    make: |settings| {
        let own = settings.rlep;
        let help = Help::needing(Needs { traces: usize::MAX, ..Needs::ROLLOUTS });
        let help = help.mixing(move |group, offer, _| {
            let mut traces: Vec<&TeacherTrajectory> = offer.teachers.iter().collect();
            offer.rng(group.prompt).shuffle(&mut traces);
            let chosen = traces.into_iter().take(own.replayed).map(|teacher| {
                let (tokens, reward) = (teacher.tokens().to_vec(), teacher.reward());
                (StoredTrace { tokens, reward, ..StoredTrace::default() }, None)
            });
            replaying(group.unchanged(Intervention::OpenWithoutTeacher), chosen)
        });
        Ok(Method {
            plan: Plan { gate: Gate::Always, ..Plan::ON_POLICY },
            help: Help { ratio: Ratio::Rescored, ..help },
            unread_keys: &["teacher", "guard.beta_rise"],
            ..Method::new(grpo(settings.advantage))
        })
    },
    ..MethodEntry::NEW
};

own! {
    /// `[rlep]`; what is not written is as published.
    Own {
        /// Traces that are added to a group.
        replayed: usize = 2,
    }
}
