"""Members, losses and gradients of methods that let several foreign sequences into a group, in closed form (f64).

usage: python3 testdata/methods/make_family.py > testdata/methods/family.json
Needs Python alone. Written after the papers and these repositories, no code of theirs:

AMPO    SII-Enigma/AMPO at 46cf136: the k traces with the largest mean probability of their answer replace k rollouts of
        a failed group; r - mean over the mixed group; -A*pi/(pi + 0.1) on a trace, the clipped surrogate on a rollout;
        the sum over tokens by the response limit
RELIFT  TheRoadQaQ/ReLIFT at eb95454: r - mean, no clip; a failed group has advantages of 0
RLEP    Kwai-Klear/RLEP at c15e5b4: two verified answers join the group, mean and Bessel deviation over all, their ratio to
        the weights at the start of the step; clip 0.2 and 0.28
REPO    SihengLi99/RePO at 119fef6: advantages of the sampled and of the kept rollouts among their own (split) or over both
        (mixed); c times the kept ones' clipped surrogate, its ratio to what was recorded; one divisor for both
EXGRPO  ElliottYan/LUFFY at 01f4ae0, folder ExGRPO: one kept success of a prompt half solved, the one of the lowest mean
        entropy; r - mean over the group; no clip; -A*w/(w + 0.1) with w to what was recorded
"""
import json
import math
import random
import struct

rng = random.Random(45)
L = 24  # longest response
f32 = lambda x: struct.unpack("f", struct.pack("f", x))[0]
cases = []


def sequence(id, n, reward=0.0):
    log_probs = [f32(-3 * rng.random()) for _ in range(n)]
    return dict(id=id, reward=reward, log_probs=log_probs, old=[f32(it + 0.3 * rng.gauss(0, 1)) for it in log_probs])


def relative(rewards, among, std=False):
    mean = sum(among) / len(among)
    bessel = math.sqrt(sum((it - mean) ** 2 for it in among) / (len(among) - 1)) + 1e-6 if std else 1
    return [(it - mean) / bessel for it in rewards]


def surrogate(it, a, low=0.2, high=0.2, factor=1.0):
    """Its part of the loss, and the slope by each log-probability."""
    value, slopes = 0.0, []
    for new, old in zip(it["log_probs"], it["old"]):
        r = math.exp(new - old)
        kept, cut = r * a, min(max(r, 1 - low), 1 + high) * a
        value -= factor * min(kept, cut) / L
        slopes.append(-factor * kept / L if kept <= cut else 0.0)
    it.update(value=value, gradient=slopes)


def shaped(it, a, d, old=None):
    """-a*x/(x + d) of x = pi, or of the ratio to `old`."""
    value, slopes = 0.0, []
    for place, new in enumerate(it["log_probs"]):
        x = math.exp(new - (old[place] if old else 0.0))
        value -= a * x / (x + d) / L
        slopes.append(-a * x * d / (x + d) ** 2 / L)
    it.update(value=value, gradient=slopes)


def record(name, method, groups, own=None, std=False, clip=(0.2, 0.2)):
    cases.append(dict(name=name, method=method, own=own or {}, std=std, clip=list(clip), max_response=L, groups=groups))


def ampo():
    traces = [dict(sequence(10 + i, n, 1.0), score=[math.log(p), math.log(q)])
              for i, (n, p, q) in enumerate([(5, 0.1, 0.3), (7, 0.95, 0.85), (4, 0.6, 0.4), (9, 0.7, 0.9)])]
    failed = dict(fresh=[sequence(20 + i, 3 + i) for i in range(8)], traces=traces, foreign=[11, 13], members=8)
    for it in failed["fresh"]:
        surrogate(it, -0.25)
    for it in traces:
        shaped(it, 0.75, 0.1)
    solved = dict(fresh=[sequence(30 + i, 4 + i, float(i == 0)) for i in range(8)], traces=[dict(sequence(40, 4, 1.0), score=[-1.0])],
                  foreign=[], members=8)
    for it in solved["fresh"]:
        surrogate(it, 0.875 if it["reward"] else -0.125)
    return [failed, solved]


