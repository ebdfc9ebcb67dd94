use super::hpt::switch;
use super::prelude::*;

/// arXiv 2510.02227: `L = −A·π/(π + d)` for each token of the `replaced` teachers' traces in a failed group, the
/// clipped surrogate for the rollouts, A over the mixed group.
///
/// AMPO: where all rollouts fail, the traces that the policy follows best take the places of random rollouts. A trace
/// is followed as well as the policy, behind the prompt and the trace's reasoning, expects its answer: the mean of π
/// over the answer's tokens (SII-Enigma/AMPO, `injection_strategy` adaptive, `target_selection_strategy` `best_k`).
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "ampo",
    summary: "GRPO; a failed group gets those of several teachers' traces that the policy follows best",
    make: |settings| {
        let Own { pool, replaced } = settings.ampo;
        let most = pool.min(settings.group_size);
        let range = format!("1 to {most} (ampo.pool and sampling.group_size)");
        check("ampo.replaced", (1..=most).contains(&replaced), range, replaced)?;
        let needs = Needs { traces: pool, scored: Scored::Answers, ..Needs::ROLLOUTS };
        let help = Help::needing(needs).entering(move |group, offer| {
            let followed = |trace: &usize| offer.mean_score(*trace, libm::exp);
            let mut traces: Vec<usize> = (0..offer.teachers.len()).collect();
            traces.sort_by(|a, b| followed(b).total_cmp(&followed(a)));
            let mut slots: Vec<_> = (0..group.members.len()).map(Some).collect();
            offer.rng(group.prompt).shuffle(&mut slots);
            let chosen = traces.into_iter().take(replaced).map(|trace| &offer.teachers[trace]);
            injecting(group, chosen.zip(slots))
        });
        let terms = settings.with(&operators::LUFFY);
        let terms = PolicyAndTeacher { weight: TeacherWeight::Advantage, ..terms };
        Ok(Method {
            plan: Plan { can_be_gated: false, ..switch(false) },
            help,
            unread_keys: &["teacher.weight", "teacher.pick"],
            ..Method::new(move |group, at, _| terms.credit(group, at))
        })
    },
    ..MethodEntry::NEW
};

own! {
    /// `[ampo]`; what is not written is as published.
    Own {
        /// Most traces of a prompt that are looked at.
        pool: usize = 4,
        /// Rollouts of a failed group that give way to traces.
        replaced: usize = 2,
    }
}
