use super::prelude::*;

/// arXiv 2509.18851: `A_j = (r_j − μ)/(σ + 1e-6)`, with μ and σ over the group's rewards and one virtual success.
///
/// NGRPO: the virtual success gives a group without any success negative advantages, and leaves one that is solved
/// entirely at 0. It has no tokens. The published settings clip harder below than above and divide by σ (`loss.clip_low
/// = 0.16`, `loss.clip_high = 0.24`, `advantage.std = true`; "NGRPO: negative-enhanced group relative policy
/// optimization"; nangongrui-ngr/NGRPO).
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "ngrpo",
    summary: "on-policy only: GRPO with a virtual success in each group's mean",
    make: |settings| {
        let (own, std) = (settings.ngrpo, settings.advantage.std);
        check("ngrpo.reward", own.reward.is_finite(), "a number", own.reward)?;
        let most = format!("at most {MOST} virtual successes");
        check("ngrpo.count", own.count <= MOST, most, own.count)?;
        Ok(Method {
            unread_keys: &["advantage.group"],
            ..Method::new(move |group, _, _| {
                on_policy(group, own.advantages(&group.rewards(), std))
            })
        })
    },
    ..MethodEntry::NEW
};

/// Most virtual successes of a group: as many as a group may have members.
const MOST: usize = 65_535;

own! {
    /// `[ngrpo]`; what is not written is as published.
    Own {
        /// Reward of the virtual success.
        reward: f64 = 1.0,
        /// Number of virtual successes.
        count: usize = 1,
    }
}

impl Own {
    fn advantages(self, rewards: &[f64], std: bool) -> Vec<f64> {
        let with_virtual = [rewards, &vec![self.reward; self.count]].concat();
        relative(rewards, &with_virtual, std)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: eight failures and a virtual success have μ = 1/9 and σ = 1/3; 1, 0, 0, 0 and the virtual success have
    /// μ = 0.4 and σ = √0.3.
    #[test]
    fn a_virtual_success_is_in_mean_and_deviation() {
        let of = |rewards: &[f64], std| Own::default().advantages(rewards, std);
        let close = |got: Vec<f64>, expected: &[f64]| {
            assert_eq!(got.len(), expected.len());
            assert!(got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{got:?}");
        };
        close(of(&[0.0; 8], true), &[-1.0 / 3.0; 8]);
        close(of(&[0.0; 8], false), &[-1.0 / 9.0; 8]);
        close(of(&[1.0, 0.0, 0.0, 0.0], true), &[1.095_445, -0.730_297, -0.730_297, -0.730_297]);
        close(of(&[1.0, 0.0, 0.0, 0.0], false), &[0.6, -0.4, -0.4, -0.4]);
        close(of(&[1.0; 8], true), &[0.0; 8]);
    }

    #[test]
    fn more_virtual_successes_than_a_group_may_have_members_are_refused() {
        let settings = |count| crate::MethodSettings {
            ngrpo: Own { count, ..Own::default() },
            ..crate::MethodSettings::default()
        };
        assert!(METHOD.build(&settings(MOST)).is_ok());
        let refused = METHOD.build(&settings(MOST + 1)).unwrap_err();
        assert_eq!(refused.place(), Some("ngrpo.count"));
    }
}
