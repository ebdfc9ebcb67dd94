use std::sync::Arc;

use serde::Deserialize;

use super::grpo::on_policy;
use super::{Method, MethodEntry, check};
use crate::advantage::{AdvantageRule, advantages, mean};
use crate::credit::{Credit, Moment, Term};
use crate::group::MixedGroup;
use crate::growth::Needs;
use crate::rollout::Context;
use crate::scores::{Scores, TokenScores};

/// `Â_i = A_i·H̄/H_i`, with `H_i` the mean entropy of response i's tokens and H̄ the mean of these over the group, in GRPO's
/// loss.
///
/// The entropy-driven advantage of EDGE-GRPO alone: a confident success is raised, a confident failure lowered further
/// ("EDGE-GRPO: entropy-driven GRPO with guided error correction for advantage diversity",
/// <https://arxiv.org/abs/2507.21848>; ZhangXJ199/EDGE-GRPO). H̄/`H_i` is kept within 1/`clamp` and `clamp`. Its corrected
/// responses are left out.
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "edge",
    summary: "GRPO; a response's advantage is divided by its entropy relative to the group's",
    own_keys: &["clamp"],
    variants: &[],
    build: |settings| {
        let (advantage, clamp) = (settings.advantage, settings.edge.clamp);
        check("edge.clamp", clamp >= 1.0 && clamp.is_finite(), "a number from 1", clamp)?;
        Ok(Arc::new(Edge { advantage, clamp }))
    },
};

/// `[edge]`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Own {
    /// The largest factor of an advantage; its inverse is the smallest.
    clamp: f64,
}

impl Default for Own {
    fn default() -> Self {
        Self { clamp: 10.0 }
    }
}

#[derive(Debug)]
struct Edge {
    advantage: AdvantageRule,
    clamp: f64,
}

impl Method for Edge {
    fn name(&self) -> &'static str {
        METHOD.name
    }

    fn needs(&self) -> Needs {
        Needs { scores_members: true, ..Needs::ROLLOUTS }
    }

    fn scored_behind(&self, _: &MixedGroup, _: usize) -> Option<Context> {
        Some(Context::Plain)
    }

    fn credit(&self, group: &MixedGroup, _: Moment, scores: &Scores) -> Credit {
        let entropies: Vec<f64> = scores.own.iter().map(TokenScores::mean_entropy).collect();
        let among = mean(&entropies);
        let factor = |entropy: &f64| match among {
            0.0 => 1.0,
            _ => (among / entropy).clamp(1.0 / self.clamp, self.clamp),
        };
        let mut credit = on_policy(group, advantages(group, self.advantage));
        for (spans, entropy) in credit.iter_mut().zip(&entropies) {
            for span in spans {
                span.term = Term::scaled(&span.term, factor(entropy));
            }
        }
        credit
    }
}
