//! The figures, one entry each, for the page and for papers alike.

#[derive(Debug)]
pub(crate) struct Figure<'a> {
    /// Name of its file, and its anchor on the page.
    pub(crate) id: &'a str,
    pub(crate) title: &'a str,
    /// The unit of the vertical axis; empty for a share.
    pub(crate) unit: &'a str,
    pub(crate) help: &'a str,
    /// The metric and the label of each.
    pub(crate) lines: &'a [(&'a str, &'a str)],
    pub(crate) scale: Scale,
    pub(crate) phases: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// From zero, or below where values are negative.
    FromZero,
    /// Around the values.
    Fitted,
    /// From zero, the lines on top of each other; a frame for each run.
    Stacked,
    Log,
}

/// A figure of shares from zero.
pub(crate) const PLAIN: Figure<'static> = Figure {
    id: "",
    title: "",
    unit: "",
    help: "",
    lines: &[],
    scale: Scale::FromZero,
    phases: false,
};

const PHASED: Figure<'static> = Figure { phases: true, ..PLAIN };

/// Every figure, in the order of the page. The first line of each is drawn solid, the others dashed.
pub(crate) const FIGURES: &[Figure<'static>] = &[
    Figure {
        id: "reward",
        title: "Reward",
        help: "Mean reward; the share of correct answers where rewards are 0 and 1. Policy only is what the model does by itself; mixed counts the teacher's injected answers too.",
        lines: &[("reward/policy_only", "policy only"), ("reward/mean", "mixed")],
        ..PHASED
    },
    Figure {
        id: "eval",
        title: "Evaluation",
        help: "Problems of [eval], which the run does not learn from: share of correct completions, share of problems with a correct one among the k, and the mean reward where it is another number. Step 0 is before the run.",
        lines: &[
            ("eval/avg@k", "avg@k"),
            ("eval/pass@k", "pass@k"),
            ("eval/reward", "mean reward"),
        ],
        ..PHASED
    },
    Figure {
        id: "gate",
        title: "Gate: β and threshold γ",
        help: "β is the share of groups into which the teacher entered. After the dashed line the teacher is gone for good.",
        lines: &[("gate/beta", "β, injected groups"), ("gate/threshold", "threshold γ")],
        ..PHASED
    },
    Figure {
        id: "groups",
        title: "Groups",
        help: "Groups by their correct answers. What teaches is a difference of rewards, which wrong answers have too where rewards are partial.",
        lines: &[
            ("groups/partially_solved", "partially solved"),
            ("groups/all_fail", "all fail"),
            ("groups/all_solved", "all solved"),
        ],
        scale: Scale::Stacked,
        ..PLAIN
    },
    Figure {
        id: "entropy",
        title: "Entropy",
        unit: "nats per token",
        help: "At temperature 1, of the sampled tokens and of all tokens with the teacher's. A fall to zero ends exploration; a sharp rise is collapse.",
        lines: &[("policy/entropy", "on-policy"), ("entropy/all", "total")],
        ..PHASED
    },
    Figure {
        id: "kl",
        title: "KL to the initial policy",
        unit: "nats per token",
        help: "How far the policy has moved, measured every metrics.kl_every steps. It is no term of the loss.",
        lines: &[("policy/kl_to_initial", "KL")],
        ..PLAIN
    },
    Figure {
        id: "length",
        title: "Response length",
        unit: "tokens",
        help: "Mean and 95th percentile of the sampled responses.",
        lines: &[("response_length/mean", "mean"), ("response_length/p95", "95th percentile")],
        ..PLAIN
    },
    Figure {
        id: "truncated",
        title: "Truncated responses",
        help: "Share of responses that met the length limit before their end token.",
        lines: &[("response_length/truncated", "truncated")],
        ..PLAIN
    },
    Figure {
        id: "clip",
        title: "Clip fraction",
        help: "Share of policy tokens whose ratio is clipped. It is zero where a batch makes one update.",
        lines: &[("policy/clip_fraction", "clipped")],
        ..PLAIN
    },
    Figure {
        id: "gradient",
        title: "Gradient norm",
        help: "Global norm before clipping, and that of the teacher's term alone. Watch for jumps by powers of ten.",
        lines: &[("grad_norm", "all"), ("teacher/grad_norm", "teacher")],
        scale: Scale::Log,
        ..PLAIN
    },
    Figure {
        id: "loss",
        title: "Loss",
        help: "The negative objective, and its policy and teacher terms. In policy-gradient training it need not fall.",
        lines: &[("loss", "loss"), ("policy/loss", "policy"), ("teacher/loss", "teacher")],
        scale: Scale::Fitted,
        ..PLAIN
    },
    Figure {
        id: "teacher",
        title: "Teacher",
        help: "The probability that the policy gives the teacher's tokens, and their share of all trained tokens.",
        lines: &[
            ("teacher/mean_prob", "mean probability"),
            ("teacher/token_share", "share of tokens"),
        ],
        ..PHASED
    },
    Figure {
        id: "throughput",
        title: "Throughput",
        unit: "tokens per second",
        help: "Sampled and trained tokens over the seconds of their own part of the step.",
        lines: &[("tokens_per_second/sample", "sampling"), ("tokens_per_second/train", "training")],
        ..PLAIN
    },
    Figure {
        id: "step-time",
        title: "Time of a step",
        unit: "seconds",
        help: "Wall-clock seconds of the whole step, of sampling, of training, and of grading.",
        lines: &[
            ("time/step", "step"),
            ("time/sample", "sampling"),
            ("time/train", "training"),
            ("time/verify", "grading"),
        ],
        ..PLAIN
    },
];

/// Parts of a step's time, as `time/NAME`, and how they are called.
pub(crate) const TIME_PARTS: &[(&str, &str)] =
    &[("time/sample", "sampling"), ("time/train", "training"), ("time/verify", "grading")];

/// Metrics that are places on an axis, not lines.
const NO_LINES: &[&str] = &["step", "epoch", "time/unix"];

/// The metrics among `names` that no figure shows, each once: every one gets a figure of its own.
pub(crate) fn others<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    let shown = |name: &str| {
        NO_LINES.contains(&name) || FIGURES.iter().flat_map(|it| it.lines).any(|it| it.0 == name)
    };
    let mut seen = std::collections::BTreeSet::new();
    names.map(String::as_str).filter(|it| !shown(it) && seen.insert(*it)).collect()
}
