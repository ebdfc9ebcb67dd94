"""Losses and gradients of published methods, by autograd on formulas written after their authors' code.

usage: python3 testdata/methods/make_reference.py > testdata/methods/cases.json
Needs torch. The log-probabilities are random numbers and no model's: what is compared is what a method makes of a group.

Code:   CHORD  modelscope/Trinity-RFT, trinity/algorithm/policy_loss_fn/chord_policy_loss.py, mix_chord.yaml
        SRFT   undefinted/Unify-Post-Training at 17eae4e, hpt/verl/verl/mix_src/{mix_actor,mix_core_alg}.py,
               offline_loss_type srft (without its term of reinforcement learning on demonstrations)
        UFT    liumy2010/UFT, dp_actor.py, without its KL and its entropy bonus
        OPD    thinking-machines-lab/tinker-cookbook, distillation/train_on_policy.py, with a clipped ratio
        LUFFY, HPT and their entropy bonus
               the same at 17eae4e: exp_scripts/train_luffy.sh line 71 and train.sh line 81 (entropy_coeff 0.001),
               mix_actor.py lines 436 and 460 (its mean over all response tokens, demonstrations included)
        NGRPO, W-REINFORCE, Scaf-GRPO, GHPO
               nangongrui-ngr/NGRPO at e7a3804, TianHongZXY/RLVR-Decomposed at a5d4e7c, dvlab-research/Scaf-GRPO at
               1085db5, hkgc-1/GHPO at af0a7dd; the deviation + 1e-6 for all. W-REINFORCE leaves what has no weight in the
               divisor, NGRPO solved groups, as docs/methods says
        KL     http://joschu.net/blog/kl-approx.html, its three estimators on the rollouts' tokens

Papers: SuperRL (2506.01096, version 2, per instance) and KDRL (2506.02208, k2), of which no code is public

The cases "cut responses" of "luffy" and "maxrl" are no published method: random groups with rewards of any sign of which
many responses are cut off (D31, D32), written after docs/decisions.md alone.
"""
import json
import math

import torch

torch.manual_seed(20)
L = 24  # longest response


def draw(n):
    return (-3 * torch.rand(n, dtype=torch.float64)).float().double()


def rollout(n, reward, prefix=0, ended=True):
    log_probs = draw(n).requires_grad_()
    old = (log_probs.detach() + 0.3 * torch.randn(n, dtype=torch.float64)).float().double()
    return dict(log_probs=log_probs, old=old, entropies=(2 * torch.rand(n, dtype=torch.float64)).float().double(),
                reward=float(reward), prefix=prefix, teacher=False, ended=ended)


def demonstration(n):
    return dict(rollout(n, 1.0), old=torch.zeros(0, dtype=torch.float64), teacher=True)


def group(rewards, lengths, teacher=None):
    return dict(rollouts=[rollout(n, r) for r, n in zip(rewards, lengths)], teacher=demonstration(teacher) if teacher else None)


def advantages(rewards, reference, std):
    r = torch.tensor(reference, dtype=torch.float64)
    scale = 1.0
    if std:
        if (r == r[0]).all():
            return [0.0] * len(rewards)
        scale = r.std() + 1e-6
    return [float((x - r.mean()) / scale) for x in rewards]


def surrogate(it, a, low=0.2, high=0.2):
    ratio = (it["log_probs"][it["prefix"]:] - it["old"]).exp()
    if math.isinf(low):
        return ratio * a
    return torch.minimum(ratio * a, ratio.clamp(1 - low, 1 + high) * a)


def mu_schedule_function(global_step, warmup, decay, peak, valley):
    if global_step < warmup:
        return (global_step / warmup) * peak
    if global_step >= warmup + decay:
        return valley
    adjusted = global_step - warmup
    return (peak - valley) * 0.5 * (1 + math.cos(math.pi * adjusted / decay)) + valley


def chord(groups, step, warmup, decay, peak, valley):
    grpo, sft = [], []
    for g in groups:
        rewards = [it["reward"] for it in g["rollouts"]]
        for it, a in zip(g["rollouts"], advantages(rewards, rewards, True)):
            grpo.append(-surrogate(it, a))
        if g["teacher"]:
            sft.append(-g["teacher"]["log_probs"])
    mu = mu_schedule_function(step, warmup, decay, peak, valley)
    return (1 - mu) * torch.cat(grpo).mean() + mu * torch.cat(sft).mean()


