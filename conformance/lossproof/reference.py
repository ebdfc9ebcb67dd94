"""The answers in closed form, in numpy: values, and derivatives by each log-probability.

Written twice: `reference/rust` says the same without this file. Nothing here knows an engine. Where a formula holds a
part constant, `frozen` carries the log-probabilities of that part, so a central difference of the value gives the
slope that the formula prescribes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lossproof.cases import Case, Cut, Refused

Array = NDArray[np.float64]
Hyper = dict[str, Any]
CONSTANT_LENGTH = 12  # L of seq-mean-token-sum-norm where a case names none.


@dataclass
class Row:
    """One sequence."""

    logp: Array
    mask: Array
    old: Array
    ref: Array
    sampler: Array
    entropy: Array
    advantage: Array
    reward: float
    group: int
    teacher: bool
    prefix: int

    @property
    def n(self) -> float:
        """Tokens in the loss."""
        return float(self.mask.sum())

    def sum(self, values: Array) -> float:
        """The sum over the tokens in the loss; what stands at the others is not read, so it may be NaN."""
        return float(np.where(self.mask > 0, values, 0.0).sum())

    def mean(self, values: Array) -> float:
        """The mean over the tokens in the loss; 0 without any."""
        return self.sum(values) / max(self.n, 1.0)


@dataclass
class Totals:
    """What the means of one optimiser step divide by, over all of its micro-batches and ranks."""

    sequences: float
    tokens: float
    policy_tokens: float
    teacher_tokens: float
    prompt_tokens: dict[int, float]
    solved: dict[int, bool]


def step(case: Case, cut: Cut | None) -> dict[str, Any]:
    """The adapter of the reference itself."""
    if case["kind"] == "advantage":
        return advantage_case(case)
    if case["kind"] == "reward":
        return {"reward": shaped_rewards(case)}
    if case["kind"] == "schedule":
        return {"value": [mixing_schedule(case["hyper"], at) for at in case["steps"]]}
    assert cut is not None
    if "logits" in case["batch"]:
        return _through_logits(case, cut)
    rows = rows_of(case["batch"])
    return _sums(rows, case["hyper"], cut, [row.logp for row in rows])


def loss_value(case: Case, cut: Cut, logp: list[Array], entropy: list[Array] | None = None) -> float:
    """The loss at these log-probabilities, with every detached part at the recorded ones."""
    rows = rows_of(case["batch"])
    if entropy is not None:
        for row, values in zip(rows, entropy, strict=True):
            row.entropy = values
    return float(_sums(rows, case["hyper"], cut, logp)["value"])


def rows_of(batch: dict[str, Any]) -> list[Row]:
    """The sequences of a batch."""
    rows = []
    for i, values in enumerate(batch["logp"]):
        logp = np.array(values, dtype=np.float64)

        def tokens(name: str, default: Array, i: int = i) -> Array:
            return np.array(batch[name][i], dtype=np.float64) if name in batch else default

        advantage = np.array(batch["advantage"][i] if "advantage" in batch else 0.0, dtype=np.float64)
        rows.append(
            Row(
                logp=logp,
                mask=tokens("mask", np.ones_like(logp)),
                old=tokens("old_logp", logp),
                ref=tokens("ref_logp", logp),
                sampler=tokens("sampler_logp", tokens("old_logp", logp)),
                entropy=tokens("entropy", np.zeros_like(logp)),
                advantage=np.broadcast_to(advantage, logp.shape).astype(np.float64),
                reward=float(batch["reward"][i]) if "reward" in batch else 0.0,
                group=int(batch["group"][i]) if "group" in batch else 0,
                teacher="source" in batch and batch["source"][i] == "teacher",
                prefix=int(batch["prefix"][i]) if "prefix" in batch else 0,
            )
        )
    return rows


def _sums(rows: list[Row], hyper: Hyper, cut: Cut, logp: list[Array]) -> dict[str, Any]:
    """What the optimiser sees: the sum over micro-batches and the mean over ranks."""
    grad = [np.zeros_like(row.logp) for row in rows]
    by_entropy = [np.zeros_like(row.logp) for row in rows]
    total = 0.0
    for ranks in cut["steps"]:
        whole = totals([rows[i] for rank in ranks for micro in rank for i in micro], hyper)
        scale = len(ranks)
        for rank in ranks:
            for micro in rank:
                for i in micro:
                    value, slope, entropy_slope = sequence_loss(rows[i], hyper, whole, logp[i])
                    total += value * scale / len(ranks)
                    grad[i] += slope * scale / len(ranks)
                    by_entropy[i] += entropy_slope * scale / len(ranks)
    answer: dict[str, Any] = {"value": total, "grad": [g.tolist() for g in grad]}
    answer["loss"] = None if value_means_nothing(hyper) else total
    if hyper.get("entropy_coef") is not None:
        answer["grad_entropy"] = [g.tolist() for g in by_entropy]
    return answer


def value_means_nothing(hyper: Hyper) -> bool:
    """Surrogates in the manner of REINFORCE: only their gradient is defined."""
    return hyper.get("surrogate") in ("cispo", "reinforce", "vespo") or hyper.get("teacher") in (
        "srft",
        "chord-phi",
        "trapo",
    )


def totals(rows: list[Row], hyper: Hyper) -> Totals:
    """The counts of one optimiser step."""
    counted = [kept_tokens(row, hyper) for row in rows]
    prompts: dict[int, float] = {}
    solved: dict[int, bool] = {}
    for row, n in zip(rows, counted, strict=True):
        prompts[row.group] = prompts.get(row.group, 0.0) + n
        solved[row.group] = solved.get(row.group, False) or (not row.teacher and succeeds(row, hyper))
    taught = [n for row, n in zip(rows, counted, strict=True) if row.teacher and imitated(row, hyper, solved)]
    return Totals(
        sequences=float(sum(1 for row in rows if in_mean(row, hyper))),
        tokens=sum(counted),
        policy_tokens=sum(n for row, n in zip(rows, counted, strict=True) if not row.teacher),
        teacher_tokens=sum(taught),
        prompt_tokens=prompts,
        solved=solved,
    )


def succeeds(row: Row, hyper: Hyper) -> bool:
    """A reward of at least `success_at`."""
    return bool(row.reward >= hyper.get("success_at", 1.0))


def in_mean(row: Row, hyper: Hyper) -> bool:
    """Whether a mean over sequences counts this one; two definitions leave some out."""
    if hyper.get("empty_sequences") == "out" and row.n == 0:
        return False
    return hyper.get("dead_groups") != "out" or bool(row.advantage.any())


def kept_tokens(row: Row, hyper: Hyper) -> float:
    """Tokens that the divisor counts."""
    if not in_mean(row, hyper):
        return 0.0
    if hyper.get("divisor") == "kept":
        return float((row.mask * (tis_weight(row, hyper) > 0)).sum())
    return row.n


def imitated(row: Row, hyper: Hyper, solved: dict[int, bool]) -> bool:
    """HPT's switch: a demonstration counts only where its group has no success."""
    return not hyper.get("switch") or not solved[row.group]


