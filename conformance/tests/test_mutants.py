"""Mutants of the reference: one changed line each, and the cases that catch it. None may survive."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import pytest

import lossproof
from lossproof import reference
from lossproof.cases import load_all

SOURCE = Path(reference.__file__).read_text()

# Name, what stands in the reference, what the mutant has, and a case that must catch it.
MUTANTS = [
    ("ratio not detached", "low, high)\n        return -weight * advantage * logp, -weight * advantage\n",
     "low, high)\n        return -weight * advantage * logp, -weight * advantage * (1 + logp * (weight == np.exp(row.logp - row.old)))\n", "agg/cispo/both"),
    ("mask in the divisor", 'return float((row.mask * (tis_weight(row, hyper) > 0)).sum())\n    return row.n',
     'return float((row.mask * (tis_weight(row, hyper) > 0)).sum())\n    return float((row.mask * (tis_weight(row, hyper) > 0)).sum()) if hyper.get("tis") else row.n', "tis/token-mask"),
    ("all tokens in the divisor", "    return row.n\n\n\ndef imitated", "    return float(len(row.mask))\n\n\ndef imitated", "law/truncated/loss"),
    ("σ with n", 'values.std(ddof=rule["ddof"])', "values.std(ddof=0)", "adv/std"),
    ("ε forgotten", ' + float(rule["epsilon"])', "", "adv/std"),
    ("temperature on one side", '    old = [np.array(it, dtype=np.float64) / temperature for it', "    old = [np.array(it, dtype=np.float64) for it", "temperature/both"),
    ("schedule one step late", "    at = max(at - ", "    at = max(at - 1 - ", "teacher/mixing-schedule/from-peak"),
    ("valley one step early", "if at >= warmup + decay:", "if at >= warmup + decay - 1:", "teacher/mixing-schedule/from-peak"),
    ("clip without the minimum", "(plain <= bounded) & (ratio <= cap)", "(ratio >= low) & (ratio <= high) & (ratio <= cap)", "agg/token-mean/ppo"),
    ("slope through the clip", "slope = np.where((plain <= bounded) & (ratio <= cap), -ratio * advantage, 0.0)", "slope = -ratio * advantage", "agg/token-mean/ppo"),
    ("clip_low for both", '1 + hyper.get("clip_high", math.inf)', '1 + hyper.get("clip_low", math.inf)', "agg/token-mean/clip-higher"),
    ("dual clip for good tokens", "beyond = (advantage < 0) & (value >", "beyond = (value >", "agg/token-mean/clip-higher-dual"),
    ("no dual clip", "    if dual is not None:", "    if dual is None and False:", "agg/token-mean/clip-higher-dual"),
    ("L the longest of the batch", 'float(hyper.get("length", CONSTANT_LENGTH))', "len(row.logp)", "agg/seq-mean-token-sum-norm/ppo"),
    ("GSPO by the sum", "np.exp(row.mean(delta))", "np.exp(row.sum(delta))", "agg/gspo/wide"),
    ("GSPO's mean over masked tokens", "np.exp(row.mean(delta))", "np.exp(delta.mean())", "law/masked-gspo"),
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
    ("SRFT's entropy as a sum", "return row.mean(row.entropy)", "return row.sum(row.entropy)", "teacher/srft/weights"),
    ("HPT never switches", 'return not hyper.get("switch") or not solved[row.group]', "return True", "teacher/hpt/switch"),
    ("prefix one token longer", "inside = np.arange(len(logp)) < row.prefix", "inside = np.arange(len(logp)) <= row.prefix", "teacher/trapo"),
    ("first token out", "return float(self.mask.sum())", "return float(self.mask.sum() - 1)", "sft/first-token"),
    ("constant group divided", "        return (rewards - mean(known)) / spread(known, hyper)", "        return (np.float32(rewards) - np.float32(rewards).sum() / np.float32(len(known))) / 1e-6", "adv/constant-group/std/0.1"),
    ("group of one keeps its reward", "            return np.zeros_like(rewards)\n", "            return rewards\n", "adv/group-of-one/std"),
    ("NaN let through", "if not np.isfinite(rewards).all():", "if False:", "adv/nan-reward/std"),
    ("leave one in", "rest = rewards[counted & (np.arange(len(rewards)) != i)]", "rest = rewards[counted]", "adv/leave-one-out"),
    ("residue of equal rewards", "if not rule or (values == values[0]).all():", "if not rule:", "adv/identical-rest"),
    ("teacher always in the mean", "out_teacher = hyper.get(\"teacher_in_mean\") is False and", "out_teacher = False and", "adv/teacher-out-mean"),
    # The loss alone.
    ("loss doubled and shifted", 'answer["loss"] = None if value_means_nothing(hyper) else total', 'answer["loss"] = 2 * total + 1', "agg/token-mean/ppo"),
    ("loss of another sign", 'answer["loss"] = None if value_means_nothing(hyper) else total', 'answer["loss"] = -total', "kl/k2"),
    ("loss that is no number", 'answer["loss"] = None if value_means_nothing(hyper) else total', 'answer["loss"] = math.nan', "law/dead-batch/token-mean"),
    ("no number where a value means nothing", 'answer["loss"] = None if value_means_nothing(hyper) else total', 'answer["loss"] = math.nan if value_means_nothing(hyper) else total', "agg/cispo/both"),
    ("loss of the last micro-batch", "total += value * scale / len(ranks)", "total = value * scale / len(ranks)", "sft/token-mean"),
    ("loss by the number of micro-batches", 'answer["loss"] = None if value_means_nothing(hyper) else total', 'answer["loss"] = total / len(cut["steps"][0][0])', "agg/reinforce"),
    ("value of k2 under the slope of k3-straight-through", "return np.expm1(-now) + now + delta**2 / 2 - now**2 / 2, delta", "return delta**2 / 2, delta", "kl/straight-through"),
    ("k3 without its −1", "k3 = np.expm1(-delta) + delta", "k3 = np.exp(-delta) + delta", "kl/k3"),
    # Cuts.
    ("short last micro-batch dropped", "                for i in micro:\n", "                for i in micro if len(micro) == len(rank[0]) or len(micro) > 2 else []:\n", "agg/seq-mean-token-sum/ppo"),
    ("short last micro-batch weighs as a whole one", "sequence_loss(rows[i], hyper, whole, logp[i])", "(it * len(rank[0]) / len(micro) for it in sequence_loss(rows[i], hyper, whole, logp[i]))", "agg/seq-mean-token-mean/ppo"),
    ("only the first micro-batch", "            for micro in rank:\n", "            for micro in rank[:1]:\n", "agg/token-mean/ppo"),
    ("mean over micro-batches", "grad[i] += slope * scale / len(ranks)", "grad[i] += slope * scale / len(ranks) / len(rank)", "agg/prompt-mean"),
    ("ranks summed", "grad[i] += slope * scale / len(ranks)", "grad[i] += slope * scale", "law/ranks/token-mean"),
    # Scale and sign.
    ("turned round", "grad[i] += slope * scale / len(ranks)", "grad[i] -= slope * scale / len(ranks)", "agg/token-mean/ppo"),
    ("twice", "grad[i] += slope * scale / len(ranks)", "grad[i] += 2 * slope * scale / len(ranks)", "sft/token-mean"),
    # Means.
    ("token sum as a mean", 'case "token-sum":\n            return ones', 'case "token-sum":\n            return ones / max(whole.tokens, 1.0)', "agg/token-sum/ppo"),
    ("sequence sum over tokens", 'case "seq-mean-token-sum":\n            return ones / whole.sequences', 'case "seq-mean-token-sum":\n            return ones / whole.tokens', "agg/luspo"),
    ("constant without B", "return ones / (whole.sequences * float(hyper.get(", "return ones / (float(hyper.get(", "agg/seq-mean-token-sum-norm/ppo"),
    ("prompts of the generation batch", "len(whole.prompt_tokens) * max(", "2 * max(", "law/window/prompt-mean"),
    ("prompts by rollouts", "len(whole.prompt_tokens) * max(whole.prompt_tokens[row.group], 1.0)", "whole.tokens", "agg/prompt-mean/uneven"),
    ("n of masked tokens too", "    n = max(row.n, 1.0)\n    match", "    n = float(len(row.mask))\n    match", "law/masked-tokens/seq-mean"),
    ("NaN multiplied by the mask", "return float(np.where(self.mask > 0, values, 0.0).sum())", "return float((self.mask * values).sum())", "law/masked-nan/gspo"),
    ("empty sequences in N as one token", "    return row.n\n\n\ndef imitated", "    return max(row.n, 1.0)\n\n\ndef imitated", "law/dead-rank"),
    # Ratios.
    ("old taken from now", "    delta = logp - row.old\n    ratio", "    delta = logp - row.logp\n    ratio", "agg/token-mean/ppo"),
    ("old taken from the sampler", "    delta = logp - row.old\n    ratio", "    delta = logp - row.sampler\n    ratio", "agg/token-mean/ppo"),
    ("ratio turned round", "    delta = logp - row.old\n    ratio", "    delta = row.old - logp\n    ratio", "agg/seq-mean-token-mean/ppo"),
    ("no gradient where the ratio is 1", "(plain <= bounded) & (ratio <= cap)", "(plain <= bounded) & (ratio != 1) & (ratio <= cap)", "agg/on-policy/ppo"),
    ("bounds not met are out", "(plain <= bounded) & (ratio <= cap)", "(plain < bounded) & (ratio <= cap)", "agg/on-policy/ppo"),
    ("clip of log-ratios", "return clipped(ratio, advantage, low, high, hyper)\n    if name == \"gspo\"", "return clipped(ratio, advantage, math.exp(low - 1), math.exp(high - 1), hyper)\n    if name == \"gspo\"", "agg/token-mean/ppo"),
    ("clip at the inverse", "return clipped(ratio, advantage, low, high, hyper)\n    if name == \"gspo\"", "return clipped(ratio, advantage, 1 / high, high, hyper)\n    if name == \"gspo\"", "agg/token-mean/ppo"),
    ("maximum in place of the minimum", "value = -np.minimum(plain, bounded)", "value = -np.maximum(plain, bounded)", "agg/token-mean/ppo"),
    ("slope of log π in place of ρ", "(plain <= bounded) & (ratio <= cap), -ratio * advantage, 0.0)", "(plain <= bounded) & (ratio <= cap), -advantage, 0.0)", "agg/token-mean/ppo"),
    ("bounds swapped", 'low, high = 1 - hyper.get("clip_low", math.inf), 1 + hyper.get("clip_high", math.inf)', 'low, high = 1 - hyper.get("clip_high", math.inf), 1 + hyper.get("clip_low", math.inf)', "agg/token-mean/clip-higher"),
    ("cap after the minimum", "capped = np.minimum(ratio, cap)", "capped = ratio", "agg/seq-mean/two-sided"),
    ("dual clip at 1 + c", "beyond = (advantage < 0) & (value > -dual * advantage)", "dual = dual + 1\n        beyond = (advantage < 0) & (value > -dual * advantage)", "agg/seq-mean-token-mean/dual"),
    ("GSPO's slope of one token", "        return clipped(ratio, advantage, low, high, hyper)\n    if name == \"gmpo\"", "        value, slope = clipped(ratio, advantage, low, high, hyper)\n        return value, slope / max(row.n, 1.0)\n    if name == \"gmpo\"", "agg/luspo"),
    ("GSPO by tokens", "ratio = np.full_like(logp, np.exp(row.mean(delta)))", "pass", "agg/gspo/wide"),
    ("GMPO clipped both ways", "np.where(advantage >= 0, np.minimum(delta, bound), np.maximum(delta, bound))", "bound", "agg/gmpo"),
    ("GMPO's mean over all tokens", "mean = np.exp(row.mean(chosen))", "mean = np.exp(chosen.mean())", "law/masked-tokens/gmpo"),
    ("SAPO's temperatures swapped", "np.where(advantage > 0, above, below)", "np.where(advantage > 0, below, above)", "agg/sapo"),
    ("SAPO without 4/τ", "return -4 / temperature * gate * advantage", "return -gate * advantage", "agg/sapo"),
    ("DPPO on both sides", "np.where(advantage > 0, change <= hyper[\"tv_limit\"], -change <= hyper[\"tv_limit\"])", "np.abs(change) <= hyper[\"tv_limit\"]", "agg/dppo-tv"),
    ("CISPO unclipped", "weight = np.clip(np.exp(row.logp - row.old), low, high)", "weight = np.exp(row.logp - row.old)", "agg/cispo/both"),
    ("CISPO drops what it clips", "return -weight * advantage * logp, -weight * advantage\n    if name == \"vespo\"", "inside = weight == np.exp(row.logp - row.old)\n        return -weight * advantage * logp, -weight * advantage * inside\n    if name == \"vespo\"", "agg/cispo/both"),
    ("REINFORCE with a ratio", 'return -advantage * logp, -advantage\n    if name == "cispo"', 'return -advantage * ratio, -advantage * ratio\n    if name == "cispo"', "agg/reinforce"),
    ("VESPO by the mean", "log_weight = row.sum(row.logp - row.old)", "log_weight = row.mean(row.logp - row.old)", "agg/vespo"),
    ("VESPO's sides swapped", 'side = "positive" if (row.advantage >= 0).all()', 'side = "negative" if (row.advantage >= 0).all()', "agg/vespo"),
    ("DRO without its half", 'hyper["dro_beta"] / 2 * delta**2, -advantage + hyper["dro_beta"] * delta', 'hyper["dro_beta"] * delta**2, -advantage + 2 * hyper["dro_beta"] * delta', "agg/dro"),
    ("DRO without its penalty", 'hyper["dro_beta"] / 2 * delta**2, -advantage + hyper["dro_beta"] * delta', '0 * delta, -advantage', "agg/dro"),
    # Corrections.
    ("correction of the KL too", "        value, slope = weight * value, weight * slope\n", "        value, slope = weight * value, weight * slope\n        hyper = {**hyper, \"beta\": hyper.get(\"beta\", 0) * weight}\n", "tis/with-kl"),
    ("correction of the KL too, by masks", "        value, slope = weight * value, weight * slope\n", "        value, slope = weight * value, weight * slope\n        hyper = {**hyper, \"beta\": hyper.get(\"beta\", 0) * (weight > 0)}\n", "tis/mask-with-kl"),
    ("correction of demonstrations", "    if teacher and row.teacher:\n        return imitation(row, hyper, logp)\n    advantage", "    if teacher and row.teacher:\n        w = tis_weight(row, {**hyper, \"teacher\": None}) if hyper.get(\"tis\") else 1.0\n        return tuple(w * it for it in imitation(row, hyper, logp))\n    advantage", "tis/with-teacher"),
    ("correction of the entropy bonus", "entropy_slope = -coefficient * weight", "entropy_slope = -coefficient * weight * (tis_weight(row, hyper) if hyper.get(\"tis\") else 1.0)", "tis/with-entropy"),
    ("correction turned round", "log_weight = row.old - row.sampler\n", "log_weight = row.sampler - row.old\n", "tis/token-truncate"),
    ("correction from the current policy", "log_weight = row.old - row.sampler\n", "log_weight = row.logp - row.sampler\n", "tis/token-clip"),
    ("correction not truncated", "        return np.clip(weight, low, high)\n", "        return weight\n", "tis/token-truncate"),
    ("correction clipped in logarithms", "        return np.clip(weight, low, high)\n", "        return np.exp(np.clip(log_weight, low - 1, high - 1))\n", "tis/token-clip"),
    ("correction bounded below where no bound is", 'low, high = rule.get("low", 0.0)', 'low, high = rule.get("low", 0.9)', "tis/token-truncate"),
    ("mask counts 1", '{"weight": weight, "token-weight"', '{"weight": np.ones_like(weight), "token-weight"', "tis/token-mask"),
    ("mask that clips", "    return np.where(inside, kept, 0.0)\n", "    return np.clip(weight, low, high)\n", "tis/token-mask"),
    ("sequence's correction by the sum", "np.full_like(log_weight, row.mean(log_weight))", "np.full_like(log_weight, row.sum(log_weight))", "tis/seq-mask"),
    ("sequence's product by the mean", "np.full_like(log_weight, row.sum(log_weight))", "np.full_like(log_weight, row.mean(log_weight))", "tis/seq-product"),
    ("sequence's product over masked tokens", "np.full_like(log_weight, row.sum(log_weight))", "np.full_like(log_weight, log_weight.sum())", "law/masked-tokens/tis-product"),
    ("geometric mean over masked tokens", "np.full_like(log_weight, row.mean(log_weight))", "np.full_like(log_weight, log_weight.mean())", "law/masked-tokens/tis-geometric"),
    ("off-policy mask of good sequences too", "return bool((row.advantage < 0).all()) and row", "return row", "agg/off-policy-mask"),
    ("off-policy mask turned round", "row.mean(row.sampler - row.logp) > limit", "row.mean(row.logp - row.sampler) > limit", "agg/off-policy-mask"),
    ("off-policy mask over masked tokens", "row.mean(row.sampler - row.logp) > limit", "float((row.sampler - row.logp).mean()) > limit", "law/masked-tokens/off-policy-mask"),
    # Divergences.
    ("k1 turned round", "        return delta, np.ones_like(delta)\n", "        return -delta, -np.ones_like(delta)\n", "kl/k1"),
    ("k2 without its half", "        return delta**2 / 2, delta\n    if name == \"k3\"", "        return delta**2, 2 * delta\n    if name == \"k3\"", "kl/k2"),
    ("absolute value for k2", "        return delta**2 / 2, delta\n    if name == \"k3\"", "        return np.abs(delta), np.sign(delta)\n    if name == \"k3\"", "kl/k2"),
    ("KL not differentiated", "        return k3, -np.expm1(-delta)\n", "        return k3, 0 * delta\n", "kl/k3-in-grpo"),
    ("KL subtracted", 'value + hyper["beta"] * k, slope + hyper["beta"] * k_slope', 'value - hyper["beta"] * k, slope - hyper["beta"] * k_slope', "kl/beside/gspo"),
    ("KL from the old policy", "delta, now = logp - ref, frozen - ref", "delta, now = logp - ref + 0.1, frozen - ref + 0.1", "kl/k3"),
    ("KL of demonstrations", "    if teacher and row.teacher:\n        return imitation(row, hyper, logp)\n    advantage", "    if teacher and row.teacher:\n        value, slope = imitation(row, hyper, logp)\n        if hyper.get(\"kl\"):\n            k, k_slope = bounded_kl(hyper, row, logp)\n            value, slope = value + hyper[\"beta\"] * k, slope + hyper[\"beta\"] * k_slope\n        return value, slope\n    advantage", "kl/with-teacher"),
    ("ratio of the KL detached", "return ratio * k, ratio * (slope + k)", "return ratio * k, ratio * slope", "kl/k3-times-ratio"),
    ("ratio of the KL forgotten", "    if name == hyper[\"kl\"]:\n", "    if True:\n", "kl/k3-times-ratio"),
    ("pull on successes", "return not succeeds(row, hyper)\n", "return succeeds(row, hyper)\n", "kl/on-failures"),
    ("pull on all", 'if hyper.get("kl_on") == "failures":', 'if hyper.get("kl_on"):\n        return True\n    if False:', "kl/on-failed-groups"),
    ("pull on failures of solved groups", 'return hyper.get("kl_on") != "failed-groups" or not whole.solved[row.group]', "return not succeeds(row, hyper) or not hyper.get(\"kl_on\")", "kl/on-failed-groups"),
    ("KL in the reward of masked tokens", 'values = np.where(row.mask > 0, -hyper["beta"] * k, 0.0)', 'values = -hyper["beta"] * k', "kl/in-reward/masked"),
    ("reward at the last token", "values[np.flatnonzero(row.mask)[-1]] += row.reward", "values[-1] += row.reward", "kl/in-reward/masked"),
    # Entropy and temperature.
    ("entropy by the token mean", "entropy_slope = -coefficient * weight", "entropy_slope = -coefficient * row.mask / max(whole.tokens, 1.0)", "entropy/bonus/seq-mean"),
    ("entropy of masked tokens", "entropy_slope = -coefficient * weight", "entropy_slope = -coefficient * token_weights(row, hyper, whole)", "law/masked-tokens/entropy"),
    ("entropy not in the loss", "total += row.sum(entropy_slope * row.entropy)", "pass", "entropy/bonus"),
    ("temperature multiplied", 'current = [np.array(it, dtype=np.float64) / temperature for it', 'current = [np.array(it, dtype=np.float64) * temperature for it', "temperature/above"),
    ("temperature not in the slope", "(onehot - p) / temperature", "(onehot - p)", "temperature/gspo"),
    ("temperature of the old policy alone", 'current = [np.array(it, dtype=np.float64) / temperature for it', 'current = [np.array(it, dtype=np.float64) for it', "temperature/above"),
    # Teachers.
    ("any reward succeeds", 'return bool(row.reward >= hyper.get("success_at", 1.0))', "return row.reward > 0", "teacher/hpt/graded"),
    ("any reward is correct", 'return bool(row.reward >= hyper.get("success_at", 1.0))', "return row.reward > 0", "teacher/srft/graded"),
    ("success above the limit", 'return bool(row.reward >= hyper.get("success_at", 1.0))', 'return bool(row.reward > hyper.get("success_at", 1.0))', "teacher/hpt/switch"),
    ("success is 1", 'return bool(row.reward >= hyper.get("success_at", 1.0))', "return row.reward == 1", "teacher/srft/graded"),
    ("the demonstration's success", "(not row.teacher and succeeds(row, hyper))", "succeeds(row, hyper)", "teacher/hpt/switch"),
    ("HPT imitates where it succeeds", 'return not hyper.get("switch") or not solved[row.group]', 'return not hyper.get("switch") or solved[row.group]', "teacher/hpt/switch"),
    ("HPT's rollouts by B·L", "return 0 * ones if dropped else ones / float(hyper[\"length\"])", "return 0 * ones if dropped else ones / (whole.sequences * float(hyper[\"length\"]))", "teacher/hpt/code"),
    ("HPT by each demonstration", "return ones / whole.teacher_tokens if imitated", "return ones / max(row.n, 1.0) if imitated", "teacher/hpt/code"),
    ("demonstrations' mean over all tokens", "taught = [n for row, n in zip(rows, counted, strict=True) if row.teacher and imitated(row, hyper, solved)]", "taught = [sum(counted)]", "teacher/chord-mu/0.1"),
    ("rollouts' mean over all tokens", "policy_tokens=sum(n for row, n in zip(rows, counted, strict=True) if not row.teacher)", "policy_tokens=sum(counted)", "teacher/chord-mu/0.1"),
    ("LUFFY detached", "return -row.advantage * p / (p + d), -row.advantage * d * p / (p + d) ** 2", "w = p / (p + d)\n    return -row.advantage * w, -row.advantage * w", "teacher/luffy/token-mean"),
    ("LUFFY without shaping", "return -row.advantage * p / (p + d), -row.advantage * d * p / (p + d) ** 2", "return -row.advantage * p, -row.advantage * p", "teacher/luffy/constant"),
    ("LUFFY's ratio to the old policy", "p, d = np.exp(logp), hyper[\"d\"]", "p, d = np.exp(logp - row.old), hyper[\"d\"]", "teacher/luffy/token-mean"),
    ("SRFT's weights swapped", "factor = 0.5 * math.exp(-mean_entropy(row))", "factor = 0.5 * math.exp(mean_entropy(row))", "teacher/srft/weights"),
    ("SRFT's entropy over masked tokens", "return row.mean(row.entropy)", "return float(row.entropy.mean())", "teacher/masked/srft"),
    ("SRFT's entropy over the padded length", "return row.mean(row.entropy)", "return row.sum(row.entropy) / len(row.mask)", "teacher/masked/srft"),
    ("TRAPO not bounded", "factors = np.minimum(1.0, now / hyper[\"d\"])", "factors = now / hyper[\"d\"]", "teacher/trapo"),
    ("TRAPO's prefix with the surrogate", "value, slope = np.where(inside, taught, value), np.where(inside, taught_slope, slope)", "value, slope = value + np.where(inside, taught, 0.0), slope + np.where(inside, taught_slope, 0.0)", "teacher/trapo"),
    ("TRAPO's prefix over masked positions", "inside = np.arange(len(logp)) < row.prefix", "inside = np.cumsum(row.mask) - row.mask < row.prefix", "teacher/masked/trapo"),
    ("cosine from the start", "(at - warmup) / decay", "at / decay", "teacher/mixing-schedule/warm-up"),
    # Advantages.
    ("ε under the root", 'return float(values.std(ddof=rule["ddof"])) + float(rule["epsilon"])', 'return math.sqrt(float(values.var(ddof=rule["ddof"])) + float(rule["epsilon"]))', "adv/std/small"),
    ("ε squared under the root", 'return float(values.std(ddof=rule["ddof"])) + float(rule["epsilon"])', 'return math.sqrt(float(values.var(ddof=rule["ddof"])) + float(rule["epsilon"]) ** 2)', "adv/std/tiny"),
    ("at least ε", 'return float(values.std(ddof=rule["ddof"])) + float(rule["epsilon"])', 'return max(float(values.std(ddof=rule["ddof"])), float(rule["epsilon"]))', "adv/std/tiny"),
    ("ε of another size", 'return float(values.std(ddof=rule["ddof"])) + float(rule["epsilon"])', 'return float(values.std(ddof=rule["ddof"])) + 1e-5', "adv/std/tiny"),
    ("variance in place of σ", 'return float(values.std(ddof=rule["ddof"])) + float(rule["epsilon"])', 'return float(values.var(ddof=rule["ddof"])) + float(rule["epsilon"])', "adv/std"),
    ("deviation with the teacher", "return (rewards - mean(known)) / spread(known, hyper)", "return (rewards - mean(known)) / spread(rewards, hyper)", "adv/teacher-out-std/alone"),
    ("deviation with untrainable members alone", "return (rewards - mean(known)) / spread(known, hyper)", "return (rewards - mean(rewards)) / spread(known, hyper)", "adv/teacher-out-std"),
    ("deviation without the teacher", "return (rewards - mean(known)) / spread(known, hyper)", "return (rewards - mean(known)) / spread(rewards[1:], hyper)", "adv/teacher-in-std"),
    ("failed group divided by ε", 'if not rule or (values == values[0]).all():', "if not rule:", "adv/teacher-out-std/failed"),
    ("deviation of the batch", "for i, value in zip(members, advantages(rewards, counted, hyper), strict=True):", "everything = np.array(batch[\"reward\"])\n        wide = spread(everything, hyper) / spread(rewards[counted], hyper)\n        for i, value in zip(members, advantages(rewards, counted, hyper) / wide, strict=True):", "adv/std"),
    ("mean of the batch", "for i, value in zip(members, advantages(rewards, counted, hyper), strict=True):", "for i, value in zip(members, advantages(rewards, counted, hyper) + rewards.mean() - np.mean(batch[\"reward\"]), strict=True):", "adv/mean"),
    ("groups by their place", 'members = [i for i, it in enumerate(batch["group"]) if it == group]', 'size = batch["group"].count(group)\n        start = sum(it < group for it in batch["group"])\n        members = list(range(start, start + size))', "adv/std/groups"),
    ("untrainable members never in the mean", 'hyper.get("untrainable_in_mean") is False and not', 'not', "adv/untrainable-member/std"),
    ("leave-one-out of n − 1", "result[i] = (reward - mean(rest)) / spread(rest, hyper)", "result[i] = (reward - mean(rewards)) / spread(rest, hyper)", "adv/leave-one-out"),
    ("leave-one-out by the group's deviation", "result[i] = (reward - mean(rest)) / spread(rest, hyper)", "result[i] = (reward - mean(rest)) / spread(rewards, hyper)", "adv/leave-one-out/std"),
    ("leave-one-out with the teacher", "rest = rewards[counted & (np.arange(len(rewards)) != i)]", "rest = rewards[np.arange(len(rewards)) != i]", "adv/teacher-out-leave-one-out"),
    ("leave-one-out without ε", 'return float(values.std(ddof=rule["ddof"])) + float(rule["epsilon"])', 'return float(values.std(ddof=rule["ddof"])) + (float(rule["epsilon"]) if hyper["baseline"] == "mean" else 0.0)', "adv/leave-one-out/std"),
    ("infinity let through", "if not np.isfinite(rewards).all():", "if np.isnan(rewards).any():", "adv/inf-reward/std"),
    ("advantages in bf16", "result[i] = float(value)", "result[i] = float(np.round(value * 128) / 128)", "adv/std"),
    ("advantages clipped", "result[i] = float(value)", "result[i] = float(np.clip(value, -1, 1))", "adv/std"),
    ("only positive advantages", "result[i] = float(value)", "result[i] = max(float(value), 0.0)", "adv/mean"),
    ("mask not read", 'mask=tokens("mask", np.ones_like(logp))', "mask=np.ones_like(logp)", "law/masked-tokens/constant"),
    ("log-probabilities in half precision", "logp = np.array(values, dtype=np.float64)", "logp = np.array(values, dtype=np.float16).astype(np.float64)", "agg/token-mean/ppo"),
    ("one rank of two", "            for micro in rank:\n", "            for micro in rank if rank is ranks[0] else []:\n", "law/ranks/seq-mean"),
    ("one optimiser step of two", '    for ranks in cut["steps"]:\n', '    for ranks in cut["steps"][:1]:\n', "law/window/prompt-mean"),
    # One term beside another, and steps that lack one.
    ("a masked token out of its sequence's mean", "    n = max(row.n, 1.0)\n    match", "    n = max(float((row.mask * (tis_weight(row, hyper) > 0)).sum()) if hyper.get(\"tis\") else row.n, 1.0)\n    match", "tis/cispo"),
    ("correction of PPO alone", '    if hyper.get("tis"):\n        weight', '    if hyper.get("tis") and hyper["surrogate"] == "ppo":\n        weight', "tis/cispo"),
    ("kept tokens out of the loss too", "return float((row.mask * (tis_weight(row, hyper) > 0)).sum())", "return float((tis_weight(row, hyper) > 0).sum())", "law/masked-tokens/divisor"),
    ("far off policy without KL", "if is_far_off_policy(row, hyper):\n        value, slope = 0 * value, 0 * slope", "if is_far_off_policy(row, hyper):\n        hyper = {**hyper, \"beta\": 0.0}\n        value, slope = 0 * value, 0 * slope", "law/masked-tokens/off-policy-mask"),
    ("VESPO's sum over masked tokens", "log_weight = row.sum(row.logp - row.old)", "log_weight = float((row.logp - row.old).sum())", "law/masked-tokens/vespo"),
    ("dual clip of single tokens alone", "ratio = np.full_like(logp, np.exp(row.mean(delta)))", 'ratio = np.full_like(logp, np.exp(row.mean(delta)))\n        hyper = {**hyper, "dual_clip": None}', "agg/gspo/dual"),
    ("dual clip at 3 for all", "    if dual is not None:", "    dual = dual and 3.0\n    if dual is not None:", "agg/gspo/dual"),
    ("KL beside prompts by the token mean", "k, k_slope = bounded_kl(hyper, row, logp)", "k, k_slope = bounded_kl(hyper, row, logp)\n        if hyper[\"aggregate\"] == \"prompt-mean\":\n            scale = len(whole.prompt_tokens) * whole.prompt_tokens[row.group] / whole.tokens\n            k, k_slope = scale * k, scale * k_slope", "kl/beside/prompt-mean"),
    ("a demonstration solves its group for the pull", 'return hyper.get("kl_on") != "failed-groups" or not whole.solved[row.group]', 'return hyper.get("kl_on") != "failed-groups" or row.group == 1', "kl/on-failed-groups/taught"),
    ("a mean reward solves the group for the pull", 'return bool(row.reward >= hyper.get("success_at", 1.0))', "return row.reward >= 0.9", "kl/on-failed-groups/taught"),
    ("SRFT's demonstrations with KL", "        return imitation(row, hyper, logp)\n    advantage", "        k, k_slope = bounded_kl(hyper, row, logp) if hyper.get(\"kl\") else (0, 0)\n        value, slope = imitation(row, hyper, logp)\n        return value + k, slope + k_slope\n    advantage", "teacher/terms/srft"),
    ("HPT's demonstrations with entropy", "if coefficient and not row.teacher:", 'if coefficient and (not row.teacher or hyper["teacher"] == "hpt"):', "teacher/terms/hpt"),
    ("CHORD without KL", 'if hyper.get("kl") and has_kl(row, hyper, whole):', 'if hyper.get("kl") and has_kl(row, hyper, whole) and teacher != "chord-mu":', "teacher/terms/chord-mu"),
    ("TRAPO's prefix corrected", "        inside = np.arange(len(logp)) < row.prefix\n", "        inside = np.arange(len(logp)) < row.prefix\n        w = tis_weight(row, hyper) if hyper.get(\"tis\") else 1.0\n        taught, taught_slope = w * taught, w * taught_slope\n", "teacher/terms/trapo"),
    ("CHORD's counts of the generation batch", 'whole = totals([rows[i] for rank in ranks for micro in rank for i in micro], hyper)', 'whole = totals([rows[i] for rank in ranks for micro in rank for i in micro], hyper)\n        whole.policy_tokens = sum(row.n for row in rows if not row.teacher)', "law/window/chord"),
    ("NaN without a demonstration", "return ones * (mu / whole.teacher_tokens if row.teacher else (1 - mu) / whole.policy_tokens)", "return ones * (mu / whole.teacher_tokens if row.teacher else (1 - mu) / whole.policy_tokens) * (1.0 if whole.teacher_tokens else math.nan)", "law/window/chord"),
    ("HPT's counts of the generation batch", "        teacher_tokens=sum(taught),", '        teacher_tokens=sum(taught) * (2 if hyper.get("teacher") == "hpt" and len(rows) < 3 else 1),', "law/window/hpt"),
    ("B of the generation batch", 'whole = totals([rows[i] for rank in ranks for micro in rank for i in micro], hyper)', 'whole = totals([rows[i] for rank in ranks for micro in rank for i in micro], hyper)\n        whole.sequences = float(len(rows))', "law/window/constant"),
    ("CHORD over masked tokens", "policy_tokens=sum(n for row, n in zip(rows, counted, strict=True) if not row.teacher)", "policy_tokens=float(sum(len(row.mask) for row in rows if not row.teacher))", "teacher/masked/chord"),
    ("prompts of one rank", 'whole = totals([rows[i] for rank in ranks for micro in rank for i in micro], hyper)\n        scale = len(ranks)\n        for rank in ranks:\n', 'scale = len(ranks)\n        for rank in ranks:\n            whole = totals([rows[i] for rank in ranks for micro in rank for i in micro], hyper)\n            local = totals([rows[i] for micro in rank for i in micro], hyper).prompt_tokens\n            whole.prompt_tokens = {**whole.prompt_tokens, **local}\n', "agg/prompt-mean/uneven"),
    ("a masked sequence out of B", "sequences=float(sum(1 for row in rows if in_mean(row, hyper)))", "sequences=float(sum(1 for row in rows if row.n))", "law/masked-sequence/constant"),
    ("rollouts of failed groups too", 'dropped = hyper.get("switch") and not whole.solved[row.group]', "dropped = False", "teacher/hpt/graded"),
    ("d of 0.1 for all", 'factors = np.minimum(1.0, now / hyper["d"])', "factors = np.minimum(1.0, now / 0.1)", "teacher/masked/trapo"),
    ("LUFFY's d of 0.1 for all", 'p, d = np.exp(logp), hyper["d"]', "p, d = np.exp(logp), 0.1", "teacher/masked/luffy"),
    ("no reward below 0", "values[np.flatnonzero(row.mask)[-1]] += row.reward", "values[np.flatnonzero(row.mask)[-1]] += max(row.reward, 0.0)", "kl/in-reward/masked"),
    ("rewards in whole numbers", "values[np.flatnonzero(row.mask)[-1]] += row.reward", "values[np.flatnonzero(row.mask)[-1]] += round(row.reward)", "kl/in-reward/masked"),
    ("the first teacher alone", 'batch["source"][i] == "teacher"\n    out_empty', 'batch["source"].index("teacher") == i\n    out_empty', "adv/teacher-out-std/several"),
    ("a teacher's advantage is no loss", "result[i] = float(value)", 'result[i] = max(float(value), 0.0) if batch.get("source", ["policy"] * len(result))[i] == "teacher" else float(value)', "adv/teacher-out-std/several"),
    ("leave-one-out without a teacher", "rest = rewards[counted & (np.arange(len(rewards)) != i)]", 'rest = rewards[counted & (np.arange(len(rewards)) != i) & (np.arange(len(rewards)) > 0)]', "adv/teacher-in-leave-one-out"),
    ("leave-one-out of trainable members", "rest = rewards[counted & (np.arange(len(rewards)) != i)]", 'rest = rewards[counted & (np.arange(len(rewards)) != i) & (np.arange(len(rewards)) < 3)]', "adv/untrainable-member/leave-one-out"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "line", "instead", "catcher"), MUTANTS, ids=[it[0] for it in MUTANTS])
def test_a_mutant_is_caught(name, line, instead, catcher):
    assert SOURCE.count(line) == 1, f"{name}: the line stands {SOURCE.count(line)} times in the reference"
    mutant = types.ModuleType("mutant")
    exec(compile(SOURCE.replace(line, instead), name, "exec"), namespace(mutant))
    with np.errstate(all="ignore"):
        (record,) = lossproof.run(mutant.step, [lossproof.load(catcher)])
    assert not record["passed"], f"{name}: {record}"
    assert not record["errors"], f"{name}: a mutant answers, it does not fail"


def namespace(module):
    sys.modules[module.__name__] = module  # dataclass looks its module up.
    return module.__dict__


def test_every_catcher_is_a_case_that_the_reference_passes():
    catchers = {it[3] for it in MUTANTS}
    assert catchers <= {case["id"] for case in load_all()}
    assert all(it["passed"] for it in lossproof.run(reference.step, [lossproof.load(name) for name in catchers]))
    assert len(MUTANTS) > 170