def srft(groups):
    """As HPT's authors divide: the rollouts by the longest response alone, the demonstrations by their own tokens."""
    rl, sft = [], []
    for g in groups:
        for it in g["rollouts"] + [g["teacher"]]:
            h = it["entropies"].mean()
            if it["teacher"]:
                sft.append(-0.5 * torch.exp(-h) * it["log_probs"])
            else:
                weight = 0.1 * torch.exp(h) if it["reward"] == 1 else -1.0
                rl.append(-surrogate(it, weight, math.inf, math.inf))
    return torch.cat(rl).sum() / L + torch.cat(sft).mean()


def uft(groups, weight):
    terms, shown = [], []
    for g in groups:
        rewards = pay(g["rollouts"], 0.0)
        for it, a in zip(g["rollouts"], advantages(rewards, rewards, True)):
            terms.append(-surrogate(it, a))
        # Once a group; the authors' code repeats it for every rollout.
        first = g["rollouts"][0]
        shown.append(-first["log_probs"][:first["prefix"]])
    return torch.cat(terms).mean() + weight * torch.cat(shown).mean()


def scored(g):
    for it in g["rollouts"]:
        it["reference"] = draw(len(it["old"]))
    return g


def with_entropies(groups):
    for it in [it for g in groups for it in g["rollouts"] + [g["teacher"]]]:
        it["entropies"].requires_grad_()
    return groups


def entropy_bonus(members, coef):
    return -coef * torch.cat([it["entropies"] for it in members]).mean()


def luffy(groups, coef):
    terms = []
    for g in groups:
        members = g["rollouts"] + [g["teacher"]]
        rewards = [it["reward"] for it in members]
        for it, a in zip(members, advantages(rewards, rewards, False)):
            p = it["log_probs"].exp()
            terms.append(-a * p / (p + 0.1) if it["teacher"] else -surrogate(it, a, math.inf, math.inf))
    return torch.cat(terms).sum() / L + entropy_bonus([it for g in groups for it in g["rollouts"] + [g["teacher"]]], coef)


def hpt(groups, coef):
    """A failed group is dropped and its demonstration imitated, by a mean of its own."""
    rl, sft, left = [], [], []
    for g in groups:
        rewards = [it["reward"] for it in g["rollouts"]]
        if not any(rewards):
            sft.append(-g["teacher"]["log_probs"])
            left.append(g["teacher"])
            continue
        left += g["rollouts"]
        for it, a in zip(g["rollouts"], advantages(rewards, rewards, False)):
            rl.append(-surrogate(it, a, math.inf, math.inf))
    return torch.cat(rl).sum() / L + torch.cat(sft).mean() + entropy_bonus(left, coef)


def opd(groups):
    terms = [-surrogate(it, (it["reference"].float() - it["old"].float()).double())
             for g in groups for it in g["rollouts"]]
    return torch.cat(terms).mean()


def grpo_kl(groups, coef, estimator):
    terms = []
    for g in groups:
        rewards = [it["reward"] for it in g["rollouts"]]
        for it, a in zip(g["rollouts"], advantages(rewards, rewards, False)):
            q = it["reference"] - it["log_probs"]
            k = dict(k1=-q, k2=q ** 2 / 2, k3=q.exp() - 1 - q)[estimator]
            terms.append(coef * k - surrogate(it, a))
    return torch.cat(terms).mean()


def pay(rollouts, wrong):
    """D31: the lower of `wrong` and the lowest graded reward for those that are cut off."""
    low = min([wrong] + [it["reward"] for it in rollouts if it["ended"]])
    return [it["reward"] if it["ended"] else low for it in rollouts]


def cut(groups, advantage, normaliser, truncated, wrong):
    """A term for each token of the counted sequences: LUFFY's for a teacher, the clipped surrogate for others (D32)."""
    sequences = []
    for g in groups:
        rewards = pay(g["rollouts"], wrong)
        members = ([g["teacher"]] if g["teacher"] else []) + g["rollouts"]
        values = advantage(([g["teacher"]["reward"]] if g["teacher"] else []) + rewards)
        for it, a in zip(members, values):
            if not it["ended"] and truncated == "mask":
                continue
            p = it["log_probs"].exp()
            sequences.append(-p / (p + 0.1) if it["teacher"] else -surrogate(it, a))
    return divided(sequences, normaliser)