def sequence_loss(row: Row, hyper: Hyper, whole: Totals, logp: Array) -> tuple[float, Array, Array]:
    """One sequence's part of the loss, its slope by each log-probability and by each entropy."""
    value, slope = token_terms(row, hyper, logp, whole)
    weight = token_weights(row, hyper, whole) * row.mask
    value, slope = np.where(row.mask > 0, value, 0.0), np.where(row.mask > 0, slope, 0.0)
    total, slope = float((weight * value).sum()), weight * slope
    coefficient = hyper.get("entropy_coef") or 0.0
    entropy_slope = np.zeros_like(logp)
    if coefficient and not row.teacher:
        entropy_slope = -coefficient * weight
        total += row.sum(entropy_slope * row.entropy)
    return total, slope, entropy_slope


def token_weights(row: Row, hyper: Hyper, whole: Totals) -> Array:
    """What each token's term is multiplied by."""
    ones = np.ones_like(row.logp)
    teacher = hyper.get("teacher")
    if teacher in ("chord-mu", "chord-phi"):
        mu = float(hyper["mu"])
        return ones * (mu / whole.teacher_tokens if row.teacher else (1 - mu) / whole.policy_tokens)
    if teacher == "hpt":
        if row.teacher:
            return ones / whole.teacher_tokens if imitated(row, hyper, whole.solved) else 0 * ones
        dropped = hyper.get("switch") and not whole.solved[row.group]
        return 0 * ones if dropped else ones / float(hyper["length"])
    n = max(row.n, 1.0)
    match hyper["aggregate"]:
        case "token-mean":
            return ones / max(whole.tokens, 1.0)
        case "token-sum":
            return ones
        case "seq-mean-token-mean":
            return ones / (whole.sequences * n)
        case "seq-mean-token-sum":
            return ones / whole.sequences
        case "seq-mean-token-sum-norm":
            return ones / (whole.sequences * float(hyper.get("length", CONSTANT_LENGTH)))
        case "prompt-mean":
            return ones / (len(whole.prompt_tokens) * max(whole.prompt_tokens[row.group], 1.0))
        case other:
            raise Refused(f"aggregate: {other!r} is not defined")


