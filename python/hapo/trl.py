"""HAPO inside TRL: ``HapoGRPOTrainer`` in the place of ``GRPOTrainer``, and a column ``teacher`` in the data set.

The trainer overrides four methods of TRL's. Rewards are gathered over all processes, so each decides alike and splices
its own rows; every process runs as many forward passes as TRL's own trainer does. The policy's term is TRL's; the
teacher's is that of ``hapo train``, on the same forward pass. A teacher's row never passes a ratio or a clip.
"""

from __future__ import annotations

import inspect
import json
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import trl
from accelerate.utils import gather_object
from torch import Tensor
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

import hapo
from hapo._decide import Decision, in_f32, number_or_word
from hapo._teachers import Teachers
from hapo._writer import RunWriter, Sampled, rollout_lines
from hapo.ends import Ends, end_of_turn
from hapo.torch import teacher_loss

TESTED = "1.16"
"""The minor version of TRL that the tests run."""

NORMALISERS = {"dr_grpo": "constant", "dapo": "token-mean", "grpo": "sequence-mean"}
"""TRL's loss types and what they are called here."""

OVERRIDDEN = {
    "_calculate_rewards": ["self", "inputs", "prompts", "completions", "completion_ids_list"],
    "_generate_and_score_completions": ["self", "inputs"],
    "_get_per_token_logps_and_entropies": [
        "self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size", "compute_entropy",
        "compute_aux_loss",
    ],
    "_compute_loss": ["self", "model", "inputs"],
}  # fmt: skip
"""The methods of TRL's trainer that are overridden, and their first parameters."""


@dataclass
class HapoGRPOConfig(GRPOConfig):  # type: ignore[misc]
    """``GRPOConfig`` with the settings of a method and its gate, and the defaults of Dr. GRPO."""

    method: str = field(default="luffy", metadata={"help": "grpo, maxrl, luffy, srft or trapo"})
    hapo: bool = field(default=True, metadata={"help": "HAPO's gate; without it the method's own: a fixed slot"})
    turn_off_epoch: str | None = field(default=None, metadata={"help": "the epoch at which the teacher leaves"})
    success_limit: int = field(default=0, metadata={"help": "largest number of successes of a failed group"})
    gamma0: str | None = field(default=None, metadata={"help": "the threshold by hand, in place of success_limit"})
    annealing: str = field(default="sigmoid", metadata={"help": "sigmoid, or off"})
    steepness: str = field(default="10", metadata={"help": "steepness of the threshold's fall, per epoch"})
    slot: str = field(default="lowest-reward", metadata={"help": "whose slot the teacher takes"})
    teacher_weight: str = field(default="one", metadata={"help": "the teacher's weight: a word or a number"})
    teacher_d: float = field(default=0.1, metadata={"help": "d of the method's operator"})
    advantage_group: str = field(default="mixed", metadata={"help": "mixed, sampled or policy-only"})
    truncated: str = field(default="wrong", metadata={"help": "truncated responses: wrong, or grade"})
    success_at: float = field(default=1.0, metadata={"help": "the reward from which a rollout is a success"})
    wrong: float = field(default=0.0, metadata={"help": "the reward of truncated responses, or a group's lowest"})
    steps_per_epoch: int | None = field(default=None, metadata={"help": "needed where the data set has no length"})
    teacher_grader: str | None = field(
        default="math", metadata={"help": "checks teachers against the column `answer`; None takes them as they are"}
    )
    run_dir: str | None = field(default=None, metadata={"help": "a run folder for `hapo report`"})
    rollouts_every: int = field(default=1, metadata={"help": "steps between those whose rollouts it keeps; 0: none"})
    loss_type: str = field(default="dr_grpo", metadata={"help": "dr_grpo, dapo or grpo"})
    scale_rewards: str = field(default="none", metadata={"help": "none, or group"})

    def check(self) -> None:
        """Raises ValueError where a setting of TRL's cannot go with HAPO."""
        for name, bad, why in [
            ("mask_truncated_completions", bool, "`truncated` has the rule for truncated responses"),
            ("use_liger_kernel", bool, "the fused loss has no room for the teacher's term"),
            ("loss_type", lambda it: it not in NORMALISERS, f"expected one of {', '.join(NORMALISERS)}"),
            ("scale_rewards", lambda it: it not in ("none", "group", False, True), "expected none or group"),
            ("temperature", lambda it: it != 1.0, "the teacher's tokens are taken at temperature 1"),
            ("multi_objective_aggregation", lambda it: it != "sum_then_normalize", "expected sum_then_normalize"),
            ("truncated", lambda it: it not in ("wrong", "grade"), "expected wrong or grade"),
            ("method", hapo.method_refusal, hapo.method_refusal(self.method)),
            (
                "remove_unused_columns",
                lambda it: it and hapo.method_has_teacher(self.method),
                "expected false, it takes the teacher's column away",
            ),
        ]:
            value = getattr(self, name, None)
            if value is not None and bad(value):  # type: ignore[no-untyped-call]
                raise ValueError(f"{name}: {why}, got {value!r}")
        sampling, updates = self.steps_per_generation * self.num_iterations, self.gradient_accumulation_steps
        if max(sampling, updates) % min(sampling, updates):
            # A step of the gate would be no whole number of rounds or of optimiser steps, and its epoch a wrong one.
            raise ValueError(
                f"gradient_accumulation_steps: expected a divisor or a multiple of steps_per_generation * "
                f"num_iterations = {sampling}, got {updates}"
            )


class HapoGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """``GRPOTrainer`` with a gate, and a teacher in the columns ``teacher`` (text) or ``teacher_ids``."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        _check_trl()
        bound = inspect.signature(GRPOTrainer.__init__).bind(self, *arguments, **keywords).arguments
        for name in ("tools", "environment_factory"):
            if bound.get(name):
                raise ValueError(f"{name}: expected none, a teacher's text has no calls of tools")
        config = bound.get("args")
        if not isinstance(config, HapoGRPOConfig):
            raise TypeError(f"args: expected a HapoGRPOConfig, got {type(config).__name__}")
        config.check()
        super().__init__(*arguments, **keywords)
        columns = getattr(self.train_dataset, "column_names", None)
        if {"image", "images"} & set(columns or []):
            raise ValueError("train_dataset: expected no images, got a column of them")
        # A stream may not know its columns.
        if (
            columns is not None
            and hapo.method_has_teacher(config.method)
            and not {"teacher", "teacher_ids"} & {*columns}
        ):
            raise ValueError(
                f"train_dataset: expected a column `teacher` (text) or `teacher_ids`, got {', '.join(columns)}: "
                "add one, empty where a row has no teacher, or set method='grpo'"
            )
        self._end_turns()
        self._gathered_rewards: Tensor | None = None
        self._log_probs: Tensor | None = None
        self._teachers = Teachers(
            self._tokenizer, self.eos_token_ids, config.max_completion_length, config.teacher_grader
        )
        self.hapo_schedule = self._schedule(config) if config.hapo and hapo.method_has_teacher(config.method) else None
        self.hapo_method = hapo.Method(
            config.method,
            self.num_generations,
            schedule=self.hapo_schedule,
            slot=config.slot,
            teacher={"weight": number_or_word(config.teacher_weight), "d": config.teacher_d},
            advantage={"group": config.advantage_group, "std": config.scale_rewards in ("group", True)},
        )
        self.last_decision: Decision | None = None
        self.rollout_lines: list[dict[str, Any]] = []
        """Of the steps since they were last stored."""
        if config.run_dir is not None:
            self.add_callback(RunFolder(Path(config.run_dir), self))

    def _end_turns(self) -> None:
        """Ends conversations, and the teachers in them, where the chat template ends turns; saved models name it."""
        first: dict[str, Any] = next(iter(self.train_dataset), {})
        is_chat = trl.is_conversational(first)
        end = end_of_turn(self._tokenizer) if is_chat else int(self._tokenizer.eos_token_id)
        if is_chat and self.use_vllm:
            name, eos = self._tokenizer.convert_ids_to_tokens(end), self._tokenizer.eos_token_id
            files = {"generation_config.json": [*self.eos_token_ids]}
            Ends("model", end, name, self._tokenizer.eos_token, eos, files).check()
        self.eos_token_ids: list[int] = [end, *(it for it in self.eos_token_ids if it != end)]
        if not self.use_vllm:
            self.generation_config.eos_token_id = self.generation_kwargs["eos_token_id"] = self.eos_token_ids
        model = self.accelerator.unwrap_model(self.model)
        ids = self.eos_token_ids if len(self.eos_token_ids) > 1 else end
        model.config.eos_token_id = model.generation_config.eos_token_id = ids

    def _schedule(self, config: HapoGRPOConfig) -> hapo.Schedule:
        steps = config.steps_per_epoch
        if steps is None:
            try:
                prompts = len(self.train_dataset)
            except TypeError:
                raise ValueError("steps_per_epoch: expected a number, the data set has no length") from None
            steps = max(prompts // self._prompts_per_step(), 1)
        return hapo.Schedule(
            self.num_generations,
            steps,
            success_limit=config.success_limit,
            gamma0=config.gamma0,
            annealing=config.annealing,
            turn_off_epoch=config.turn_off_epoch,
            steepness=config.steepness,
        )

    def _prompts_per_step(self) -> int:
        """Prompts of a step of the gate: those of one round of sampling, or of all rounds of an optimiser step."""
        rounds = self.args.gradient_accumulation_steps // (self.args.steps_per_generation * self.num_iterations)
        return int(self.args.generation_batch_size // self.num_generations * max(rounds, 1))

    def hapo_step(self) -> int:
        """The step of the gate, from 1: a round of sampling, or an optimiser step that has several rounds."""
        return self.step_of(self.state.global_step + 1)

    def step_of(self, update: int) -> int:
        """The step of the gate that an optimiser step belongs to; 0 before the first."""
        updates = self.args.steps_per_generation * self.num_iterations // self.args.gradient_accumulation_steps
        return int((update - 1) // max(updates, 1)) + 1

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self._gathered_rewards = rewards
        return rewards

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if not self.model.training:
            return output
        teachers = [self._teachers.of(it) for it in inputs]
        decision = self._decide(output, teachers)
        self.last_decision = decision
        every = self.args.rollouts_every
        if self.args.run_dir is not None and every > 0 and self.hapo_step() % every == 0:
            self._keep(inputs, output, teachers, decision)
        here = slice(self.accelerator.process_index * len(inputs), (self.accelerator.process_index + 1) * len(inputs))
        device = output["completion_ids"].device
        replaced = torch.tensor(decision.replaced[here], device=device)
        output["advantages"] = torch.tensor(decision.advantages[here], dtype=torch.float32, device=device)
        output["teacher_weights"] = torch.tensor(decision.teacher_weights[here], device=device)
        if replaced.any():
            rows = {int(row): teachers[int(row)] or [] for row in replaced.nonzero().flatten().tolist()}
            self._splice(output, rows)
            output["tool_mask"] = (~replaced)[:, None].long().expand_as(output["completion_mask"]).contiguous()
        # The teacher's tokens count in the normaliser; every process takes part.
        tokens = output["completion_mask"].sum()
        output["num_items_in_batch"] = self.accelerator.gather(tokens).sum()
        for name, value in decision.metrics.items():
            self._metrics["train"][name].append(value)
        return output

    def _decide(self, output: dict[str, Any], teachers: list[list[int] | None]) -> Decision:
        """What becomes of the rows of all processes."""
        assert self._gathered_rewards is not None
        weights = self.reward_weights.to(self._gathered_rewards.device)
        rewards = (self._gathered_rewards * weights).nansum(dim=1).double().cpu().numpy()
        unscorable = self._gathered_rewards.isnan().all(dim=1).cpu().numpy()
        lengths = output["completion_mask"].sum(1)
        last = output["completion_ids"].gather(1, (lengths - 1).clamp(min=0)[:, None])[:, 0]
        ends = torch.tensor(sorted(self.eos_token_ids), device=last.device)
        truncated = ~torch.isin(last, ends) | (lengths == 0)
        teacher = torch.tensor([len(it) if it else 0 for it in teachers], device=last.device)
        rows = torch.stack([lengths, truncated.long(), teacher], dim=1)
        lengths, truncated, teacher = self.accelerator.gather(rows).cpu().numpy().T
        groups = np.arange(len(rewards)) // self.num_generations
        return hapo.decide(
            rewards,
            [None if bad else int(it) for bad, it in zip(unscorable, groups, strict=True)],
            lengths,
            truncated.astype(bool),
            teacher > 0,
            self.hapo_step(),
            method=self.hapo_method,
            teacher_lengths=teacher,
            teacher_rewards=np.full(len(rewards), max(self.args.success_at, float(weights.nansum()))),
            truncated=self.args.truncated,
            success_at=in_f32(self.args.success_at),
            wrong=self.args.wrong,
            seed=self.args.seed,
        )

    def _keep(
        self, inputs: list[Any], output: dict[str, Any], teachers: list[list[int] | None], decision: Decision
    ) -> None:
        """Keeps what all processes sampled, before the teacher's tokens take their slots."""
        logged = output.get("sampling_per_token_logps")
        mine = []
        for row, (it, teacher) in enumerate(zip(inputs, teachers, strict=True)):
            prompt = output["prompt_ids"][row][output["prompt_mask"][row].bool()].tolist()
            used = output["completion_mask"][row].bool()
            tokens = output["completion_ids"][row][used].tolist()
            answer = it.get("answer", "")
            mine.append(
                Sampled(
                    problem=_last_turn(it["prompt"]),
                    completion=self._tokenizer.decode(tokens, skip_special_tokens=True),
                    tokens=tokens,
                    ended=bool(tokens) and tokens[-1] in self.eos_token_ids,
                    answer=answer if isinstance(answer, str) else json.dumps(answer),
                    id=str(it.get("id", "")),
                    rendered=self._tokenizer.decode(prompt),
                    prompt_tokens=prompt,
                    log_probs=[] if logged is None else logged[row][used].tolist(),
                    teacher=self._tokenizer.decode(teacher or [], skip_special_tokens=True),
                    teacher_tokens=teacher or [],
                )
            )
        rows = gather_object(mine)
        if self.accelerator.is_main_process:
            self.rollout_lines += rollout_lines(rows, decision, success_at=in_f32(self.args.success_at))

    def _splice(self, output: dict[str, Any], rows: dict[int, list[int]]) -> None:
        """Puts the teacher's tokens into rows of the batch and pads what has a column for each token."""
        before = output["completion_ids"].size(1)
        used = output["completion_mask"].sum(1)
        used[list(rows)] = 0
        width = max(int(used.max()), *(len(it) for it in rows.values()), 1)
        multiple = self.pad_to_multiple_of or 1
        width = -(-width // multiple) * multiple
        padding = {"completion_ids": self._tokenizer.pad_token_id, "importance_sampling_ratio": 1.0}
        for name, tensor in output.items():
            by_token = isinstance(tensor, Tensor) and tensor.ndim == 2 and tensor.size(1) == before
            if by_token and not name.startswith("prompt_"):
                wider = tensor.new_full((tensor.size(0), width), padding.get(name, 0))
                wider[:, : min(before, width)] = tensor[:, :width]
                output[name] = wider
        for row, tokens in rows.items():
            ids = torch.tensor(tokens, device=output["completion_ids"].device)
            output["completion_ids"][row] = self._tokenizer.pad_token_id
            output["completion_ids"][row, : len(tokens)] = ids
            output["completion_mask"][row] = 0
            output["completion_mask"][row, : len(tokens)] = 1
            if "importance_sampling_ratio" in output:
                output["importance_sampling_ratio"][row] = 1.0

    def _get_per_token_logps_and_entropies(self, model: Any, *arguments: Any, **keywords: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(model, *arguments, **keywords)
        self._log_probs = found[0]
        return found

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        loss: Tensor = super()._compute_loss(model, inputs)
        log_probs, self._log_probs = self._log_probs, None
        weights = inputs.get("teacher_weights")
        if weights is None or log_probs is None:
            return loss
        taught = self._teachers_loss(log_probs, inputs, weights)
        self._metrics["train"]["teacher/loss"].append(self._mean(taught.detach()))
        return loss + taught

    def _teachers_loss(self, log_probs: Tensor, inputs: dict[str, Any], weights: Tensor) -> Tensor:
        """λ·F of the micro-batch under TRL's normaliser."""
        mask = inputs["completion_mask"].bool() & (weights != 0)[:, None]
        operator = self.last_decision.operator if self.last_decision else None
        if operator is None or not mask.any():
            return log_probs.new_zeros(())
        accumulation = self.current_gradient_accumulation_steps
        rows = mask.size(0)
        match self.loss_type:
            case "dr_grpo":
                divisor = float(rows * self.max_completion_length * accumulation)
            case "dapo":
                items = inputs["num_items_in_batch"].clamp(min=1.0).item() / self.accelerator.num_processes
                divisor = items * accumulation / self.args.steps_per_generation
            case _:
                divisor = float(rows * accumulation)
        return teacher_loss(
            log_probs,
            mask,
            weights,
            divisor=divisor,
            operator=operator,
            d=self.hapo_method.d,
            normaliser=NORMALISERS[self.loss_type],
        )

    def _mean(self, it: Tensor) -> float:
        """Over the processes, of a whole optimiser step."""
        mean = self.accelerator.gather(it.reshape(1)).mean().item()
        return float(mean * self.current_gradient_accumulation_steps)


class RunFolder(TrainerCallback):  # type: ignore[misc]
    """Writes a run folder as the command does, for ``hapo report``. Its steps are the gate's."""

    def __init__(self, path: Path, trainer: HapoGRPOTrainer) -> None:
        self.writer = RunWriter(path)
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Writes the recipe and the gate, and cuts off what a killed run logged after its last checkpoint."""
        if not state.is_world_process_zero:
            return
        plain = {key: value for key, value in sorted(args.to_dict().items()) if isinstance(value, str | int | float)}
        steps = self.trainer.step_of(state.max_steps)
        recipe: dict[str, Any] = {"method": args.method, "steps": steps, "seed": args.seed}
        if hapo.reward_trl in self.trainer.reward_funcs:
            # The report asks the grader again why it decided.
            recipe["data"] = {"grader": "math", "extraction": "announced", "truncated": args.truncated}
        schedule = self.trainer.hapo_schedule
        gate = schedule.table(steps) if schedule is not None else None
        after = self.trainer.step_of(state.global_step)
        self.writer.begin({**recipe, "trl": {"trl": trl.__version__, **plain}}, gate, after=after)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stores what was sampled in the step."""
        lines, self.trainer.rollout_lines = self.trainer.rollout_lines, []
        if state.is_world_process_zero and lines:
            self.writer.rollouts(self.trainer.step_of(state.global_step), lines)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        """Appends a line for each logged step."""
        if not state.is_world_process_zero or not logs or "gate/success_limit" not in logs:
            return
        numbers = {_name(key): value for key, value in logs.items() if isinstance(value, int | float)}
        self.writer.log(self.trainer.step_of(state.global_step), numbers)


def _name(name: str) -> str:
    """A number of TRL's log by the binary's name where it has one."""
    same = {
        "entropy": "policy/entropy",
        "completions/mean_length": "response_length/mean",
        "completions/clipped_ratio": "response_length/truncated",
        "step_time": "time/step",
        "learning_rate": "lr",
        "clip_ratio/region_mean": "policy/clip_fraction",
    }
    return same.get(name, name)


def _last_turn(prompt: str | list[dict[str, Any]]) -> str:
    """The problem of a prompt: the text, or the last turn of a conversation."""
    it = prompt if isinstance(prompt, str) else prompt[-1]["content"]
    return it if isinstance(it, str) else json.dumps(it)


def _check_trl() -> None:
    """Refuses a trainer that is not TRL's own, and warns of a version that no test runs."""
    for name, parameters in OVERRIDDEN.items():
        method = getattr(GRPOTrainer, name, None)
        function = inspect.unwrap(method) if method is not None else None
        if function is None or not function.__module__.startswith("trl."):
            raise RuntimeError(f"trl: expected TRL's own GRPOTrainer.{name}, got one of another package")
        found = list(inspect.signature(function).parameters)[: len(parameters)]
        if found != parameters:
            raise RuntimeError(f"trl: GRPOTrainer.{name} takes {found} in TRL {trl.__version__}, expected {parameters}")
    if re.match(rf"{re.escape(TESTED)}\b", trl.__version__) is None:
        warnings.warn(f"TRL {trl.__version__} is not tested, expected {TESTED}.*", stacklevel=3)
