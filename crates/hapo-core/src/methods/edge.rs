use super::prelude::*;

/// arXiv 2507.21848: `Â_i = A_i·H̄/H_i`, with `H_i` the mean entropy of response i's tokens and H̄ the mean of these
/// over the group, in GRPO's loss.
///
/// The entropy-driven advantage of EDGE-GRPO alone: a confident success is raised, a confident failure lowered further
/// (ZhangXJ199/EDGE-GRPO). H̄/`H_i` is kept within 1/`clamp` and `clamp`. Its corrected responses are left out.
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "edge",
    summary: "GRPO; a response's advantage is divided by its entropy relative to the group's",
    make: |settings| {
        let (rule, clamp) = (settings.advantage, settings.edge.clamp);
        check("edge.clamp", clamp >= 1.0 && clamp.is_finite(), "a number from 1", clamp)?;
        let method = Method::new(move |group, _, scores| {
            let entropies: Vec<f64> = scores.own.iter().map(TokenScores::mean_entropy).collect();
            let among = mean(&entropies);
            let factor = |entropy: &f64| match among {
                0.0 => 1.0,
                _ => (among / entropy).clamp(1.0 / clamp, clamp),
            };
            let mut credit = on_policy(group, advantages(group, rule));
            for (spans, entropy) in credit.iter_mut().zip(&entropies) {
                for span in spans {
                    span.term = Term::scaled(&span.term, factor(entropy));
                }
            }
            credit
        });
        Ok(Method {
            help: Help::needing(Needs { scores_members: true, ..Needs::ROLLOUTS }),
            scored_behind: |_, _| Some(Context::Plain),
            ..method
        })
    },
    ..MethodEntry::NEW
};

own! {
    /// `[edge]`.
    Own {
        /// The largest factor of an advantage; its inverse is the smallest.
        clamp: f64 = 10.0,
    }
}