def divided(sequences, normaliser):
    n, tokens = len(sequences), sum(len(it) for it in sequences)
    if normaliser == "sequence-mean":
        return sum(it.mean() for it in sequences) / n
    return sum(it.sum() for it in sequences) / dict(constant=n * L, length=L)[normaliser] if normaliser != "token-mean" else (
        sum(it.sum() for it in sequences) / tokens)


def random_groups(draw_reward, teachers):
    """Groups of four of which about half of the responses are cut off, in one group all."""
    groups = []
    for place in range(4):
        members = [rollout(int(torch.randint(2, 13, ())), draw_reward(), ended=bool(torch.rand(()) < 0.5) and place != 2)
                   for _ in range(4)]
        groups.append(dict(rollouts=members, teacher=demonstration(int(torch.randint(3, 13, ()))) if teachers else None))
    return groups


def of_rollouts(groups, advantage, normaliser="token-mean", clip=(0.2, 0.2), more=lambda it: 0.0, mask=False):
    """The clipped surrogate of every rollout that is not masked, with the advantages that a group's rewards have."""
    sequences = []
    for g in groups:
        for it, a in zip(g["rollouts"], advantage(pay(g["rollouts"], 0.0))):
            if it["ended"] or not mask:
                sequences.append(more(it) - surrogate(it, a, *clip))
    return divided(sequences, normaliser)


def ngrpo(groups, virtual, std, normaliser, clip):
    return of_rollouts(groups, lambda rewards: advantages(rewards, rewards + virtual, std), normaliser, clip)


def w_reinforce(groups, positive, negative, mask):
    """A reward of at least 1/2 is a success; a rollout of weight 0 keeps its tokens in the divisor."""
    return of_rollouts(groups, lambda rewards: [positive if r >= 0.5 else -negative for r in rewards], mask=mask)


def superrl(groups, normaliser, mask):
    """The demonstration takes the slot of a rollout that is wrong, by D7 one that is cut off, then the longest."""
    sequences = []
    for g in groups:
        rewards = pay(g["rollouts"], 0.0)
        members = [dict(it, a=a) for it, a in zip(g["rollouts"], advantages(rewards, rewards, False))]
        if not any(r >= 1 for r in rewards):
            members = [dict(it, a=0.0) for it in members]
            slot = min(range(len(members)), key=lambda at: (rewards[at], members[at]["ended"], -len(members[at]["log_probs"])))
            members[slot] = g["teacher"]
        for it in members:
            if it["ended"] or not mask:
                sequences.append(-it["log_probs"] if it["teacher"] else -surrogate(it, it["a"]))
    return divided(sequences, normaliser)


def kdrl(groups, beta, std, on="all", mask=False):
    helpless = [it for g in groups if not any(map(is_solved, g["rollouts"])) for it in g["rollouts"]]

    def pull(it):
        pulled = {"all": True, "failures": not is_solved(it), "failed-groups": any(it is one for one in helpless)}
        return beta * 0.5 * (it["reference"] - it["log_probs"]) ** 2 if pulled[on] else 0.0

    return of_rollouts(groups, lambda rewards: advantages(rewards, rewards, std), more=pull, mask=mask)


def grown(groups, kept, std, normaliser="token-mean", mask=False):
    """GRPO on the rollouts that a growing group keeps; a ratio to what was scored again, where that is."""
    chosen = [dict(rollouts=[dict(it, old=it.get("rescored", it["old"])) for it in kept(g["rollouts"])]) for g in groups]
    return of_rollouts(chosen, lambda rewards: advantages(rewards, rewards, std), normaliser, mask=mask)


def is_solved(it):
    return it["ended"] and it["reward"] >= 1


def weakest_hint(rollouts):
    """Scaf-GRPO after its warm-up: the first success under a hint in the place of the first rollout."""
    plain = [it for it in rollouts if it["part"] == 0]
    helped = [it for it in rollouts if it["part"] > 0 and is_solved(it)]
    return helped[:1] + plain[1:] if helped else plain


def last_part(rollouts):
    """GHPO: the last group alone."""
    return [it for it in rollouts if it["part"] == rollouts[-1]["part"]]


cases = []