def token_terms(row: Row, hyper: Hyper, logp: Array, whole: Totals) -> tuple[Array, Array]:
    """Each token's term and its slope, before the mean."""
    teacher = hyper.get("teacher")
    if teacher and row.teacher:
        return imitation(row, hyper, logp)
    advantage = row.advantage
    if teacher == "srft":
        advantage = np.full_like(logp, 0.1 * math.exp(mean_entropy(row)) if succeeds(row, hyper) else -1.0)
    value, slope = surrogate(row, hyper, logp, advantage)
    if hyper.get("tis"):
        weight = tis_weight(row, hyper)
        value, slope = weight * value, weight * slope
    if is_far_off_policy(row, hyper):
        value, slope = 0 * value, 0 * slope
    if hyper.get("kl") and has_kl(row, hyper, whole):
        k, k_slope = bounded_kl(hyper, row, logp)
        value, slope = value + hyper["beta"] * k, slope + hyper["beta"] * k_slope
    if teacher == "trapo" and row.prefix:
        taught, taught_slope = imitation(row, hyper, logp)
        inside = np.arange(len(logp)) < row.prefix
        value, slope = np.where(inside, taught, value), np.where(inside, taught_slope, slope)
    return value, slope


def is_far_off_policy(row: Row, hyper: Hyper) -> bool:
    """A bad sequence whose mean of log π_sampler − log π is above the limit has no surrogate."""
    limit = hyper.get("off_policy_limit")
    if limit is None:
        return False
    return bool((row.advantage < 0).all()) and row.mean(row.sampler - row.logp) > limit


def has_kl(row: Row, hyper: Hyper, whole: Totals) -> bool:
    """Two methods distil a part of the rollouts alone."""
    if hyper.get("kl_on") == "failures":
        return not succeeds(row, hyper)
    return hyper.get("kl_on") != "failed-groups" or not whole.solved[row.group]


