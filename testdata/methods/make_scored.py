"""Losses and gradients in closed form of the methods whose members the weights of the step score.

usage: python3 testdata/methods/make_scored.py > testdata/methods/scored.json
The numbers are random and no model's. A token's loss is -min(r A, clip(r) A) / L with r = exp(log pi - old).

EDGE        A_i H/H_i, H the group's mean of the mean entropies H_i; ZhangXJ199/EDGE-GRPO, without a gradient through H
Prefix-RFT  A of the group, or plain means by prefix; 80 % of a prefix's tokens, those of the lowest entropy, have A = 0;
            ZeroYuHuang/prefix_rft, core_algos.py (dr_grpo, dr_grpo_prefix) and the reshaper "entropy"
SDPO        A_t = log pi behind the first other success of the group - log pi_old; lasgroup/SDPO without full logits
QuestA      GRPO's A
MFC         GRPO's A
TGOPD       A_t = log pi_T - log pi_old where at least two of the teacher's answers are right, A = r - mean(r) elsewhere
"""
import json
import math
import random
import struct

random.seed(46)
L = 24  # the longest response


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def mean(values):
    return sum(values) / len(values)


def rollout(n, reward, prefix=0):
    log_probs = [f32(-3 * random.random()) for _ in range(n)]
    old = [f32(it + random.gauss(0, 0.2)) for it in log_probs]
    return dict(log_probs=log_probs, old=old, reward=float(reward), prefix=prefix, behind=None,
                scored=[f32(-3 * random.random()) for _ in range(n)],
                entropies=[f32(2 * random.random()) for _ in range(n)])


def with_loss(it, advantages):
    value, gradient = 0.0, []
    for log_prob, old, a in zip(it["log_probs"], it["old"], advantages):
        ratio = math.exp(log_prob - old)
        clipped = min(max(ratio, 0.8), 1.2)
        value -= min(ratio * a, clipped * a) / L
        gradient.append(-(ratio * a if ratio * a <= clipped * a else 0.0) / L)
    return dict(it, value=value, gradient=gradient)


def edge(rewards, std):
    group = [rollout(3 + 2 * i, r) for i, r in enumerate(rewards)]
    if std:
        group[0]["entropies"] = [f32(0.001)] * 3  # a factor beyond the clamp
    deviation = math.sqrt(sum((r - mean(rewards)) ** 2 for r in rewards) / (len(rewards) - 1)) + 1e-6 if std else 1.0
    entropies = [mean(it["entropies"]) for it in group]
    rows = []
    for it, h in zip(group, entropies):
        a = (it["reward"] - mean(rewards)) / deviation * min(max(mean(entropies) / h, 0.1), 10.0)
        rows.append(with_loss(dict(it, behind="plain"), [a] * len(it["log_probs"])))
    return rows


def prefix_rft(rewards, baseline):
    """The last rollout continues a prefix of ten tokens."""
    group = [rollout(4 + i, r) for i, r in enumerate(rewards[:-1])] + [rollout(15, rewards[-1], prefix=10)]
    plain, rows = rewards[:-1], []
    for it in group:
        among = rewards if baseline == "group" else plain
        a = own = it["reward"] - mean(among)
        if baseline == "plain" and it["prefix"]:
            own = it["reward"]
        ranked = sorted(range(it["prefix"]), key=lambda at: it["entropies"][at])
        masked = set(ranked[: int(0.8 * it["prefix"])])
        advantages = [0.0 if at in masked else f32(a) for at in range(it["prefix"])]
        advantages += [own] * (len(it["log_probs"]) - it["prefix"])
        rows.append(with_loss(dict(it, behind="plain" if it["prefix"] else None), advantages))
    return rows


def sdpo(rewards):
    group = [rollout(3 + i, r) for i, r in enumerate(rewards)]
    rows = []
    for i, it in enumerate(group):
        others = [j for j, r in enumerate(rewards) if r == 1.0 and j != i]
        if not others:
            rows.append(with_loss(it, [0.0] * len(it["log_probs"])))
            continue
        gaps = [f32(t - s) for t, s in zip(it["scored"], it["old"])]
        rows.append(with_loss(dict(it, behind=others[0]), gaps))
    return rows


def questa(rewards):
    return [with_loss(it, [it["reward"] - mean(rewards)] * len(it["log_probs"]))
            for it in (rollout(5, r) for r in rewards)]


def tgopd(rewards, traces):
    rows = questa(rewards)
    return [with_loss(it, [f32(t - s) for t, s in zip(it["scored"], it["old"])]) for it in rows] if traces >= 2 else rows


def case(name, method, rollouts, own=None, std=False, **more):
    return dict(**more, name=name, method=method, own=own or {}, std=std, max_response=L, rollouts=rollouts)


print(json.dumps(dict(cases=[
    case("edge", "edge", edge([1, 0, 0, 1], False)),
    case("edge, with std", "edge", edge([1, 0, 0, 0], True), std=True),
    case("prefix-rft", "prefix-rft", prefix_rft([1, 0, 0, 1], "group")),
    case("prefix-rft, a failed prefix", "prefix-rft", prefix_rft([1, 0, 0, 0], "group")),
    case("prefix-rft, plain", "prefix-rft", prefix_rft([1, 0, 0, 1], "plain"), dict(baseline="plain")),
    case("sdpo", "sdpo", sdpo([1, 0, 0, 1])),
    case("sdpo, one success", "sdpo", sdpo([0, 1, 0, 0])),
    case("sdpo, none", "sdpo", sdpo([0, 0])),
    case("questa", "questa", questa([1, 0, 0, 0])),
    *(case(f"tgopd, {n} traces", "tgopd", tgopd([1, 0, 0, 1], n), traces=n) for n in range(4)),
    case("mfc", "mfc", questa([1, 0, 1, 1])),
])))
