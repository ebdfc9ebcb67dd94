use std::sync::Arc;

use serde::Deserialize;

use super::hpt::switch;
use super::{Method, MethodEntry, Plan, check};
use crate::credit::{Credit, Moment, PolicyAndTeacher};
use crate::group::{Intervention, Member, MixedGroup, ScoredGroup};
use crate::growth::{Needs, Scored};
use crate::injection::Offer;
use crate::operators;
use crate::scores::Scores;
use crate::teacher_weight::TeacherWeight;

/// `L = −A·π/(π + d)` for each token of the `replaced` teachers' traces in a failed group, the clipped surrogate for the
/// rollouts, A over the mixed group.
///
/// AMPO: where all rollouts fail, the traces that the policy follows best take the places of random rollouts. A trace is
/// followed as well as the policy, behind the prompt and the trace's reasoning, expects its answer: the mean of π over the
/// answer's tokens ("More than one teacher: adaptive multi-guidance policy optimization for diverse exploration",
/// <https://arxiv.org/abs/2510.02227>; SII-Enigma/AMPO, `injection_strategy` adaptive, `target_selection_strategy`
/// `best_k`).
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "ampo",
    summary: "GRPO; a failed group gets those of several teachers' traces that the policy follows best",
    own_keys: &["pool", "replaced"],
    variants: &[],
    build: |settings| {
        let Own { pool, replaced } = settings.ampo;
        let most = pool.min(settings.group_size);
        let range = format!("1 to {most} (ampo.pool and sampling.group_size)");
        check("ampo.replaced", (1..=most).contains(&replaced), range, replaced)?;
        let terms = settings.with(&operators::luffy::OPERATOR);
        let terms = PolicyAndTeacher { weight: TeacherWeight::Advantage, ..terms };
        Ok(Arc::new(Ampo { terms, own: settings.ampo }))
    },
};

/// `[ampo]`; what is not written is as published.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Own {
    /// Most traces of a prompt that are looked at.
    pool: usize,
    /// Rollouts of a failed group that give way to traces.
    replaced: usize,
}

impl Default for Own {
    fn default() -> Self {
        Self { pool: 4, replaced: 2 }
    }
}

#[derive(Debug)]
struct Ampo {
    terms: PolicyAndTeacher,
    own: Own,
}

impl Method for Ampo {
    fn name(&self) -> &'static str {
        METHOD.name
    }

    fn plan(&self) -> Plan {
        Plan { can_be_gated: false, ..switch(false) }
    }

    fn needs(&self) -> Needs {
        Needs { traces: self.own.pool, scored: Scored::Answers, ..Needs::ROLLOUTS }
    }

    fn unread_keys(&self) -> &'static [&'static str] {
        &["teacher.weight", "teacher.pick"]
    }

    fn mix(&self, group: ScoredGroup, offer: &Offer<'_>, is_open: bool) -> MixedGroup {
        if !is_open {
            return group.unchanged(Intervention::GateClosed);
        }
        let followed = |trace: &usize| offer.mean_score(*trace, libm::exp);
        let mut traces: Vec<usize> = (0..offer.teachers.len()).collect();
        traces.sort_by(|a, b| followed(b).total_cmp(&followed(a)));
        let mut slots: Vec<usize> = (0..group.members.len()).collect();
        offer.rng(group.prompt).shuffle(&mut slots);
        let entering = traces.into_iter().take(self.own.replaced).zip(slots);
        entering.fold(group.unchanged(Intervention::OpenWithoutTeacher), |mixed, (trace, slot)| {
            let trajectory = offer.teachers[trace].clone();
            mixed.with(|replaced| Member::Teacher { trajectory, replaced }, Some(slot))
        })
    }

    fn credit(&self, group: &MixedGroup, at: Moment, _: &Scores) -> Credit {
        self.terms.credit(group, at)
    }
}