def record(name, method, loss, groups, compares_loss=True, **settings):
    value = loss
    value.backward()
    member = lambda it: None if it is None else dict(
        log_probs=it["log_probs"].tolist(), old_log_probs=it["old"].tolist(), entropies=it["entropies"].tolist(),
        reward=it["reward"], prefix=it["prefix"], ended=it["ended"], **({"reference": it["reference"].tolist()} if "reference" in it else {}),
        **{key: it[key] for key in ("part", "hint") if key in it},
        **({"rescored": it["rescored"].tolist()} if "rescored" in it else {}),
        **({"entropy_gradient": (torch.zeros_like(it["entropies"]) if it["entropies"].grad is None else it["entropies"].grad).tolist()}
           if it["entropies"].requires_grad else {}),
        gradient=(it["log_probs"].grad if it["log_probs"].grad is not None else torch.zeros_like(it["log_probs"])).tolist())
    cases.append(dict(name=name, method=method, max_response=L, loss=float(value) if compares_loss else None,
                      groups=[dict(rollouts=[member(it) for it in g["rollouts"]], teacher=member(g["teacher"])) for g in groups],
                      **settings))


mixed = lambda: [group([1, 0, 0], [5, 9, 12], 7), group([0, 0, 0], [3, 8, 6], 11), group([1, 1, 0], [4, 4, 10], 5)]
g = mixed()
record("chord-mu at step 50", "chord-mu", chord(g, 50, 0, 200, 0.9, 0.05), g, step=50, own={}, std=True, clip=[0.2, 0.2],
       normaliser="token-mean")
g = mixed()
record("chord-mu in its warm-up", "chord-mu", chord(g, 2, 8, 200, 0.9, 0.05), g, step=2, own=dict(warmup=8), std=True,
       clip=[0.2, 0.2], normaliser="token-mean")
g = mixed()
record("srft as HPT's authors divide it", "srft", srft(g), g, step=1, own=dict(weights="entropy-apart"), std=False,
       clip=[math.inf, math.inf], normaliser="length")

g = [dict(rollouts=[rollout(p + n, r, p) for n, r in zip([5, 9, 12], rewards)], teacher=None)
     for p, rewards in [(4, [1, 0, 0]), (7, [0, 0, 0]), (2, [1, 1, 0])]]
for it in [it for group in g for it in group["rollouts"]]:
    it["old"] = it["old"][it["prefix"]:]
record("uft", "uft", uft(g, 0.25), g, step=7, own=dict(weight=0.25), std=True, clip=[0.2, 0.2], normaliser="token-mean")
unequal = lambda: [scored(group(rewards, lengths)) for rewards, lengths in [([1, 0, 0], [5, 9, 12]), ([0, 0, 0], [3, 8, 6])]]
g = unequal()
record("opd", "opd", opd(g), g, step=1, own={}, std=False, clip=[0.2, 0.2], normaliser="token-mean")
for estimator in ["k1", "k2", "k3"]:
    g = unequal()
    record(f"grpo with {estimator}", "grpo", grpo_kl(g, 0.3, estimator), g, step=1, own={}, std=False, clip=[0.2, 0.2],
           normaliser="token-mean", kl=dict(coef=0.3, estimator=estimator))

signed = lambda: float(torch.round(torch.rand(()) * 40 - 25) / 16)
for normaliser in ["constant", "length", "token-mean", "sequence-mean"]:
    for truncated in ["wrong", "mask"]:
        std = normaliser == "token-mean"
        g = random_groups(signed, True)
        record(f"cut responses, {truncated}, {normaliser}", "luffy",
               cut(g, lambda rewards: advantages(rewards, rewards, std), normaliser, truncated, -0.25), g, step=1, own={},
               std=std, clip=[0.2, 0.2], normaliser=normaliser, truncated=truncated, wrong=-0.25, success_at=0.5)
maximum_likelihood = lambda rewards: [0.0 if sum(rewards) == 0 else r / (sum(rewards) / len(rewards)) - 1 for r in rewards]
positive = lambda: float(torch.round(torch.rand(()) * 16) / 16)
for truncated in ["wrong", "mask"]:
    g = random_groups(positive, False)
    record(f"cut responses, {truncated}, maxrl", "maxrl", cut(g, maximum_likelihood, "token-mean", truncated, 0.0), g, step=1,
           own={}, std=False, clip=[0.2, 0.2], normaliser="token-mean", truncated=truncated, wrong=0.0, success_at=0.5)