def surrogate(row: Row, hyper: Hyper, logp: Array, advantage: Array) -> tuple[Array, Array]:
    """The policy's term −(objective) of each token."""
    name = hyper["surrogate"]
    low, high = 1 - hyper.get("clip_low", math.inf), 1 + hyper.get("clip_high", math.inf)
    delta = logp - row.old
    ratio = np.exp(delta)
    if name == "none":
        return 0 * logp, 0 * logp
    if name == "nll":
        return -logp, -np.ones_like(logp)
    if name == "reinforce":
        return -advantage * logp, -advantage
    if name == "cispo":
        weight = np.clip(np.exp(row.logp - row.old), low, high)
        return -weight * advantage * logp, -weight * advantage
    if name == "vespo":
        side = "positive" if (row.advantage >= 0).all() else "negative"
        k, rate = hyper[f"k_{side}"], hyper[f"lambda_{side}"]
        log_weight = row.sum(row.logp - row.old)
        scale = advantage * math.exp(rate + k * log_weight - rate * math.exp(log_weight))
        return -scale * logp, -scale
    if name == "dro":
        return -advantage * logp + hyper["dro_beta"] / 2 * delta**2, -advantage + hyper["dro_beta"] * delta
    if name == "ppo":
        return clipped(ratio, advantage, low, high, hyper)
    if name == "gspo":
        ratio = np.full_like(logp, np.exp(row.mean(delta)))
        return clipped(ratio, advantage, low, high, hyper)
    if name == "gmpo":
        bound = np.clip(delta, -hyper["clip_low"], hyper["clip_high"])
        chosen = np.where(advantage >= 0, np.minimum(delta, bound), np.maximum(delta, bound))
        mean = np.exp(row.mean(chosen))
        return -advantage * mean, -advantage * mean * (chosen == delta)
    if name == "sapo":
        above, below = float(hyper["temperature_positive"]), float(hyper["temperature_negative"])
        temperature = np.where(advantage > 0, above, below)
        gate = 1 / (1 + np.exp(-temperature * (ratio - 1)))
        return -4 / temperature * gate * advantage, -4 * gate * (1 - gate) * ratio * advantage
    if name == "dppo-tv":
        change = np.exp(row.logp) - np.exp(row.old)
        kept = np.where(advantage > 0, change <= hyper["tv_limit"], -change <= hyper["tv_limit"])
        kl_coef = hyper["kl_coef"]
        return -ratio * advantage * kept + kl_coef * delta**2, -ratio * advantage * kept + 2 * kl_coef * delta
    raise Refused(f"surrogate: {name!r} is not defined")


def clipped(ratio: Array, advantage: Array, low: float, high: float, hyper: Hyper) -> tuple[Array, Array]:
    """−min(ρA, clip(ρ)A), with its two further bounds for bad tokens."""
    cap = hyper.get("ratio_cap", math.inf)
    capped = np.minimum(ratio, cap)
    plain, bounded = capped * advantage, np.clip(ratio, low, high) * advantage
    value = -np.minimum(plain, bounded)
    slope = np.where((plain <= bounded) & (ratio <= cap), -ratio * advantage, 0.0)
    dual = hyper.get("dual_clip")
    if dual is not None:
        beyond = (advantage < 0) & (value > -dual * advantage)
        value, slope = np.where(beyond, -dual * advantage, value), np.where(beyond, 0.0, slope)
    return value, slope


def tis_weight(row: Row, hyper: Hyper) -> Array:
    """The correction of each token for the sampler's other numbers; a constant. A teacher was not sampled."""
    rule = hyper["tis"]
    if hyper.get("teacher") and row.teacher:
        return np.ones_like(row.old)
    log_weight = row.old - row.sampler
    if rule["level"] == "sequence-geometric":
        log_weight = np.full_like(log_weight, row.mean(log_weight))
    if rule["level"] == "sequence-product":
        log_weight = np.full_like(log_weight, row.sum(log_weight))
    weight = np.exp(log_weight)
    low, high = rule.get("low", 0.0), rule["high"]
    if rule["mode"] == "clip":
        return np.clip(weight, low, high)
    inside = (weight >= low) & (weight <= high)
    kept = {"weight": weight, "token-weight": np.exp(row.old - row.sampler), "one": np.ones_like(weight)}[rule["keeps"]]
    return np.where(inside, kept, 0.0)


