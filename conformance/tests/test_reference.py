"""The recorded answers against the numpy reference and central differences; planted failures and mutants must fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lossproof
from lossproof import reference
from lossproof.cases import calls, load_all
from lossproof.page import deviations
from lossproof.run import cuts_of, judge
from lossproof.verdict import compare, flat

CASES = load_all()
HERE = Path(__file__).resolve().parents[1]


def test_all_numbers_of_the_specification_have_a_case():
    assert {case["number"] for case in CASES} == set(range(1, 80))
    assert len({case["id"] for case in CASES}) == len(CASES)


def test_batch_values_are_f32_numbers():
    for case in CASES:
        for name in ("logp", "old_logp", "ref_logp", "sampler_logp", "entropy", "logits", "old_logits"):
            for values in case["batch"].get(name, []):
                assert np.array_equal(np.float32(values), np.float64(values), equal_nan=True), (case["id"], name)


def test_files_are_what_the_script_writes():
    script = HERE / "make_cases.py"
    if not script.is_file():
        pytest.skip("only in the repository")
    done = subprocess.run([sys.executable, script, "--check"], cwd=HERE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_reference_passes_its_own_cases():
    for record in lossproof.run(reference.step):
        wanted = "refused" if record["id"].startswith(("adv/nan-reward", "adv/inf-reward")) else "exact"
        assert record["verdict"] == wanted, record


def test_core6_is_the_batch_of_the_specification():
    batch = lossproof.load("agg/token-mean/ppo")["batch"]
    sums = [float(flat(batch[name]).sum()) for name in ("logp", "old_logp", "ref_logp", "sampler_logp")]
    assert np.allclose(sums, [-66.836400926, -70.663027717, -68.352758979, -70.51249404], rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("agg/token-mean/ppo", 0.1107308147),
        ("agg/seq-mean-token-mean/ppo", 0.0486099713),
        ("agg/seq-mean-token-sum/ppo", 0.7935708389),
        ("agg/seq-mean-token-sum-norm/ppo", 0.0661309032),
        ("agg/token-mean/clip-higher", 0.1020968),
        ("agg/token-mean/clip-higher-dual", 0.0822025185),
        ("agg/seq-mean-token-mean/dual", 0.0327682657),
        ("agg/seq-mean/two-sided", 0.0327682657),
        ("agg/gspo/narrow", 0.0303920441),
        ("agg/gspo/wide", 0.0053503694),
        ("agg/dppo-tv", 0.0674215),
        ("tis/token-clip", 0.0989031),
        ("tis/token-mask", 0.0508328),
        ("kl/k1", 0.0352641),
        ("kl/k2", 0.0462818),
        ("kl/k3", 0.0452910),
        ("kl/k3-in-grpo", 0.0504591),
        ("teacher/luffy/token-mean", 0.056149),
        ("teacher/luffy/constant", 0.025761),
        ("teacher/hpt/code", 1.444184),
        ("teacher/chord-phi/0.1", 0.076436),
        ("sft/token-mean", 1.5543349),
    ],
)
def test_losses_are_those_of_the_specification(name, loss):
    expect = lossproof.load(name)["expect"]
    got = expect["surrogate"] if expect["loss"] is None else expect["loss"]
    assert got == pytest.approx(loss, rel=0, abs=0.6 * 10.0 ** -digits(loss))


def digits(number):
    return len(f"{number!r}".partition(".")[2])


def test_slopes_are_central_differences():
    for case in CASES:
        if case["kind"] not in ("loss", "law") or "logits" in case["batch"]:
            continue
        cut = cuts_of(case)[0]
        grad = reference.step(case, cut)["grad"]
        rows = [np.array(row) for row in case["batch"]["logp"]]
        differences = []
        for i, row in enumerate(rows):
            for t in range(len(row)):
                sides = []
                for h in (1e-5, -1e-5):
                    moved = [it.copy() for it in rows]
                    moved[i][t] += h
                    sides.append(reference.loss_value(case, cut, moved))
                differences.append((sides[0] - sides[1]) / 2e-5)
        worst = np.abs(np.array(differences) - flat(grad)).max(initial=0.0)
        assert worst < 1e-7 * max(1.0, float(np.abs(flat(grad)).max(initial=0.0))), (case["id"], worst)


def test_slopes_by_logits_are_central_differences():
    case = lossproof.load("temperature/both")
    cut = cuts_of(case)[0]
    grad = flat(reference.step(case, cut)["grad"])
    logits = case["batch"]["logits"]
    differences = []
    for i, row in enumerate(logits):
        for t, token in enumerate(row):
            for v in range(len(token)):
                sides = []
                for h in (1e-5, -1e-5):
                    moved = json.loads(json.dumps(logits))
                    moved[i][t][v] += h
                    other = {**case, "batch": {**case["batch"], "logits": moved}}
                    sides.append(reference.step(other, cut)["value"])
                differences.append((sides[0] - sides[1]) / 2e-5)
    assert np.abs(np.array(differences) - grad).max() < 1e-8


def planted(case, cut, bug):
    """The answer of an engine with one of the two planted bugs."""
    answer = [[0.0] * len(row) for row in case["batch"]["logp"]]
    micros = cut["steps"][0][0]
    for at, micro in enumerate(micros):
        n = sum(len(case["batch"]["logp"][i]) for i in micro)
        whole = sum(len(row) for row in case["batch"]["logp"])
        if bug["bug"] == "dropped-micro-batches" and at not in bug["kept"]:
            continue
        for i in micro:
            scale = n * len(micros) if bug["bug"] == "mean-of-means" else whole
            answer[i] = [-1 / scale] * len(answer[i])
    return {"loss": None, "grad": answer}


@pytest.mark.parametrize("case", [it for it in CASES if "planted" in it], ids=lambda it: it["id"])
def test_planted_failures_fail(case):
    for cut in cuts_of(case):
        got = planted(case, cut, case["planted"])
        it = compare(got["grad"], case["expect"]["grad"])
        assert it.r == pytest.approx(case["planted"]["r"][cut["name"]], rel=1e-9)
        assert not it.equal
    record = judge(lambda c, where: planted(c, where, case["planted"]), case)
    assert record["verdict"] in ("cut-dependent", "different")
    assert not record["passed"]


def test_numbers_of_the_planted_failures():
    means = lossproof.load("sft/mean-of-means")["planted"]["r"]
    assert [round(means[cut], 3) for cut in ("6x1", "2x3", "3x2")] == [0.467, 0.214, 0.033]
    dropped = [
        lossproof.load(f"sft/dropped-micro-batches/{it}")["planted"]["r"]["6x1"] for it in ("last", "first-and-last")
    ]
    assert [round(it, 3) for it in dropped] == [0.928, 0.863]


def refusing(cut_names, answer=reference.step):
    """An engine that answers every cut but these."""

    def step(case, cut):
        if cut["name"] in cut_names:
            raise lossproof.Refused(f"no {cut['name']}")
        return answer(case, cut)

    return step


def test_one_refused_cut_is_a_refusal_of_the_case():
    case = lossproof.load("agg/token-mean/ppo")
    names = [it["name"] for it in cuts_of(case)]
    assert len(names) > 2
    for refused in ({names[0]}, {names[-1]}, set(names[:-1]), set(names)):
        record = judge(refusing(refused), case)
        assert (record["verdict"], record["passed"]) == ("refused", False), refused
    assert judge(refusing({names[-1]}), case)["because"] == f"{names[-1]}: no {names[-1]}"
    allowed = judge(refusing({names[-1]}), {**case, "may_refuse": True})
    assert (allowed["verdict"], allowed["passed"]) == ("refused", True)


def test_a_refusal_hides_no_wrong_answer():
    case = {**lossproof.load("agg/token-mean/ppo"), "may_refuse": True}
    names = [it["name"] for it in cuts_of(case)]

    def wrong(case, cut):
        return {"loss": None, "grad": [[1.0] * len(row) for row in case["batch"]["logp"]]}

    record = judge(refusing({names[-1]}, wrong), case)
    assert (record["verdict"], record["passed"]) == ("different", False)


def test_a_refusal_that_no_case_allows_is_on_the_page():
    records = lossproof.run(refusing({"6x1"}), [lossproof.load("agg/token-mean/ppo")])
    about = {"engine": "half", "engine_version": "1", "tier": "function", "about": "", "records": records}
    assert any(line.startswith("| agg/token-mean/ppo | refused |") for line in deviations(about))


def test_a_law_makes_two_calls():
    case = lossproof.load("law/permutation/token-mean")
    (first, _), (second, _) = calls(case, cuts_of(case)[0])
    assert second["batch"]["logp"][0] == first["batch"]["logp"][3]