bonus = dict(step=1, own={}, std=False, clip=[math.inf, math.inf], normaliser="length", entropy_coef=0.02)
g = with_entropies(mixed())
record("luffy's entropy bonus", "luffy", luffy(g, 0.02), g, teacher_weight="advantage", **bonus)
g = with_entropies(mixed())
record("hpt's entropy bonus", "hpt", hpt(g, 0.02), g, **bonus)

common = dict(step=1, own={}, std=False, clip=[0.2, 0.2], normaliser="token-mean")


def kinds(teacher=None, cut=()):
    """A mixed group, a failed and a solved one of unequal lengths; `cut` are rollouts that are cut off, by group and place."""
    groups = [group(rewards, lengths, teacher) for rewards, lengths in
              [([1, 0, 0, 1], [5, 9, 12, 3]), ([0, 0, 0, 0], [3, 8, 6, 11]), ([1, 1, 1, 1], [4, 2, 10, 7])]]
    for number, place in cut:
        groups[number]["rollouts"][place]["ended"] = False
    return groups


def parts(*sampled, rescored=None):
    """A group by its parts, each (rewards, lengths): plain, then under each hint. What was sampled under a hint has
    log-probabilities far from those behind the plain prompt, which are scored again: before the first update the same."""
    rollouts = []
    for part, (rewards, lengths) in enumerate(sampled):
        for r, n in zip(rewards, lengths):
            it = dict(rollout(n, r), part=part)
            if part > 0:
                it["hint"] = part - 1
            if part > 0 and rescored is not None:
                it["rescored"] = it["log_probs"].detach().clone() if rescored == "first update" else it["old"]
                it["old"] = (it["old"] / 4).float().double()
            rollouts.append(it)
    return dict(rollouts=rollouts, teacher=None)


g = kinds()
record("ngrpo", "ngrpo", ngrpo(g, [1.0], True, "token-mean", (0.16, 0.24)), g,
       **dict(common, std=True, clip=[0.16, 0.24]))
g = kinds()
g[0]["rollouts"][2]["reward"] = 0.25
record("ngrpo, two virtual rewards", "ngrpo", ngrpo(g, [1.5, 1.5], False, "constant", (0.2, 0.2)), g,
       **dict(common, own=dict(reward=1.5, count=2), normaliser="constant"))
for name, positive, negative in [("w-reinforce", 0.1, 1.0), ("psr", 1.0, 0.0), ("nsr", 0.0, 1.0)]:
    for truncated in ["wrong", "mask"]:
        g = kinds(cut=[(0, 3), (1, 1), (2, 0)])
        g[0]["rollouts"][1]["reward"], g[2]["rollouts"][3]["reward"] = 0.25, 0.75
        own = {} if name == "w-reinforce" else dict(positive=positive, negative=negative)
        record(f"{name}, cut responses, {truncated}", "w-reinforce", w_reinforce(g, positive, negative, truncated == "mask"), g,
               **dict(common, own=own, truncated=truncated, success_at=0.5))
g = kinds(teacher=6)
g[1]["rollouts"][0]["reward"] = 0.25
record("superrl", "superrl", superrl(g, "token-mean", False), g, **common)
g = kinds(teacher=9, cut=[(0, 0), (1, 1), (1, 2)])
record("superrl, cut responses, mask, constant", "superrl", superrl(g, "constant", True), g,
       **dict(common, normaliser="constant", truncated="mask"))
for step, beta in [(1, 5e-3), (41, 3e-3), (201, 1e-3)]:
    g = [scored(it) for it in kinds()]
    record(f"kdrl at step {step}", "kdrl", kdrl(g, beta, True), g, **dict(common, step=step, std=True))
for truncated in ["wrong", "mask"]:
    g = [scored(it) for it in kinds(cut=[(0, 3), (1, 1), (2, 0)])]
    record(f"kdrl on failures, cut responses, {truncated}", "kdrl", kdrl(g, 0.2 - 2 * 0.03, False, "failures", truncated == "mask"),
           g, **dict(common, step=3, own=dict(coef=0.2, floor=0.1, decay=0.03, on="failures"), truncated=truncated))