def bounded_kl(hyper: Hyper, row: Row, logp: Array) -> tuple[Array, Array]:
    """The estimator with an engine's clamps of Δ and of the value, where a definition has them."""
    bounds = hyper.get("kl_clamp", {})
    delta, value = bounds.get("delta", math.inf), bounds.get("value", math.inf)
    inside = np.abs(logp - row.ref) <= delta
    near = row.ref + np.clip(logp - row.ref, -delta, delta)
    name = hyper["kl"].removesuffix("-times-ratio")
    k, slope = kl(name, row.ref, near, row.ref + np.clip(row.logp - row.ref, -delta, delta))
    k, slope = np.clip(k, -value, value), np.where(inside & (np.abs(k) <= value), slope, 0.0)
    if name == hyper["kl"]:
        return k, slope
    ratio = np.exp(logp - row.old)  # Its slope counts: ρ is not a constant.
    return ratio * k, ratio * (slope + k)


def kl(name: str, ref: Array, logp: Array, frozen: Array) -> tuple[Array, Array]:
    """An estimator of the divergence from the reference policy, with the slope that its definition prescribes."""
    delta, now = logp - ref, frozen - ref
    k3 = np.expm1(-delta) + delta
    if name == "k1":
        return delta, np.ones_like(delta)
    if name == "k2":
        return delta**2 / 2, delta
    if name == "k3":
        return k3, -np.expm1(-delta)
    if name == "k3-straight-through":  # The value of k3, the gradient of k2.
        return np.expm1(-now) + now + delta**2 / 2 - now**2 / 2, delta
    if name.endswith("-with-score-term"):
        k, slope = kl(name.removesuffix("-with-score-term"), ref, logp, frozen)
        return k * np.exp(logp - frozen), slope + k
    raise Refused(f"kl: {name!r} is not defined")


def imitation(row: Row, hyper: Hyper, logp: Array) -> tuple[Array, Array]:
    """The teacher's term of each token."""
    now = np.exp(row.logp)
    match hyper["teacher"]:
        case "luffy":
            return shaped(row, hyper, logp)
        case "srft":
            factor = 0.5 * math.exp(-mean_entropy(row))
            value, slope = -factor * logp, np.full_like(logp, -factor)
            if hyper.get("demonstration_advantage"):
                more, more_slope = shaped(row, hyper, logp)
                value, slope = value + more, slope + more_slope
            return value, slope
        case "hpt" | "chord-mu":
            return -logp, -np.ones_like(logp)
        case "chord-phi":
            factors = now * (1 - now)
            return -factors * logp, -factors
        case "trapo":
            factors = np.minimum(1.0, now / hyper["d"])
            return -factors * logp, -factors
        case other:
            raise Refused(f"teacher: {other!r} is not defined")


def shaped(row: Row, hyper: Hyper, logp: Array) -> tuple[Array, Array]:
    """LUFFY's −A·π/(π + d)."""
    p, d = np.exp(logp), hyper["d"]
    return -row.advantage * p / (p + d), -row.advantage * d * p / (p + d) ** 2


def mean_entropy(row: Row) -> float:
    return row.mean(row.entropy)


def _through_logits(case: Case, cut: Cut) -> dict[str, Any]:
    """Log-probabilities from logits at a temperature, current and old alike, and the slope back at the logits."""
    temperature = case["hyper"]["temperature"]
    current = [np.array(it, dtype=np.float64) / temperature for it in case["batch"]["logits"]]
    old = [np.array(it, dtype=np.float64) / temperature for it in case["batch"]["old_logits"]]
    tokens = case["batch"]["tokens"]
    batch = {
        **case["batch"],
        "logp": [_chosen(x, t) for x, t in zip(current, tokens, strict=True)],
        "old_logp": [_chosen(x, t) for x, t in zip(old, tokens, strict=True)],
    }
    rows = rows_of(batch)
    answer = _sums(rows, case["hyper"], cut, [row.logp for row in rows])
    grad = []
    for slope, logits, chosen in zip(answer["grad"], current, tokens, strict=True):
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        onehot = np.eye(logits.shape[1])[chosen]
        grad.append((np.array(slope)[:, None] * (onehot - p) / temperature).tolist())
    return {**answer, "grad": grad}