record("ampo", "ampo", ampo())


def relift():
    groups = []
    for rewards in [(1, 0, 0, 0), (0, 0, 0, 0)]:
        fresh = [sequence(20 + i, 3 + i, float(r)) for i, r in enumerate(rewards)]
        for it, a in zip(fresh, relative(rewards, rewards)):
            surrogate(it, a, math.inf, math.inf)
        groups.append(dict(fresh=fresh, traces=[sequence(40, 4, 1.0)], foreign=[], members=4))
    return groups


record("relift", "relift", relift(), clip=(None, None))


def rlep():
    groups = []
    for rewards, traces in [((0,) * 16, 2), ((1, 0, 0, 1) * 4, 1)]:
        fresh = [sequence(20 + i, 2 + i % 7, float(r)) for i, r in enumerate(rewards)]
        replayed = [sequence(60 + i, 5 + i, 1.0) for i in range(traces)]
        all = fresh + replayed
        every = [it["reward"] for it in all]
        for it, a in zip(all, relative(every, every, True)):
            surrogate(it, a, 0.2, 0.28)
        groups.append(dict(fresh=fresh, traces=replayed, foreign=[60 + i for i in range(traces)], members=len(all)))
    return groups


record("rlep", "rlep", rlep(), std=True, clip=(0.2, 0.28))


def repo(mixed, std, weight, count):
    groups = []
    for rewards, kept in [((1, 0, 0, 0), (1, 0, 1, 0)), ((0, 0, 0, 0), (0, 1, 1, 0)), ((1, 0, 0, 0), (1, 0, 0))]:
        fresh = [sequence(20 + i, 3 + i, float(r)) for i, r in enumerate(rewards)]
        stored = [sequence(40 + i, 4 + i, float(r)) for i, r in enumerate(kept)]
        chosen = sorted(stored, key=lambda it: -it["reward"])[:count] if len(stored) >= 4 else []
        every = [it["reward"] for it in fresh + chosen]
        own = every[:4]
        for it, a in zip(fresh, relative(own, every if mixed else own, std) if len(set(every if mixed else own)) > 1 else [0.0] * 4):
            surrogate(it, a)
        reference = every if mixed else every[4:]
        values = relative(every[4:], reference, std) if len(set(reference)) > 1 else [0.0] * len(chosen)
        for it, a in zip(chosen, values):
            surrogate(it, weight * a)
        groups.append(dict(fresh=fresh, stored=stored, foreign=sorted(it["id"] for it in chosen), members=4 + len(chosen)))
    return groups


small = dict(begin=4, remembered=4, replayed=4)
record("repo", "repo", repo(False, True, 1.0, 4), own=small, std=True)
record("repo, mixed", "repo", repo(True, False, 0.5, 4), own=dict(small, advantage="mixed", weight=0.5))
record("repo, the best two", "repo", repo(True, True, 1.0, 2), own=dict(small, advantage="mixed", replayed=2), std=True)


def exgrpo():
    fresh = [sequence(20 + i, 3 + i) for i in range(8)]
    entropies = [[0.5, 0.4, 0.6, 0.5], [0.1, 0.2, 0.6], [0.9, 0.1, 0.2, 0.2, 0.1]]  # means 0.5, 0.3, 0.3 + 1e-9
    stored = [dict(sequence(40 + i, len(it), 1.0), entropies=it, successes=4) for i, it in enumerate(entropies)]
    stored[2]["entropies"][0] += 1e-6
    for it in fresh:
        surrogate(it, -0.125, math.inf, math.inf)
    for it in stored:
        shaped(it, 0.875, 0.1, it["old"])
    plain = [sequence(60 + i, 2 + i, float(i < 4)) for i in range(8)]
    for it in plain:
        surrogate(it, 0.5 if it["reward"] else -0.5, math.inf, math.inf)
    return [dict(fresh=fresh, stored=stored, foreign=[41], members=8), dict(fresh=plain, foreign=[], members=8)]


record("exgrpo", "exgrpo", exgrpo(), clip=(None, None))

print(json.dumps(dict(cases=cases)))