def laddered(rescored=None):
    """Mixed; failed and helped by the second hint; failed and helped by the third, as the second's success is cut off;
    failed under every hint; solved."""
    groups = [parts(([1, 0, 0, 1], [5, 9, 12, 3])),
              parts(([0, 0, 0, 0], [3, 8, 6, 11]), ([0], [5]), ([1], [7]), rescored=rescored),
              parts(([0, 0, 0, 0], [4, 4, 9, 2]), ([0], [6]), ([1], [24]), ([1], [10]), rescored=rescored),
              parts(([0, 0, 0, 0], [7, 3, 5, 2]), ([0], [4]), ([0], [8]), ([0], [3]), rescored=rescored),
              parts(([1, 1, 1, 1], [4, 2, 10, 7]))]
    groups[2]["rollouts"][5]["ended"] = False
    return groups


after = dict(common, step=51, std=True)
g = laddered()
record("scaf-grpo", "scaf-grpo", grown(g, weakest_hint, True), g, **after)
for rescored in ["first update", "later"]:
    g = laddered(rescored)
    record(f"scaf-grpo behind the plain prompt, {rescored}", "scaf-grpo", grown(g, weakest_hint, False, "constant"), g,
           **dict(after, own=dict(plain=True), std=False, normaliser="constant"))
g = [parts(([0, 0, 0, 0], [3, 8, 6, 11])), parts(([1, 0, 0, 0], [2, 9, 5, 4]))]
record("scaf-grpo in its warm-up", "scaf-grpo", grown(g, lambda rollouts: rollouts, True), g, **dict(after, step=50))


def repeated(rescored=None):
    """Mixed; failed, failed and then mixed; failed and then solved, of which one is cut off; failed under every hint;
    solved."""
    failed = lambda *lengths: ([0, 0, 0, 0], lengths)
    groups = [parts(([1, 0, 0, 1], [5, 9, 12, 3])),
              parts(failed(3, 8, 6, 11), failed(5, 2, 2, 9), ([0, 1, 0, 0], [7, 4, 10, 2]), rescored=rescored),
              parts(failed(4, 4, 9, 2), ([1, 1, 1, 1], [6, 24, 3, 5]), rescored=rescored),
              parts(failed(7, 3, 5, 2), failed(4, 8, 3, 6), failed(2, 2, 5, 3), failed(9, 6, 4, 8), rescored=rescored),
              parts(([1, 1, 1, 1], [4, 2, 10, 7]))]
    groups[2]["rollouts"][5]["ended"] = False
    return groups


for truncated in ["wrong", "mask"]:
    g = repeated()
    record(f"ghpo, cut responses, {truncated}", "ghpo", grown(g, last_part, True, mask=truncated == "mask"), g,
           **dict(common, std=True, truncated=truncated))
for rescored in ["first update", "later"]:
    g = repeated(rescored)
    record(f"ghpo behind the plain prompt, {rescored}", "ghpo", grown(g, last_part, False, "constant"), g,
           **dict(common, own=dict(plain=True), normaliser="constant"))
g = [dict(rollouts=[rollout(p + n, r, p) for n, r in zip(lengths, rewards)], teacher=None)
     for p, lengths, rewards in [(4, [5, 9, 12], [1, 0, 0]), (6, [3, 8, 6], [0, 0, 0]), (3, [4, 2, 10], [1, 1, 1])]]
for it in [it for group in g for it in group["rollouts"]]:
    it["old"] = it["old"][it["prefix"]:]
g[0]["rollouts"][2].update(reward=1.0, ended=False)
record("uft with a solved group and a cut response", "uft", uft(g, 0.001), g, **dict(common, step=7, std=True))


def plain(it):
    if isinstance(it, dict):
        return {k: plain(v) for k, v in it.items()}
    if isinstance(it, list):
        return [plain(v) for v in it]
    return "inf" if isinstance(it, float) and math.isinf(it) else it


for truncated in ["wrong", "mask"]:
    g = [scored(it) for it in kinds(cut=[(0, 3), (1, 1), (2, 0)])]
    record(f"kdrl on failed groups, cut responses, {truncated}", "kdrl",
           kdrl(g, 0.2 - 2 * 0.03, False, "failed-groups", truncated == "mask"), g,
           **dict(common, step=3, own=dict(coef=0.2, floor=0.1, decay=0.03, on="failed-groups"), truncated=truncated))
print(json.dumps(dict(torch=torch.__version__, cases=plain(cases)), indent=None))