def _chosen(logits: Array, tokens: list[int]) -> list[float]:
    shifted = logits - logits.max(1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return [float(log_p[t, token]) for t, token in enumerate(tokens)]


def advantage_case(case: Case) -> dict[str, Any]:
    """Advantages of all sequences, each group by itself."""
    batch, hyper = case["batch"], case["hyper"]
    result = [0.0] * len(batch["reward"])
    for group in sorted(set(batch["group"])):
        members = [i for i, it in enumerate(batch["group"]) if it == group]
        rewards = np.array([batch["reward"][i] for i in members], dtype=np.float64)
        counted = np.array([_counts(batch, i, hyper) for i in members])
        for i, value in zip(members, advantages(rewards, counted, hyper), strict=True):
            result[i] = float(value)
    return {"advantage": result}


def _counts(batch: dict[str, Any], i: int, hyper: Hyper) -> bool:
    """Whether a member is part of its group's mean."""
    out_teacher = hyper.get("teacher_in_mean") is False and batch["source"][i] == "teacher"
    out_empty = hyper.get("untrainable_in_mean") is False and not batch["trainable"][i]
    return not out_teacher and not out_empty


def advantages(rewards: Array, counted: NDArray[np.bool_], hyper: Hyper) -> Array:
    """One group's advantages. A constant group has exactly 0."""
    if not np.isfinite(rewards).all():
        raise Refused("reward: expected a finite number")
    rule = hyper["baseline"]
    if rule == "mean":
        known = rewards[counted]
        if len(known) < 2:
            return np.zeros_like(rewards)
        return (rewards - mean(known)) / spread(known, hyper)
    if rule == "leave-one-out":
        result = np.zeros_like(rewards)
        for i, reward in enumerate(rewards):
            rest = rewards[counted & (np.arange(len(rewards)) != i)]
            if len(rest):
                result[i] = (reward - mean(rest)) / spread(rest, hyper)
        return result
    raise Refused(f"baseline: {rule!r} is not defined")


def mean(values: Array) -> float:
    """A sum of equal numbers may round; their mean is the number itself."""
    return float(values[0] if (values == values[0]).all() else values.mean())


def spread(values: Array, hyper: Hyper) -> float:
    """σ + ε; 1 without a deviation in the definition, and where the spread is 0, unless all have 0 there."""
    rule = hyper.get("std")
    if not rule or (values == values[0]).all():
        return math.inf if rule and hyper.get("constant_rest") == "zero" else 1.0
    return float(values.std(ddof=rule["ddof"])) + float(rule["epsilon"])


def shaped_rewards(case: Case) -> list[list[float]]:
    """Token rewards with the divergence subtracted; the sequence's reward is at its last token in the loss."""
    batch, hyper = case["batch"], case["hyper"]
    result = []
    for row in rows_of(batch):
        k, _ = kl(hyper["kl"], row.ref, row.old, row.old)
        values = np.where(row.mask > 0, -hyper["beta"] * k, 0.0)
        values[np.flatnonzero(row.mask)[-1]] += row.reward
        result.append(values.tolist())
    return result


def mixing_schedule(hyper: Hyper, at: float) -> float:
    """μ at an optimiser step counted from 0: a straight rise, then half a cosine."""
    warmup, decay, peak, valley = (hyper[name] for name in ("warmup", "decay", "peak", "valley"))
    at = max(at - hyper.get("first_step", 0), 0)
    if at < warmup:
        return float(peak * at / warmup)
    if at >= warmup + decay:
        return float(valley)
    return float((peak - valley) * 0.5 * (1 + math.cos(math.pi * (at - warmup) / decay)) + valley)
