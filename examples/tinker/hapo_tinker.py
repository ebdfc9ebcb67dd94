"""HAPO on a Tinker-compatible server: sampling, gradients and the optimiser there, all else here.

The server is asked for log-probabilities; the core turns them into the loss and its derivative by each of them; these
go back as the advantages of the server's ``importance_sampling`` loss at ratio 1, whose gradient is the loss's. So
every method runs on a server that knows none of them, in two round trips an update. The price is a second forward pass.

Servers differ in what they divide a gradient by, and some divide the weights away without an error: ``probe`` measures
it before a run starts and refuses what is none of ``SCALINGS``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hapo
from hapo import _hapo
from hapo._decide import Decision
from hapo._rewards import reward_trl
from hapo._teachers import Teachers
from hapo._writer import RunWriter, Sampled, rollout_lines

SCALINGS = {
    "sum": "over all tokens",
    "examples": "summed over tokens, mean over examples",
    "sequences": "mean over an example's tokens, then over examples",
    "tokens": "mean over all tokens",
}
"""What servers make of a batch's per-token losses."""


@dataclass(frozen=True)
class TinkerConfig:
    """A run. The method's words are the recipe's."""

    base_model: str
    steps: int
    turn_off_epoch: str | None = None
    method: str = "luffy"
    hapo: bool = True
    success_limit: int = 0
    gamma0: str | None = None
    annealing: str = "sigmoid"
    slot: str = "lowest-reward"
    teacher_weight: str | float = "one"
    teacher_d: float = 0.1
    advantage_group: str = "mixed"
    advantage_std: bool = False
    normaliser: str = "constant"
    clip_low: float = 0.2
    clip_high: float = 0.2
    truncated: str = "wrong"
    success_at: float = 1.0
    wrong: float = 0.0
    group_size: int = 8
    prompts_per_step: int = 32
    max_new_tokens: int = 1024
    learning_rate: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    lora_rank: int = 32
    seed: int = 0
    teacher_grader: str | None = "math"
    run_dir: str | None = None
    scaling: str | None = None
    """One of ``SCALINGS`` in place of the probe."""

    def check(self) -> None:
        """Raises ValueError where a setting cannot be run."""
        if refusal := hapo.method_refusal(self.method):
            raise ValueError(f"method: {refusal}, got {self.method!r}")
        if self.normaliser not in ("constant", "token-mean", "sequence-mean"):
            raise ValueError(f"normaliser: expected constant, token-mean or sequence-mean, got {self.normaliser!r}")
        if self.truncated not in ("wrong", "mask", "grade"):
            raise ValueError(f"truncated: expected wrong, mask or grade, got {self.truncated!r}")
        if self.scaling is not None and self.scaling not in SCALINGS:
            raise ValueError(f"scaling: expected one of {', '.join(SCALINGS)}, got {self.scaling!r}")
        for name in ("steps", "group_size", "prompts_per_step", "max_new_tokens", "lora_rank"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1, got {getattr(self, name)}")


@dataclass
class Batch:
    """Padded rows of a step: prompt and response of each, and what they are worth."""

    tokens: list[list[int]]
    """Prompt and response."""
    prompts: list[int]
    """Length of each prompt."""
    old_log_probs: NDArray[np.float32]
    policy: NDArray[np.bool_]
    """Responses' tokens with a policy term, padded: rows by longest response."""
    teacher: NDArray[np.bool_]
    decision: Decision
    divisor: float


class TinkerTrainer:
    """Trains a LoRA on a server through ``tinker.ServiceClient``.

    ``rows`` are mappings with ``prompt`` (text, tokenised as it is) or ``prompt_ids``, ``answer``, and for some
    ``teacher`` (text) or ``teacher_ids``. ``reward`` takes completions and answers, as ``hapo.reward_trl`` does.
    """

    def __init__(
        self,
        service: Any,
        rows: Sequence[Mapping[str, Any]],
        config: TinkerConfig,
        *,
        tokenizer: Any = None,
        reward: Callable[..., Sequence[float]] = reward_trl,
    ) -> None:
        config.check()
        if not rows:
            raise ValueError("rows: expected at least one problem, got none")
        self.config, self.rows, self.reward = config, rows, reward
        self.steps_per_epoch = max(len(rows) // config.prompts_per_step, 1)
        self.schedule = self._schedule() if config.hapo and hapo.method_has_teacher(config.method) else None
        self.method = hapo.Method(
            config.method,
            config.group_size,
            schedule=self.schedule,
            slot=config.slot,
            teacher={"weight": config.teacher_weight, "d": config.teacher_d},
            advantage={"group": config.advantage_group, "std": config.advantage_std},
        )

        def model() -> Any:
            return service.create_lora_training_client(
                base_model=config.base_model, rank=config.lora_rank, seed=config.seed
            )

        # The probe's steps would stay in the optimiser's moments: it has an adapter of its own.
        self.scaling = config.scaling or probe(model())
        self.client = model()
        self.tokenizer = tokenizer or self.client.get_tokenizer()
        self.end_tokens = {int(self.tokenizer.eos_token_id)}
        self.teachers = Teachers(self.tokenizer, self.end_tokens, config.max_new_tokens, config.teacher_grader)
        self.writer = RunWriter(config.run_dir) if config.run_dir is not None else None
        self.last_decision: Decision | None = None

    def _schedule(self) -> hapo.Schedule:
        it = self.config
        return hapo.Schedule(
            it.group_size,
            self.steps_per_epoch,
            success_limit=it.success_limit,
            gamma0=it.gamma0,
            annealing=it.annealing,
            turn_off_epoch=it.turn_off_epoch,
        )

    def train(self) -> None:
        """All steps of the run."""
        if self.writer is not None:
            config = {key: value for key, value in asdict(self.config).items() if isinstance(value, str | int | float)}
            gate = self.schedule.table(self.config.steps) if self.schedule is not None else None
            recipe = {"method": self.config.method, "steps": self.config.steps, "seed": self.config.seed}
            self.writer.begin({**recipe, "tinker": {**config, "scaling": self.scaling}}, gate)
        for step in range(1, self.config.steps + 1):
            metrics = self.step(step)
            if self.writer is not None:
                self.writer.log(step, metrics)

    def step(self, step: int) -> dict[str, float]:
        """Samples, decides, updates; the numbers of the step."""
        began = time.perf_counter()
        rows = [row for row in self._prompts(step) for _ in range(self.config.group_size)]
        sampled = self._sample(rows)
        between = time.perf_counter()
        batch = self._decide(rows, sampled, step)
        metrics = dict(batch.decision.metrics)
        log_probs = self.forward(batch)
        loss, slopes = self.loss(batch, log_probs)
        metrics |= loss
        metrics["grad_norm"] = self.update(batch, log_probs, slopes)
        lengths = np.array([len(it.tokens) for it in sampled])
        ended = time.perf_counter()
        return metrics | {
            "epoch": step / self.steps_per_epoch,
            "lr": self.config.learning_rate,
            "response_length/mean": float(lengths.mean()),
            "response_length/truncated": float(np.mean([not it.ended for it in sampled])),
            "time/sample": between - began,
            "time/train": ended - between,
            "time/step": ended - began,
        }

    def _prompts(self, step: int) -> list[Mapping[str, Any]]:
        """The prompts of a step: a new order in every epoch, a function of the seed and the step alone."""
        n = min(self.config.prompts_per_step, len(self.rows))
        epoch, at = divmod(step - 1, self.steps_per_epoch)
        order = np.random.default_rng([self.config.seed, epoch]).permutation(len(self.rows))
        return [self.rows[int(it)] for it in order[at * n : (at + 1) * n]]

    def _prompt_ids(self, row: Mapping[str, Any]) -> list[int]:
        ids = row.get("prompt_ids")
        return list(ids) if ids else list(self.tokenizer(row["prompt"], add_special_tokens=False)["input_ids"])

    def _sample(self, rows: Sequence[Mapping[str, Any]]) -> list[Sampled]:
        """A completion for each row; rows of a prompt stand together."""
        from tinker import types

        params = types.SamplingParams(
            max_tokens=self.config.max_new_tokens, temperature=1.0, stop=sorted(self.end_tokens)
        )
        sampler = self.client.save_weights_and_get_sampling_client()
        n = self.config.group_size
        groups = rows[::n]
        prompts = [self._prompt_ids(it) for it in groups]
        asked = [sampler.sample(types.ModelInput.from_ints(it), n, params) for it in prompts]
        found: list[Sampled] = []
        for row, prompt, future in zip(groups, prompts, asked, strict=True):
            teacher = self.teachers.of(row) or []
            for it in future.result().sequences:
                if it.logprobs is None:
                    raise RuntimeError("server: expected log-probabilities of sampled tokens, got none")
                tokens = list(it.tokens)
                found.append(
                    Sampled(
                        problem=str(row.get("problem", row.get("prompt", ""))),
                        completion=self._text(tokens),
                        tokens=tokens,
                        ended=bool(tokens) and tokens[-1] in self.end_tokens,
                        answer=str(row.get("answer", "")),
                        id=str(row.get("id", "")),
                        rendered=self.tokenizer.decode(prompt),
                        prompt_tokens=prompt,
                        log_probs=[float(lp) for lp in it.logprobs],
                        teacher=self._text(teacher),
                        teacher_tokens=teacher,
                    )
                )
        return found

    def _text(self, tokens: list[int]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))

    def _decide(self, rows: Sequence[Mapping[str, Any]], sampled: list[Sampled], step: int) -> Batch:
        """Rewards, the gate, and the batch with the teacher in it."""
        rewards = self.reward(completions=[it.completion for it in sampled], answer=[it["answer"] for it in rows])
        decision = hapo.decide(
            np.asarray(rewards, np.float64),
            [row // self.config.group_size for row in range(len(rows))],
            [len(it.tokens) for it in sampled],
            [not it.ended for it in sampled],
            [bool(it.teacher_tokens) for it in sampled],
            step,
            method=self.method,
            teacher_lengths=[len(it.teacher_tokens) for it in sampled],
            truncated=self.config.truncated,
            success_at=self.config.success_at,
            wrong=self.config.wrong,
            seed=self.config.seed,
        )
        self.last_decision = decision
        if self.writer is not None:
            self.writer.rollouts(step, rollout_lines(sampled, decision, success_at=self.config.success_at))
        return self._batch(sampled, decision)

    def _batch(self, sampled: list[Sampled], decision: Decision) -> Batch:
        taught = decision.replaced
        responses = [it.teacher_tokens if teacher else it.tokens for it, teacher in zip(sampled, taught, strict=True)]
        lengths = [len(it) for it in responses]
        shape = (len(sampled), max(1, *lengths))
        mask = np.arange(shape[1]) < np.array(lengths)[:, None]
        old = np.zeros(shape, np.float32)
        for row, it in enumerate(sampled):
            if not taught[row]:
                old[row, : lengths[row]] = it.log_probs
        return Batch(
            tokens=[it.prompt_tokens + response for it, response in zip(sampled, responses, strict=True)],
            prompts=[len(it.prompt_tokens) for it in sampled],
            old_log_probs=old,
            policy=mask & (decision.trained & ~taught)[:, None],
            teacher=mask & (decision.trained & taught)[:, None],
            decision=decision,
            divisor=hapo.divisor(
                self.config.normaliser, np.array(lengths)[decision.counted], self.config.max_new_tokens
            ),
        )

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """log π of the responses' tokens under the present weights, padded."""
        found = _log_probs(self.client, batch.tokens)
        log_probs = np.zeros_like(batch.old_log_probs)
        for row, (it, prompt) in enumerate(zip(found, batch.prompts, strict=True)):
            response = it[prompt - 1 :]
            log_probs[row, : len(response)] = response
        return log_probs

    def loss(self, batch: Batch, log_probs: NDArray[np.float32]) -> tuple[dict[str, float], NDArray[np.float32]]:
        """The loss by the core, and its derivative by each log-probability."""
        it, decision = self.config, batch.decision
        slopes, of_teacher = np.zeros_like(log_probs), np.zeros_like(log_probs)
        policy, clipped, *_ = _hapo.policy_terms(
            log_probs, batch.old_log_probs, batch.policy, decision.advantages, batch.divisor, slopes,
            clip_low=it.clip_low, clip_high=it.clip_high, importance_ratio_level="token", normaliser=it.normaliser,
        )  # fmt: skip
        metrics = {"policy/loss": policy, "teacher/loss": 0.0}
        if batch.policy.any():
            metrics["policy/clip_fraction"] = clipped / int(batch.policy.sum())
            gap = np.abs(log_probs - batch.old_log_probs)[batch.policy]
            metrics["sampler/logprob_gap_max"] = float(gap.max())
        if decision.operator is not None and batch.teacher.any():
            metrics["teacher/loss"], _ = _hapo.teacher_terms(
                log_probs, batch.teacher, decision.teacher_weights, batch.divisor, of_teacher,
                operator=decision.operator, d=decision.d, normaliser=it.normaliser,
            )  # fmt: skip
            metrics["teacher/mean_prob"] = float(np.exp(log_probs[batch.teacher]).mean())
        metrics["loss"] = policy + metrics["teacher/loss"]
        return metrics, slopes + of_teacher

    def update(self, batch: Batch, log_probs: NDArray[np.float32], slopes: NDArray[np.float32]) -> float:
        """One optimiser step along the derivative; the norm of the gradient."""
        weights, passed = [], []
        for row, (tokens, prompt) in enumerate(zip(batch.tokens, batch.prompts, strict=True)):
            response = len(tokens) - prompt
            weights.append([0.0] * (prompt - 1) + (-slopes[row, :response]).tolist())
            passed.append([0.0] * (prompt - 1) + log_probs[row, :response].tolist())
        lengths = [len(it) - 1 for it in batch.tokens]
        scaled = [[it * _undone(self.scaling, lengths, row) for it in of_row] for row, of_row in enumerate(weights)]
        _backward(self.client, batch.tokens, passed, scaled)
        it = self.config
        return _optimise(self.client, it.learning_rate, it.betas, it.eps, it.weight_decay)


def _undone(scaling: str, lengths: list[int], row: int) -> float:
    """What a row's weights are multiplied by so that the server's mean is a sum."""
    match scaling:
        case "sum":
            return 1.0
        case "examples":
            return float(len(lengths))
        case "sequences":
            return float(len(lengths) * lengths[row])
        case _:
            return float(sum(lengths))


def probe(client: Any, carrier: str = "importance_sampling") -> str:
    """Which of ``SCALINGS`` the server has, from gradient norms of a few tokens; raises RuntimeError if none.

    Weights twice as large must double the gradient. Tokens of weight 0 behind a sequence change no gradient but its
    mean over tokens, and a batch given twice changes all but the sum. The client's weights stay as they are; its
    optimiser does not.
    """
    short, other, longer = [5, 6, 7, 8, 9, 10, 11], [7, 8, 9], [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]
    n, m, k = len(short) - 1, len(other) - 1, len(longer) - len(short)

    def norm(sequence: list[int], weight: float, times: int = 1) -> float:
        sequences = [sequence, other]
        weights = [[weight] * n + [0.0] * (len(sequence) - 1 - n), [0.0] * m]
        log_probs = _log_probs(client, sequences)
        for _ in range(times):
            _backward(client, sequences, log_probs, weights, carrier)
        return _optimise(client, 0.0, (0.0, 0.0), 1e-8, 0.0)

    once = norm(short, 0.1)
    if not once > 0.0:
        raise RuntimeError(
            f"server: expected a gradient's norm above 0 among the optimiser's metrics, got {once}; "
            "`scaling` says by hand what the server divides by"
        )
    measured = (norm(short, 0.2) / once, norm(longer, 0.1) / once, norm(short, 0.1, times=2) / once)
    expected = {
        "sum": (2.0, 1.0, 2.0),
        "examples": (2.0, 1.0, 1.0),
        "sequences": (2.0, n / (n + k), 1.0),
        "tokens": (2.0, (n + m) / (n + m + k), 1.0),
    }
    for name, ratios in expected.items():
        if np.allclose(measured, ratios, rtol=0.02):
            return name
    told = ", ".join(f"{it:.3f}" for it in measured)
    known = "; ".join(f"{name} {', '.join(f'{it:.3f}' for it in ratios)}" for name, ratios in expected.items())
    raise RuntimeError(
        f"server: its loss {carrier} has gradients of ratios {told} for weights twice as large, zeros behind and the "
        f"batch twice, expected those of one of {known}: it would train on other weights than were sent"
    )


def _log_probs(client: Any, sequences: list[list[int]]) -> list[list[float]]:
    """log π of every token but the first."""
    from tinker import types

    data = [
        types.Datum(
            model_input=types.ModelInput.from_ints(it[:-1]),
            loss_fn_inputs={"target_tokens": it[1:], "weights": [1.0] * (len(it) - 1)},
        )
        for it in sequences
    ]
    outputs = client.forward(data, "cross_entropy").result().loss_fn_outputs
    return [list(it["logprobs"].data) for it in outputs]


def _backward(
    client: Any,
    sequences: list[list[int]],
    log_probs: list[list[float]],
    weights: list[list[float]],
    carrier: str = "importance_sampling",
) -> None:
    """Adds the gradient of −Σ w·log π: the carrier's ratio is 1, since it is given the present log-probabilities."""
    from tinker import types

    def inputs(row: int) -> dict[str, Any]:
        if carrier == "cross_entropy":
            return {"weights": weights[row]}
        return {"logprobs": log_probs[row], "advantages": weights[row]}

    data = [
        types.Datum(
            model_input=types.ModelInput.from_ints(it[:-1]), loss_fn_inputs={"target_tokens": it[1:], **inputs(row)}
        )
        for row, it in enumerate(sequences)
    ]
    client.forward_backward(data, carrier).result()


def _optimise(client: Any, lr: float, betas: tuple[float, float], eps: float, weight_decay: float) -> float:
    """An optimiser step; the norm of the gradient as the server tells it, or NaN."""
    from tinker import types

    params = types.AdamParams(learning_rate=lr, beta1=betas[0], beta2=betas[1], eps=eps, weight_decay=weight_decay)
    metrics = client.optim_step(params).result().metrics or {}
    for name, value in metrics.items():
        if "grad_norm" in name or "grad_l2" in name:
            return float(value)
    return math.nan
