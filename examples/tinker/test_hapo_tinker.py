"""hapo_tinker against SkyRL's Tinker server on a CPU, and its probe against servers of every kind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("tinker")
import tinker

import hapo
import hapo_tinker as ht

ROOT = Path(os.environ.get("HAPO_REPOSITORY") or Path(__file__).parents[2])
sys.path.insert(0, str(ROOT / "python/tests"))
import cut  # noqa: E402

MODEL = str(ROOT / "testdata/fixtures/models/tiny-qwen3")
ROWS = [{"prompt": f"{it}+{it}=", "answer": str(2 * it), "teacher": f"\\boxed{{{2 * it}}}"} for it in range(4)]


class Server:
    """log π of a token is its own parameter, so that the gradient of a batch is a sum over its tokens."""

    def __init__(self, divides: str) -> None:
        self.divides = divides
        self.gradients: list[np.ndarray] = []
        self.examples = 0

    @staticmethod
    def _now(value: object) -> SimpleNamespace:
        return SimpleNamespace(result=lambda: value)

    def forward(self, data, loss):
        outputs = [
            {"logprobs": SimpleNamespace(data=[0.0] * len(it.loss_fn_inputs["target_tokens"].data))} for it in data
        ]
        return self._now(SimpleNamespace(loss_fn_outputs=outputs))

    def forward_backward(self, data, loss):
        gradient = np.zeros(32)
        lengths = [len(it.loss_fn_inputs["target_tokens"].data) for it in data]
        for it, length in zip(data, lengths, strict=True):
            advantages = np.array(it.loss_fn_inputs["advantages"].data)
            divisor = {"sequences": length, "weights": np.abs(advantages).sum() or 1.0}.get(self.divides, 1)
            np.add.at(gradient, it.loss_fn_inputs["target_tokens"].data, advantages / divisor)
        self.gradients.append(gradient)
        self.examples += sum(lengths) if self.divides == "tokens" else len(data)
        return self._now(None)

    def optim_step(self, params):
        total = sum(self.gradients) / (1 if self.divides in ("sum", "weights") else self.examples)
        self.gradients, self.examples = [], 0
        metrics = {} if self.divides == "nothing" else {"grad_norm": float(np.linalg.norm(total))}
        return self._now(SimpleNamespace(metrics=metrics))


@pytest.mark.parametrize("scaling", ht.SCALINGS)
def test_the_probe_tells_what_a_server_divides_by(scaling) -> None:
    assert ht.probe(Server(scaling)) == scaling


def test_what_the_server_divides_by_is_undone() -> None:
    tokens = [[1, 2, 3, 4], [5, 6]]
    weights = [[0.5, -1.0, 2.0], [3.0]]
    lengths = [3, 1]
    norms = []
    for scaling in ht.SCALINGS:
        server = Server(scaling)
        scaled = [[it * ht._undone(scaling, lengths, row) for it in weights[row]] for row in range(2)]
        ht._backward(server, tokens, [[0.0] * 3, [0.0]], scaled)
        norms.append(ht._optimise(server, 0.0, (0.0, 0.0), 1e-8, 0.0))
    assert norms == pytest.approx([np.sqrt(0.25 + 1 + 4 + 9)] * 4)


def test_a_server_that_divides_the_weights_away_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"ratios 1\.000, 1\.000, 2\.000 .* other weights than were sent"):
        ht.probe(Server("weights"))
    with pytest.raises(RuntimeError, match="gradient's norm above 0 among the optimiser's metrics, got nan"):
        ht.probe(Server("nothing"))


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """SkyRL's server with its JAX back end; it must be started by `uv run`."""
    pytest.importorskip("skyrl")
    path = tmp_path_factory.mktemp("skyrl")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        f"{sys.prefix}/bin/uv", "run", "--active", "--no-project", "python", "-m", "skyrl.tinker.api",
        "--base-model", MODEL, "--backend", "jax", "--backend-config", '{"max_lora_adapters": 16, "max_lora_rank": 4}',
        "--database-url", f"sqlite:///{path}/server.db", "--checkpoints-base", f"{path}/checkpoints",
        "--host", "127.0.0.1", "--port", str(port),
    ]  # fmt: skip
    environment = {
        **os.environ, "VIRTUAL_ENV": sys.prefix, "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}",
        "JAX_PLATFORMS": "cpu", "UV_OFFLINE": "1", "XLA_FLAGS": "--xla_backend_optimization_level=0",
    }  # fmt: skip
    with (path / "log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    address = f"http://127.0.0.1:{port}"
    for _ in range(600):
        assert server.poll() is None, (path / "log").read_text()
        try:
            with urllib.request.urlopen(f"{address}/api/v1/healthz", timeout=5):
                break
        except OSError:
            time.sleep(0.5)
    yield tinker.ServiceClient(base_url=address, api_key="tml-none")
    server.terminate()
    server.wait(60)


def config(**keys) -> ht.TinkerConfig:
    defaults = {
        "base_model": MODEL, "steps": 3, "turn_off_epoch": "1.5", "group_size": 2, "prompts_per_step": 2,
        "max_new_tokens": 12, "lora_rank": 4, "scaling": "sequences",
    }  # fmt: skip
    return ht.TinkerConfig(**{**defaults, **keys})


def test_skyrls_server_divides_by_length_and_its_cross_entropy_is_refused(service) -> None:
    client = service.create_lora_training_client(base_model=MODEL, rank=4, seed=0)
    assert ht.probe(client) == "sequences"
    with pytest.raises(RuntimeError, match=r"its loss cross_entropy has gradients of ratios 1\.000"):
        ht.probe(client, "cross_entropy")


def test_an_update_goes_down_the_cores_loss(service) -> None:
    """With a large ε, Adam's update is lr/ε·g: the loss falls by lr/ε·|g|² with the norm that the server tells."""
    settings = {"learning_rate": 1e3, "eps": 1e6, "betas": (0.0, 0.0), "method": "luffy"}
    trainer = ht.TinkerTrainer(
        service, ROWS, config(**settings), reward=lambda completions, answer: [float(it == "0") for it in answer]
    )
    rows = [row for row in ROWS[:2] for _ in range(2)]
    sampled = trainer._sample(rows)
    sampled[0].ended = False  # one of the two right ones is truncated: its group has a success, the other has none
    sampled[1].ended = True
    batch = trainer._decide(rows, sampled, 1)
    assert batch.decision.injected.tolist() == [False, True]
    assert batch.decision.advantages[:2].tolist() == [-0.5, 0.5]
    log_probs = trainer.forward(batch)
    gap = np.abs(log_probs - batch.old_log_probs)[batch.policy]
    assert gap.max() < 1e-3
    before, slopes = trainer.loss(batch, log_probs)
    norm = trainer.update(batch, log_probs, slopes)
    after, _ = trainer.loss(batch, trainer.forward(batch))
    assert norm > 0
    assert before["teacher/loss"] < 0
    assert after["loss"] - before["loss"] == pytest.approx(-1e-3 * norm**2, rel=0.05)


def test_a_run_with_failing_groups_learns_the_teacher(service, tmp_path) -> None:
    run = tmp_path / "run"
    trainer = ht.TinkerTrainer(
        service,
        ROWS[:2],
        config(method="srft", steps=8, turn_off_epoch="7.5", learning_rate=2e-2, run_dir=str(run)),
        reward=lambda completions, answer: [0.0] * len(answer),
    )
    trainer.train()
    it = hapo.Run(run)
    assert trainer.schedule.extinction == 8
    assert it.metrics["gate/beta"].tolist() == [1] * 7 + [0]
    assert it.metrics["teacher/mean_prob"][6] > 10 * it.metrics["teacher/mean_prob"][0]
    assert it.steps == list(range(1, 9))
    assert [line["role"] for line in it.rollouts(1)].count("teacher") == 2
    told = subprocess.run(
        [os.environ.get("HAPO", "hapo"), "report", str(run), "-o", str(tmp_path / "page.html")],
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stderr


def test_cut_responses_have_the_recorded_loss() -> None:
    """Random groups with cut responses: the batch that is sent has the loss and the slopes of PyTorch in f64."""
    seen = 0
    for it in cut.batches(ROOT):
        case = it.case
        if case["normaliser"] == "length":
            continue
        trainer = object.__new__(ht.TinkerTrainer)
        trainer.config = config(normaliser=case["normaliser"], max_new_tokens=case["max_response"])
        sampled = [
            SimpleNamespace(tokens=[1] * n, teacher_tokens=[1] * n, prompt_tokens=[1], log_probs=old[:n].tolist())
            for n, old in zip(it.lengths, it.old_log_probs, strict=True)
        ]
        loss, slopes = trainer.loss(trainer._batch(sampled, it.decision), it.log_probs)
        assert loss["loss"] == pytest.approx(case["loss"], rel=1e-6), case["name"]
        np.testing.assert_allclose(slopes, it.gradient, rtol=1e-6, atol=1e-9)
        seen += 1
    assert seen == 8


def test_what_cannot_be_run_is_refused_before_the_server_is_asked() -> None:
    for settings, message in [
        ({"method": "hpt"}, "method: its teacher has a mean of its own"),
        ({"method": "sft"}, "method: imitation samples nothing"),
        ({"normaliser": "batch"}, "normaliser: expected constant"),
        ({"truncated": "drop"}, "truncated: expected wrong"),
        ({"scaling": "mean"}, "scaling: expected one of sum, examples, sequences, tokens"),
        ({"group_size": 0}, "group_size: expected at least 1"),
        ({"turn_off_epoch": None}, "turn_off_epoch: expected the epoch"),
    ]:
        with pytest.raises(ValueError, match=message):
            ht.TinkerTrainer(None, ROWS, config(**settings))
    with pytest.raises(ValueError, match="rows: expected at least one problem"):
        ht.TinkerTrainer(None, [], config())
