//! TRAPO's micro-groups: rollouts that continue a prefix of the teacher's trajectory (D22).
//!
//! A group of eight is sampled in four parts. The first has no prefix; each later one gets a longer part
//! of the trajectory if too few of the rollouts before it succeeded, and the last prefix is the whole
//! trajectory: the teacher itself, in the fixed slot.

use crate::rollout::{TeacherTrajectory, TokenId};

/// Rollouts of a group that are sampled together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MicroGroup {
    /// How many.
    pub rollouts: usize,
    /// Share of the teacher's tokens that they continue, in percent.
    pub prefix_percent: usize,
    /// They get it if fewer than so many rollouts before them succeeded.
    pub below: usize,
}

/// Members of a group with prefixes.
pub const PREFIX_GROUP_SIZE: usize = 8;

/// The parts that are sampled; the eighth member is the teacher or one more rollout without a prefix.
pub const MICRO_GROUPS: [MicroGroup; 3] = [
    MicroGroup {
        rollouts: 4,
        prefix_percent: 0,
        below: 0,
    },
    MicroGroup {
        rollouts: 2,
        prefix_percent: 25,
        below: 2,
    },
    MicroGroup {
        rollouts: 1,
        prefix_percent: 50,
        below: 4,
    },
];

/// The whole trajectory enters if fewer than so many of the seven sampled rollouts succeeded.
pub const WHOLE_TEACHER_BELOW: usize = 7;

impl MicroGroup {
    /// The prefix after `successes` of the rollouts before: the first tokens of the trajectory, rounded
    /// down, never all of it.
    pub fn prefix(self, successes: usize, teacher: &TeacherTrajectory) -> &[TokenId] {
        let tokens = teacher.tokens();
        if successes < self.below {
            &tokens[..tokens.len() * self.prefix_percent / 100]
        } else {
            &[]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rollout::{Verdict, admit_teacher};

    #[test]
    fn d22_parts_and_thresholds() {
        let teacher = admit_teacher((0..9).collect(), 9, &Verdict::Correct, 10).unwrap();
        let lengths = |successes| MICRO_GROUPS.map(|it| it.prefix(successes, &teacher).len());
        assert_eq!(lengths(0), [0, 2, 5]);
        assert_eq!(lengths(1), [0, 2, 5]);
        assert_eq!(lengths(2), [0, 0, 5]);
        assert_eq!(lengths(3), [0, 0, 5]);
        assert_eq!(lengths(4), [0, 0, 0]);
        let sampled: usize = MICRO_GROUPS.iter().map(|it| it.rollouts).sum();
        assert_eq!(sampled, WHOLE_TEACHER_BELOW);
        assert_eq!(sampled + 1, PREFIX_GROUP_SIZE);
    }
}
