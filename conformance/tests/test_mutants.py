"""Mutants of the reference: one changed line each, and the cases that catch it. None may survive."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

import lossproof
from lossproof import reference
from lossproof.cases import load_all

SOURCE = Path(reference.__file__).read_text()

# Name, what stands in the reference, what the mutant has, and a case that must catch it.
MUTANTS = [
    ("ratio not detached", "        return -weight * advantage * logp, -weight * advantage\n",
     "        return -weight * advantage * logp, -weight * advantage * (1 + logp * (weight == np.exp(row.logp - row.old)))\n", "agg/cispo/both"),
    ("mask in the divisor", 'return float((row.mask * (tis_weight(row, hyper) > 0)).sum())\n    return row.n',
     'return float((row.mask * (tis_weight(row, hyper) > 0)).sum())\n    return float((row.mask * (tis_weight(row, hyper) > 0)).sum()) if hyper.get("tis") else row.n', "tis/token-mask"),
    ("all tokens in the divisor", "    return row.n\n\n\ndef imitated", "    return float(len(row.mask))\n\n\ndef imitated", "law/truncated/loss"),
    ("σ with n", 'known.std(ddof=hyper["std"]["ddof"])', "known.std(ddof=0)", "adv/std"),
    ("ε forgotten", ' + float(hyper["std"]["epsilon"])', "", "adv/std"),
    ("temperature on one side", '    old = [np.array(it, dtype=np.float64) / temperature for it', "    old = [np.array(it, dtype=np.float64) for it", "temperature/both"),
    ("schedule one step late", "    at = max(at - ", "    at = max(at - 1 - ", "teacher/mixing-schedule/from-peak"),
    ("valley one step early", "if at >= warmup + decay:", "if at >= warmup + decay - 1:", "teacher/mixing-schedule/from-peak"),
    ("clip without the minimum", "(plain <= bounded) & (ratio <= cap)", "(ratio >= low) & (ratio <= high) & (ratio <= cap)", "agg/token-mean/ppo"),
    ("slope through the clip", "slope = np.where((plain <= bounded) & (ratio <= cap), -ratio * advantage, 0.0)", "slope = -ratio * advantage", "agg/token-mean/ppo"),
    ("clip_low for both", '1 + hyper.get("clip_high", math.inf)', '1 + hyper.get("clip_low", math.inf)', "agg/token-mean/clip-higher"),
    ("dual clip for good tokens", "beyond = (advantage < 0) & (value >", "beyond = (value >", "agg/token-mean/clip-higher-dual"),
    ("no dual clip", "    if dual is not None:", "    if dual is None and False:", "agg/token-mean/clip-higher-dual"),
    ("L the longest of the batch", 'float(hyper.get("length", CONSTANT_LENGTH))', "len(row.logp)", "agg/seq-mean-token-sum-norm/ppo"),
    ("GSPO by the sum", "np.exp((row.mask * delta).sum() / max(row.n, 1.0))", "np.exp((row.mask * delta).sum())", "agg/gspo/wide"),
    ("GSPO's mean over masked tokens", "np.exp((row.mask * delta).sum() / max(row.n, 1.0))", "np.exp(delta.mean())", "law/masked-gspo"),
    ("k3 turned round", "        return k3, -np.expm1(-delta)", "        return np.expm1(delta) - delta, np.expm1(delta)", "kl/k3"),
    ("score term forgotten", "        return k * np.exp(logp - frozen), slope + k\n", "        return k, slope\n", "kl/with-score-term"),
    ("KL not scaled", 'value + hyper["beta"] * k, slope + hyper["beta"] * k_slope', "value + k, slope + k_slope", "kl/k3-in-grpo"),
    ("entropy raised by a minus", "entropy_slope = -coefficient * weight", "entropy_slope = coefficient * weight", "entropy/bonus"),
    ("entropy of the teacher", "if coefficient and not row.teacher:", "if coefficient:", "entropy/policy-tokens-only"),
    ("own mean of a micro-batch", "sequence_loss(rows[i], hyper, whole, logp[i])", "sequence_loss(rows[i], hyper, totals([rows[j] for j in micro], hyper), logp[i])", "law/micro-batches/token-mean"),
    ("ranks not rescaled", "scale = len(ranks)", "scale = 1", "law/ranks/token-mean"),
    ("one divisor for all windows", "whole = totals([rows[i] for rank in ranks", "whole = totals([rows[i] for ranks in cut[\"steps\"] for rank in ranks", "law/window/token-mean"),
    ("μ on the wrong side", "mu / whole.teacher_tokens if row.teacher else (1 - mu)", "(1 - mu) / whole.teacher_tokens if row.teacher else mu", "teacher/chord-mu/0.1"),
    ("φ not detached", "return -factors * logp, -factors\n        case \"trapo\"", "return -factors * logp, -factors * (1 + logp * (1 - 2 * now))\n        case \"trapo\"", "teacher/chord-phi/0.1"),
    ("LUFFY's slope without d", "-row.advantage * d * p / (p + d) ** 2", "-row.advantage * p / (p + d)", "teacher/luffy/token-mean"),
    ("SRFT's entropy as a sum", "return float((row.mask * row.entropy).sum() / max(row.n, 1.0))", "return float((row.mask * row.entropy).sum())", "teacher/srft/weights"),
    ("HPT never switches", 'return not hyper.get("switch") or not solved[row.group]', "return True", "teacher/hpt/switch"),
    ("prefix one token longer", "inside = np.arange(len(logp)) < row.prefix", "inside = np.arange(len(logp)) <= row.prefix", "teacher/trapo"),
    ("first token out", "return float(self.mask.sum())", "return float(self.mask.sum() - 1)", "sft/first-token"),
    ("constant group divided", "if len(known) < 2 or ((known == known[0]).all() and (rewards == known[0]).all()):\n        return np.zeros_like(rewards)",
     "rewards = rewards.astype(np.float32)\n    known = known.astype(np.float32)\n    if len(known) < 2:\n        return np.zeros_like(rewards)", "adv/constant-group/std/0.1"),
    ("group of one keeps its reward", "if len(known) < 2 or", "if len(known) < 2:\n        return rewards\n    if ", "adv/group-of-one/std"),
    ("NaN let through", "if not np.isfinite(rewards).all():", "if False:", "adv/nan-reward/std"),
    ("leave one in", "rest = np.delete(rewards, i)", "rest = rewards", "adv/leave-one-out"),
    ("residue of equal rewards", "if hyper.get(\"std\") and not constant else 1.0", "+ 1e-12 if hyper.get(\"std\") else 1.0", "adv/identical-rest"),
    ("teacher always in the mean", "out_teacher = hyper.get(\"teacher_in_mean\") is False and", "out_teacher = False and", "adv/teacher-out-mean"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "line", "instead", "catcher"), MUTANTS, ids=[it[0] for it in MUTANTS])
def test_a_mutant_is_caught(name, line, instead, catcher):
    assert SOURCE.count(line) == 1, f"{name}: the line stands {SOURCE.count(line)} times in the reference"
    mutant = types.ModuleType("mutant")
    exec(compile(SOURCE.replace(line, instead), name, "exec"), namespace(mutant))
    caught = [record["id"] for record in lossproof.run(mutant.step) if not good(record)]
    assert catcher in caught, f"{name}: caught by {caught or 'no case'}"


def namespace(module):
    sys.modules[module.__name__] = module  # dataclass looks its module up.
    return module.__dict__


def good(record):
    """As the reference answers: not a registered variant instead."""
    return record["verdict"] in ("exact", "equal", "refused")


def test_there_is_a_dozen_and_more():
    assert len(MUTANTS) > 12
    assert {it[3] for it in MUTANTS} <= {case["id"] for case in load_all()}
