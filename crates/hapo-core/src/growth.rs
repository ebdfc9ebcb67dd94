//! How a prompt's group comes about: part by part, as its method asks (D35). A method looks at the group as far as it
//! is there and asks for the next part, or says that the group is complete. It keeps no state: everything that it may
//! look at is in [`GroupSoFar`], and a part's index is the key of its draws. The price is a call of the sampler a part.

use crate::credit::StepContext;
use crate::group::{PolicyMember, ScoredGroup};
use crate::rng::{CounterRng, RngCounter, RngStream};
use crate::rollout::{Context, PromptId, TeacherTrajectory, TokenId};

/// The next part of a group.
#[derive(Clone, Debug, PartialEq)]
pub enum Growth {
    /// These rollouts are sampled next. Its index is the number of parts before it.
    Sample(Part),
    /// Nothing more is sampled.
    Complete,
}

/// Rollouts of a group that are sampled together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Number of rollouts.
    pub rollouts: usize,
    /// The first tokens of their responses, which are given (D36).
    pub prefix: Prefix,
    /// The rendering of the prompt that they are sampled behind (D36).
    pub context: Context,
}

/// The first tokens of a response, which are given to the policy and use up its response limit (D36).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// None: the policy writes the whole response.
    None,
    /// The first tokens of the teacher's trajectory, at most all but its end token.
    Teacher(usize),
    /// The first tokens of a rollout that is in the group already.
    Own {
        /// Its index among the members.
        rollout: usize,
        /// Number of tokens.
        tokens: usize,
    },
}

impl Growth {
    /// The whole group in one part.
    pub fn once(group: &GroupSoFar<'_>) -> Self {
        match group.part {
            0 => Self::behind(group.size, Prefix::None),
            _ => Self::Complete,
        }
    }

    /// A part whose responses begin with a prefix, or with none.
    pub fn behind(rollouts: usize, prefix: Prefix) -> Self {
        Self::Sample(Part { rollouts, prefix, context: Context::Plain })
    }

    /// A part that is sampled behind another rendering of the prompt.
    pub fn under(rollouts: usize, context: Context) -> Self {
        Self::Sample(Part { rollouts, prefix: Prefix::None, context })
    }
}

/// A group as far as it is sampled and scored.
#[derive(Clone, Copy)]
pub struct GroupSoFar<'a> {
    /// The parts so far, joined.
    pub group: &'a ScoredGroup,
    /// Index of the part that would be next.
    pub part: usize,
    /// Rollouts that fill the group: N, or one fewer where the teacher has a fixed slot (D8).
    pub size: usize,
    /// The prompt's admitted trajectories (D9).
    pub teachers: &'a [TeacherTrajectory],
    /// Hints that the prompt can be rendered with.
    pub hints: usize,
    /// The most of them that are shown, if that was remembered ([`Memory::frontier`](crate::Memory::frontier)).
    pub frontier: Option<usize>,
    /// True if HAPO's gate is open; it looks at the group after its first part.
    pub is_open: bool,
    /// The step, and γ0 of the gate.
    pub at: StepContext,
    /// Seed of the run.
    pub seed: u64,
    /// Whether a token ends a paragraph.
    pub ends_paragraph: &'a dyn Fn(TokenId) -> bool,
}

impl<'a> GroupSoFar<'a> {
    /// The prompt.
    pub fn prompt(&self) -> PromptId {
        self.group.prompt()
    }

    /// The rollouts so far.
    pub fn members(&self) -> &'a [PolicyMember] {
        self.group.members()
    }

    /// The teacher's trajectory.
    pub fn teacher(&self) -> Option<&'a TeacherTrajectory> {
        self.teachers.first()
    }

    /// Draws of the method at this step, prompt and part.
    pub fn rng(&self) -> CounterRng {
        let (step, prompt) = (self.at.step.0, self.prompt().0);
        let counter = RngCounter { step, prompt, rollout: self.part as u64, position: 0 };
        CounterRng::new(self.seed, RngStream::Growth, counter)
    }

    /// The tokens of a prefix and the log-probabilities recorded for them, none for the teacher's. At least one token
    /// of `limit` is left to the policy.
    pub fn given(&self, prefix: Prefix, limit: usize) -> (&'a [TokenId], &'a [f32]) {
        let most = limit.saturating_sub(1);
        let (tokens, log_probs, wanted): (_, &'a [f32], _) = match prefix {
            Prefix::None => return (&[], &[]),
            Prefix::Teacher(wanted) => {
                let tokens = self.teacher().map_or(&[][..], TeacherTrajectory::tokens);
                (&tokens[..tokens.len().saturating_sub(1)], &[], wanted)
            }
            Prefix::Own { rollout, tokens } => {
                let it = &self.members()[rollout].rollout;
                // What continues a prefix itself has no log-probabilities of that part.
                let known = if it.prefix == 0 { &it.log_probs[..] } else { &[] };
                (&it.tokens[..], known, tokens)
            }
        };
        let given = wanted.min(tokens.len()).min(most);
        (&tokens[..given], &log_probs[..given.min(log_probs.len())])
    }
}

/// A method's requirements of a run: plain data, read before anything is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a need by itself")]
pub struct Needs {
    /// Most parts that a group is sampled in; more than one needs a trainer that samples again within a step.
    pub parts: usize,
    /// Responses may begin with a prefix.
    pub prefixes: bool,
    /// The prompt may be rendered with a hint.
    pub hints: bool,
    /// The second model's log-probabilities of the members' tokens (D38).
    pub reference: bool,
    /// Successes of earlier steps (D39).
    pub memory: bool,
    /// Most verified trajectories of a prompt that the method looks at (D9).
    pub traces: usize,
    /// The tokens of what may enter a group that the weights of the step score first.
    pub scored: Scored,
    /// The weights of the step score members of groups, behind the prompts that the method names.
    pub scores_members: bool,
    /// A gold answer for every prompt, by which rollouts are graded (D38).
    pub grades: bool,
}

/// The tokens of a trace that are scored before it may enter a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scored {
    /// None.
    Nothing,
    /// Those of its final answer; all where it states none.
    Answers,
    /// All.
    Responses,
}

impl Needs {
    /// A group of rollouts in one part.
    pub const ROLLOUTS: Self = Self {
        parts: 1,
        prefixes: false,
        hints: false,
        reference: false,
        memory: false,
        traces: 1,
        scored: Scored::Nothing,
        scores_members: false,
        grades: true,
    };

    /// True if responses are sampled; else a batch is the demonstrations of its prompts.
    pub fn samples(self) -> bool {
        self.parts > 0
    }
}
