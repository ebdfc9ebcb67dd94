"""HapoGRPOTrainer in the real TRL, on a CPU, in one process; `torchrun` starts the two of `trl_worker.py`."""

from __future__ import annotations

import base64
import gzip
import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import ROOT

pytest.importorskip("trl")
import torch
import trl_worker as worker
from trl import GRPOConfig, GRPOTrainer

import hapo
import hapo.trl as ht
from hapo._writer import RunWriter
from hapo.torch import plain_policy_loss, plain_teacher_loss


def logs(trainer) -> list[dict]:
    """The log of each step."""
    return [it for it in trainer.state.log_history if "loss" in it]


def weights(trainer) -> dict[str, torch.Tensor]:
    return {name: it.detach().clone() for name, it in trainer.model.named_parameters()}


class Recorded(ht.HapoGRPOTrainer):
    """Keeps what each micro-batch was computed from."""

    def _compute_loss(self, model, inputs):
        self.seen = getattr(self, "seen", [])
        kept = {}
        inner = self._get_per_token_logps_and_entropies

        def keep(*arguments, **keywords):
            found = inner(*arguments, **keywords)
            kept["log_probs"] = found[0].detach()
            return found

        self._get_per_token_logps_and_entropies = keep
        loss = super()._compute_loss(model, inputs)
        del self._get_per_token_logps_and_entropies
        self.seen.append({**inputs, **kept, "loss": loss.item(), "decision": self.last_decision})
        return loss


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("grpo", {}),
        ("maxrl", {}),
        ("luffy", {}),
        ("luffy", {"loss_type": "dapo"}),
        ("srft", {"loss_type": "grpo", "teacher_weight": "0.5"}),
        ("trapo", {"scale_rewards": "group"}),
        ("trapo", {"hapo": False}),
        ("luffy", {"hapo": False}),
    ],
)
def test_the_loss_is_that_of_the_decision(tmp_path, method, settings) -> None:
    trainer = worker.trainer(tmp_path, Recorded, method=method, max_steps=1, **settings)
    trainer.train()
    (it,) = trainer.seen
    decision = it["decision"]
    mask = it["completion_mask"].bool()
    taught = it["teacher_weights"] != 0
    normaliser = ht.NORMALISERS[trainer.args.loss_type]
    divisor = hapo.divisor(normaliser, mask.sum(1).tolist(), trainer.args.max_completion_length)
    expected = plain_policy_loss(
        it["log_probs"], it["log_probs"], mask & ~taught[:, None], it["advantages"],
        divisor=divisor, normaliser=normaliser,
    )  # fmt: skip
    if decision.operator is not None:
        expected += plain_teacher_loss(
            it["log_probs"], mask & taught[:, None], it["teacher_weights"],
            divisor=divisor, operator=decision.operator, d=decision.d, normaliser=normaliser,
        )  # fmt: skip
    assert it["loss"] == pytest.approx(expected.item(), abs=1e-6)
    injected = 0 if method in ("grpo", "maxrl") else int(decision.injected.sum())
    assert int(taught.sum()) == injected
    assert decision.metrics["gate/beta"] == (0.0 if method in ("grpo", "maxrl") else 1.0)
    for row in taught.nonzero().flatten().tolist():
        ids = it["completion_ids"][row][mask[row]].tolist()
        assert trainer.processing_class.decode(ids).startswith("so \\boxed{")
        assert ids[-1] in trainer.eos_token_ids


def test_the_loss_is_that_of_hapo_lab_replay(tmp_path, lab) -> None:
    trainer = worker.trainer(tmp_path, Recorded, method="luffy", max_steps=1)
    trainer.train()
    (it,) = trainer.seen
    sequences = []
    prompts = [tuple(row[mask.bool()].tolist()) for row, mask in zip(it["prompt_ids"], it["prompt_mask"], strict=True)]
    for row, prompt in enumerate(prompts):
        length = int(it["completion_mask"][row].sum())
        taught = bool(it["teacher_weights"][row] != 0)
        sequences.append(
            {
                "group": sorted(set(prompts)).index(prompt),
                "prompt": list(prompt),
                "teacher": taught,
                "response": it["completion_ids"][row][:length].tolist(),
                "reward": float(taught),
                "old_logprobs": [] if taught else it["log_probs"][row][:length].tolist(),
                "advantage": it["advantages"][row].item(),
                "logprobs_before": it["log_probs"][row][:length].tolist(),
            }
        )
    case = {
        "case": 0, "model": "tiny-qwen2", "operator": "luffy", "normaliser": "constant",
        "l_max": trainer.args.max_completion_length, "advantage_std": False, "teacher_weight": 1.0, "clip_low": 0.2,
        "clip_high": 0.2, "entropy_coef": 0.0, "d": 0.1, "sequences": sequences, "steps": [],
        "adamw": {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0, "max_grad_norm": 1.0},
    }  # fmt: skip
    batch = tmp_path / "cases.json"
    batch.write_text(json.dumps([case]))
    told = subprocess.run(
        [lab, "replay", "--model", worker.MODEL, "--batch", str(batch)], capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr
    loss = json.loads(told.stdout)[0]["steps"][0]["loss"]
    assert it["loss"] == pytest.approx(loss, abs=1e-5)


def test_a_bare_method_counts_successes_from_success_at(tmp_path) -> None:
    ours = worker.trainer(
        tmp_path, hapo=False, success_at=0.9, truncated="grade", max_steps=1,
        reward=lambda completions, **_: [0.9] * len(completions),
    )  # fmt: skip
    ours.train()
    decision = ours.last_decision
    assert decision.successes.tolist() == decision.n_eff.tolist() == [3, 3]
    assert decision.injected.all()
    assert decision.metrics["reward/policy_only"] == pytest.approx(0.9)


def test_with_the_gate_closed_it_is_trls_own(tmp_path) -> None:
    common = {**worker.COMMON, "max_steps": 2, "loss_type": "dr_grpo", "scale_rewards": "none", "beta": 0.0}
    stock = GRPOTrainer(
        worker.MODEL, worker.reward, GRPOConfig(output_dir=str(tmp_path / "stock"), **common), worker.data()
    )
    stock.train()
    ours = worker.trainer(tmp_path, turn_off_epoch="0.0001", truncated="grade", max_steps=2)
    ours.train()
    assert ours.hapo_schedule.extinction == 1
    for left, right in zip(logs(stock), logs(ours), strict=True):
        assert (left["loss"], left["grad_norm"], left["reward"]) == (right["loss"], right["grad_norm"], right["reward"])
    for name, it in weights(stock).items():
        torch.testing.assert_close(it, weights(ours)[name], rtol=0, atol=0)


def test_a_resumed_run_is_at_the_right_step_of_the_gate(tmp_path) -> None:
    settings = {"turn_off_epoch": "0.75", "save_strategy": "steps", "save_steps": 2, "run_dir": str(tmp_path / "run")}
    first = worker.trainer(tmp_path, max_steps=2, **settings)
    assert first.hapo_schedule.extinction == 3
    first.train()
    again = worker.trainer(tmp_path, max_steps=4, **settings)
    again.train(resume_from_checkpoint=str(tmp_path / "out/checkpoint-2"))
    assert again.last_decision.metrics["gate/success_limit"] == -1.0
    run = hapo.Run(tmp_path / "run")
    assert run.metrics["step"].tolist() == [1, 2, 3, 4]
    assert run.metrics["gate/success_limit"].tolist() == [0, 0, -1, -1]
    assert run.metrics["gate/beta"].tolist() == [1, 1, 0, 0]
    assert run.gate["extinct_at_step"] == 3
    assert run.steps == [1, 2, 3, 4]
    RunWriter(run.path).begin({"method": "luffy"}, after=2)
    assert (run.steps, run.metrics["step"].tolist()) == ([1, 2], [1, 2])


def test_the_run_folder_has_what_was_sampled(tmp_path, binary) -> None:
    trainer = worker.trainer(
        tmp_path, max_steps=2, run_dir=str(tmp_path / "run"), reward=hapo.reward_trl, rollout_func=worker.recorded,
        rollouts_every=2, seed=3,
    )  # fmt: skip
    trainer.train()
    run = hapo.Run(tmp_path / "run")
    assert run.steps == [2]
    lines = list(run.rollouts())
    by_problem = {it["problem"]: [line for line in lines if line["problem"] == it["problem"]] for it in lines}
    assert len(by_problem) == 2
    for problem, group in by_problem.items():
        number = int(problem.split("+")[0])
        right = number % 2 == 1
        assert [it["role"] for it in group].count("teacher") == (0 if right else 1)
        assert [it["slot"] for it in group if it["role"] != "teacher"] == [0, 1, 2, 3]
        assert {it["answer"] for it in group} == {str(2 * number)}
        assert group[0]["rendered"] == problem
        assert {it["injected"] for it in group} == {not right}
        last = next(it for it in group if it["slot"] == 3 and it["role"] != "teacher")
        assert (last["completion"], last["verdict"]) == (
            (f"\\boxed{{{2 * number}}}", "correct") if right else ("abc", "wrong")
        )
        assert last["log_probs"] == [-1.0] * len(last["tokens"])
        advantages = [it.get("advantage") for it in group if it["role"] == "policy"]
        assert advantages == pytest.approx([-0.25, -0.25, -0.25, 0.75] if right else [-0.25] * 3)
        assert [it["completion"] for it in group if it["role"] == "teacher"] == (
            [] if right else [f"so \\boxed{{{2 * number}}}"]
        )


def test_the_run_folder_is_reported(tmp_path, binary) -> None:
    worker.trainer(tmp_path, max_steps=2, run_dir=str(tmp_path / "run"), reward=hapo.reward_trl).train()
    page = tmp_path / "page.html"
    told = subprocess.run([binary, "report", str(tmp_path / "run"), "-o", str(page)], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    blocks = dict(re.findall(r'<script type="application/octet-stream" id="([^"]+)">([^<]+)', page.read_text()))
    numbers = gzip.decompress(base64.b64decode(blocks["data"]))
    assert all(it in numbers for it in (b"gate/beta", b"policy/entropy", b"reward/policy_only"))
    sampled = gzip.decompress(base64.b64decode(blocks["rollouts-0-2"])).decode()
    assert sampled.count('"role":"policy"') + sampled.count('"role":"replaced"') == 8
    assert sampled.count('"role":"teacher"') == 2
    assert sampled.count("so \\\\boxed{") >= 2


def test_accumulation_changes_nothing(tmp_path) -> None:
    whole = worker.trainer(tmp_path / "a", max_steps=1)
    whole.train()
    for loss_type in ("dr_grpo", "dapo"):
        whole = worker.trainer(tmp_path / f"{loss_type}-a", max_steps=1, loss_type=loss_type)
        whole.train()
        parts = worker.trainer(
            tmp_path / f"{loss_type}-b", max_steps=1, loss_type=loss_type, per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
        )  # fmt: skip
        parts.train()
        assert logs(whole)[0]["grad_norm"] == pytest.approx(logs(parts)[0]["grad_norm"], rel=1e-4)
        assert parts.hapo_step() == 2


def test_several_iterations_reuse_the_decision(tmp_path) -> None:
    trainer = worker.trainer(
        tmp_path, Recorded, max_steps=4, num_iterations=2, learning_rate=1e-3, run_dir=str(tmp_path / "run")
    )
    trainer.train()
    assert len(trainer.seen) == 4
    assert [it["decision"] is trainer.seen[0]["decision"] for it in trainer.seen] == [True, True, False, False]
    assert all(torch.isfinite(torch.tensor(it["loss"])) for it in trainer.seen)
    assert "old_per_token_logps" in trainer.seen[0]
    assert trainer.hapo_step() == 3
    assert trainer._prompts_per_step() == 2
    run = hapo.Run(tmp_path / "run")
    assert (run.metrics["step"].tolist(), run.steps, len(run.gate["steps"])) == ([1, 2], [1, 2], 2)


def test_a_lora_leaves_the_base_alone(tmp_path) -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    trainer = worker.trainer(tmp_path, max_steps=2, learning_rate=1e-2, peft_config=config)

    def digest() -> str:
        of_base = (it for name, it in sorted(weights(trainer).items()) if "lora_" not in name)
        return hashlib.sha256(b"".join(it.numpy().tobytes() for it in of_base)).hexdigest()

    before = digest()
    adapters = {name: it for name, it in weights(trainer).items() if "lora_B" in name}
    trainer.train()
    assert digest() == before
    assert any((weights(trainer)[name] != it).any() for name, it in adapters.items())
    assert trainer.last_decision.metrics["gate/beta"] == 1.0


def test_one_and_two_processes_decide_alike(tmp_path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HAPO_REPOSITORY": str(ROOT)}
    for processes in (1, 2):
        command = [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes),
            str(Path(worker.__file__)), str(tmp_path / str(processes)), str(processes),
        ]  # fmt: skip
        told = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert told.returncode == 0, told.stderr[-4000:]
    one, two = (
        [json.loads((tmp_path / str(it) / f"decision-{rank}.json").read_text()) for rank in range(it)] for it in (1, 2)
    )
    assert two[0] == two[1] == one[0]
    sampled = [
        [{**it, "step": 0} for it in hapo.Run(tmp_path / str(processes) / "run").rollouts()] for processes in (1, 2)
    ]  # fmt: skip
    assert sampled[0] == sampled[1]
    assert len(sampled[0]) == 16 + sum(it["role"] == "teacher" for it in sampled[0])
    assert any(one[0]["replaced"]), one
    losses = [json.loads((tmp_path / str(it) / "losses.json").read_text()) for it in (1, 2)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


def test_what_cannot_go_together_is_refused(tmp_path) -> None:
    for settings, message in [
        ({"mask_truncated_completions": True}, "mask_truncated_completions"),
        ({"use_liger_kernel": True}, "use_liger_kernel"),
        ({"loss_type": "bnpo"}, "loss_type: expected one of dr_grpo, dapo, grpo"),
        ({"scale_rewards": "batch"}, "scale_rewards"),
        ({"temperature": 0.7}, "temperature"),
        ({"method": "hpt"}, "method: its teacher has a mean of its own"),
        ({"method": "chord-mu"}, "method: its teacher has a mean of its own"),
        ({"method": "sft"}, "method: imitation samples nothing"),
        ({"truncated": "mask"}, "truncated: expected wrong or grade"),
        ({"tools": [len]}, "tools: expected none"),
        ({"turn_off_epoch": None}, "turn_off_epoch: expected the epoch"),
        ({"remove_unused_columns": True}, "remove_unused_columns: expected false, it takes the teacher's column away"),
        (
            {"steps_per_generation": 3, "gradient_accumulation_steps": 2},
            r"gradient_accumulation_steps: expected a divisor or a multiple of .* = 3, got 2",
        ),
        (
            {"steps_per_generation": 1, "num_iterations": 2, "gradient_accumulation_steps": 3},
            r"gradient_accumulation_steps: expected a divisor or a multiple of .* = 2, got 3",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            worker.trainer(tmp_path, **settings)
    with pytest.raises(TypeError, match="unexpected keyword argument 'injection'"):
        ht.HapoGRPOConfig(output_dir=str(tmp_path), injection="replay")
    with pytest.raises(TypeError, match="args: expected a HapoGRPOConfig"):
        ht.HapoGRPOTrainer(worker.MODEL, worker.reward, GRPOConfig(output_dir=str(tmp_path), **worker.COMMON), None)


def test_rounds_and_updates_that_divide_are_steps_of_the_gate(tmp_path) -> None:
    for rounds, iterations, updates, prompts, step in [(4, 1, 2, 8, 1), (1, 2, 4, 4, 2), (3, 2, 2, 6, 1)]:
        it = worker.trainer(
            tmp_path, steps_per_generation=rounds, num_iterations=iterations, gradient_accumulation_steps=updates
        )
        assert it._prompts_per_step() == prompts
        assert it.step_of(2) == step


def test_data_without_teachers_are_refused(tmp_path) -> None:
    misspelt = worker.data().rename_column("teacher", "teachers")
    message = "train_dataset: expected a column `teacher` .* got prompt, answer, teachers: add one"
    for settings in ({}, {"hapo": False}):
        with pytest.raises(ValueError, match=message):
            worker.trainer(tmp_path, dataset=misspelt, **settings)
    worker.trainer(tmp_path, dataset=misspelt, method="grpo")
    ids = [{"prompt": "1+1=", "answer": "2", "teacher_ids": [1]}] * 8
    worker.trainer(tmp_path, dataset=worker.Dataset.from_list(ids))


def test_teachers_are_admitted(tmp_path) -> None:
    trainer = worker.trainer(tmp_path, max_steps=1)
    row = {"answer": "4"}
    assert trainer._teachers.of({**row, "teacher": ""}) is None
    ids = trainer._teachers.of({**row, "teacher": r"\boxed{4}"})
    assert ids[-1] == trainer.processing_class.eos_token_id
    assert trainer._teachers.of({**row, "teacher_ids": ids[:-1]}) == ids
    with pytest.warns(UserWarning, match="a teacher is left out, expected a correct answer, got wrong"):
        assert trainer._teachers.of({**row, "teacher": r"\boxed{5}"}) is None
    # The same text is another row's right answer, and the other way round.
    assert trainer._teachers.of({"answer": "5", "teacher": r"\boxed{5}"}) is not None
    with pytest.warns(UserWarning, match="a teacher is left out, expected a correct answer, got wrong"):
        assert trainer._teachers.of({"answer": "5", "teacher": r"\boxed{4}"}) is None
    assert trainer._teachers.of({**row, "teacher": r"\boxed{4}"}) == ids
    with pytest.warns(UserWarning, match="a teacher of 25 tokens is left out, expected at most 24"):
        assert trainer._teachers.of({**row, "teacher_ids": [1] * 24}) is None


def test_a_patched_trainer_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(GRPOTrainer, "_compute_loss", lambda self, model, inputs: None)
    with pytest.raises(RuntimeError, match=r"expected TRL's own GRPOTrainer\._compute_loss"):
        worker.trainer(tmp_path)


def test_trls_trainer_learns_from_its_accuracy_reward_on_the_drop_in(tmp_path, monkeypatch) -> None:
    """TRL's own reward and trainer; only the package that it imports is another."""
    import hapo.verify.math_verify as drop_in

    for name in ("math_verify", "latex2sympy2_extended"):
        monkeypatch.setitem(sys.modules, name, drop_in)
    monkeypatch.delitem(sys.modules, "trl.rewards.accuracy_rewards", raising=False)
    accuracy = importlib.import_module("trl.rewards.accuracy_rewards")
    assert accuracy.parse is drop_in.parse

    def reward(completions, answer, **_):
        return accuracy.accuracy_reward([[{"content": it}] for it in completions], [f"${it}$" for it in answer])

    settings = {**worker.COMMON, "max_steps": 2, "beta": 0.0, "learning_rate": 1e-2}
    config = GRPOConfig(output_dir=str(tmp_path), **settings)
    trainer = GRPOTrainer(worker.MODEL, reward, config, worker.data(), rollout_func=worker.recorded)
    before = weights(trainer)
    trainer.train()
    assert [it["reward"] for it in logs(trainer)] == [0.125, 0.125]
    assert any((before[name] != value).any() for name, value in weights(trainer).items())


def test_a_conversation_ends_where_its_template_ends_it_and_the_saved_model_says_so(tmp_path, monkeypatch) -> None:
    """As a Qwen2.5 base: the chat template ends turns with <|im_end|>, every file names <|endoftext|>."""
    monkeypatch.setattr(worker, "MODEL", str(ROOT / "testdata/fixtures/models/qwen-shaped"))
    rows = [
        {"prompt": [{"role": "user", "content": it["prompt"]}], "answer": it["answer"], "teacher": it["teacher"]}
        for it in worker.data()
    ]
    reward = lambda completions, **_: [0.0] * len(completions)  # noqa: E731
    trainer = worker.trainer(tmp_path, max_steps=1, dataset=worker.Dataset.from_list(rows), reward=reward)
    end, old = (trainer.processing_class.convert_tokens_to_ids(it) for it in ("<|im_end|>", "<|endoftext|>"))
    assert trainer.eos_token_ids == trainer.generation_config.eos_token_id == [end, old]
    assert trainer._teachers.of(rows[0])[-1] == end
    trainer.train()
    trainer.save_model(str(tmp_path / "saved"))
    for name in ("config.json", "generation_config.json"):
        assert json.loads((tmp_path / "saved" / name).read_text())["eos_token_id"] == [end, old]


@pytest.mark.parametrize(
    ("loss", "code", "said"),
    [
        ("dapo", 0, "formula: TRL"),
        ("dr_grpo", 0, "agg/seq-mean-token-sum-norm/ppo"),
        ("bnpo", 2, "(cut-dependent)"),
    ],
)
def test_doctor_runs_the_cases_of_the_loss_as_set(tmp_path, binary, loss, code, said) -> None:
    line = {"step": 1, "loss": 0.1, "grad_norm": 0.5, "reward": 0.5}
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": [line]}))
    arguments = GRPOConfig(output_dir=str(tmp_path), loss_type=loss, bf16=False, report_to=[])
    torch.save(arguments, tmp_path / "training_args.bin")
    done = subprocess.run(
        [binary, "doctor", tmp_path, "--formula"],
        env={**os.environ, "HAPO_PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stderr
    assert said in done.stdout
