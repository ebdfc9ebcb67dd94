"""The trainer ``hapo_sync``: verl's ``sync`` with a gate, and a teacher in the column ``hapo_teacher_ids``.

It decides where a step's rows are complete and nothing is computed from them yet. On a teacher's row ``response_mask``
is 0 and ``loss_mask`` is 1: so all that verl computes from a policy's tokens, its loss, entropy, KL, the correction of
sampling and its metrics, passes it by, while its tokens count in the normalisers. On a masked row both are 0.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from tensordict import TensorDict
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.tensordict_utils import list_of_dict_to_tensordict
from verl.workers.engine_workers import ActorRolloutRefWorker

import hapo
from hapo._decide import Decision, in_f32
from hapo.verl.loss import WEIGHT, hapo_loss
from hapo.verl.rows import Row, read_rows, scores
from hapo.verl.settings import MODE, Settings, model_ends, one_update
from hapo.verl.writer import HapoRunWriter

OVERRIDDEN = {
    "_build_replay_buffer": ["self"],
    "_setup": ["self"],
    "_init_dataloader": ["self"],
    "on_train_begin": ["self"],
    "_balance_batch": ["self", "batch", "metrics", "logging_prefix", "keep_minibatch"],
    "_compute_old_log_prob": ["self", "batch", "metrics"],
    "_compute_advantage": ["self", "batch", "metrics"],
    "_update_actor": ["self", "batch", "metrics"],
    "_compute_metrics": ["self", "batch", "metrics", "timing_raw", "global_steps", "epoch"],
}
"""The methods of verl's trainer that are overridden, and their parameters."""


@register_trainer(MODE)
class HapoTrainer(PPOTrainerSync):  # type: ignore[misc]
    """``PPOTrainerSync`` with the options ``+hapo.*``."""

    def __init__(self, config: Any) -> None:
        check_verl()
        self.hapo = Settings.of(config)
        super().__init__(config)
        self.hapo_rows: dict[str, Row] = {}
        """The rows of the step by their keys; verl adds padding and reorders."""
        self.decision: Decision | None = None

    def _build_replay_buffer(self) -> Any:
        # The base class asks for this word where a trainer may have rows of several versions.
        self.trainer_mode = "sync"
        return super()._build_replay_buffer()

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        group_size = self.config.actor_rollout_ref.rollout.n
        std = bool(self.config.algorithm.get("norm_adv_by_std_in_grpo", True))
        self.hapo_schedule = self.hapo.schedule(group_size, self.steps_per_epoch)
        self.hapo_method = self.hapo.build(group_size, self.hapo_schedule, std=std)
        self.end_tokens = set(model_ends(self.config).stops)

    def _setup(self) -> None:
        super()._setup()
        actor = omega_conf_to_dataclass(self.config.actor_rollout_ref.actor)
        self.actor_rollout_wg.set_loss_fn(partial(hapo_loss, config=actor))

    def on_train_begin(self) -> None:
        super().on_train_begin()
        self.writer = None
        if self.hapo.run_dir is not None:
            self.writer = HapoRunWriter(self.hapo, self.config)
            self.writer.begin(self.hapo_schedule, self.total_training_steps, after=self.global_steps - 1)

    def _balance_batch(
        self, batch: Any, metrics: Any, logging_prefix: str = "global_seqlen", keep_minibatch: bool = False
    ) -> Any:
        self._intervene(batch, metrics)
        return super()._balance_batch(batch, metrics, logging_prefix, keep_minibatch)

    def _intervene(self, batch: Any, metrics: dict[str, Any]) -> None:
        """Decides what becomes of the rows, and writes what changes back to the queue."""
        rows = read_rows(batch, self.end_tokens, with_log_probs=self._has_rollout_log_probs())
        decision = hapo.decide(
            [it.reward for it in rows],
            [it.group for it in rows],
            [it.length for it in rows],
            [it.truncated for it in rows],
            [bool(it.teacher) for it in rows],
            self.global_steps,
            method=self.hapo_method,
            teacher_lengths=[len(it.teacher) for it in rows],
            truncated=self.hapo.truncated,
            success_at=in_f32(self.hapo.success_at),
            wrong=self.hapo.wrong,
            seed=self.hapo.seed,
        )
        for place, row in enumerate(rows):
            row.replaced = bool(decision.replaced[place])
            row.advantage = float(decision.advantages[place])
            row.weight = float(decision.teacher_weights[place])
            row.masked = not decision.counted[place]
            row.reward = float(decision.rewards[place])
        self.decision, self.hapo_rows = decision, {it.key: it for it in rows}
        if self.writer is not None:
            self.writer.sampled(self.global_steps, rows, decision, self.tokenizer)
        metrics.update({f"hapo/{name}": value for name, value in decision.metrics.items()})
        metrics["hapo/response_length/mean"] = float(np.mean([it.length for it in rows]))
        metrics["hapo/response_length/truncated"] = float(np.mean([it.truncated for it in rows]))
        self._write_back(batch, rows)

    def _write_back(self, batch: Any, rows: list[Row]) -> None:
        tags = dict(zip(batch.keys, batch.tags, strict=True))
        replaced = [it for it in rows if it.replaced]
        if replaced:
            reward = max(self.hapo.success_at, 1.0)
            for it in replaced:
                length = len(it.teacher)
                tags[it.key].update(response_len=length, seq_len=len(it.prompt) + length)
            fields = [it.as_teacher(reward, with_log_probs=self._has_rollout_log_probs()) for it in replaced]
            put(batch, [it.key for it in replaced], list_of_dict_to_tensordict(fields), tags)
        for it in rows:
            if it.replaced:
                continue
            changed: dict[str, Any] = {}
            if it.masked:
                none = torch.zeros(it.length, dtype=torch.int64)
                changed |= {"response_mask": none, "loss_mask": none.clone()}
            if it.reward != it.graded:
                changed["rm_scores"] = scores(it.length, it.reward)
            if changed:
                put(batch, [it.key], list_of_dict_to_tensordict([changed]))
        weights = torch.tensor([[it.weight] for it in rows], dtype=torch.float64)
        put(batch, [it.key for it in rows], TensorDict({WEIGHT: weights}, batch_size=[len(rows)]))

    def _has_rollout_log_probs(self) -> bool:
        return bool(self.config.actor_rollout_ref.rollout.calculate_log_probs)

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_old_log_prob(batch, metrics)
        names = ["old_log_probs", "entropy", "response_mask"]
        found = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
        columns = [found[name].unbind() for name in names]
        taught, entropies, everything = [], [], []
        for key, old, entropy, mask in zip(batch.keys, *columns, strict=True):
            row = self.hapo_rows.get(key)
            if row is not None and row.replaced:
                taught.append((key, old.float().cpu()))
            entropies.append(entropy[mask.bool()].float())
            everything.append(entropy.float() if row is not None and row.replaced else entropies[-1])
        metrics["hapo/entropy/all"] = float(torch.cat(everything).mean())
        metrics["hapo/policy/entropy"] = float(torch.cat(entropies).mean())
        if taught:
            tokens = torch.cat([old for _, old in taught])
            metrics["hapo/teacher/mean_prob"] = float(tokens.exp().mean())
            lengths = [len(it.teacher) if it.replaced else it.length for it in self.hapo_rows.values()]
            metrics["hapo/teacher/token_share"] = len(tokens) / max(sum(lengths), 1)
            if self._has_rollout_log_probs():
                # A teacher's row has no sampler: its recorded log-probabilities are those of the policy.
                fields = [{"rollout_log_probs": old} for _, old in taught]
                put(batch, [key for key, _ in taught], list_of_dict_to_tensordict(fields))
        return batch

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_advantage(batch, metrics)
        names = ["response_mask", "rollout_is_weights"]
        if self.use_reference_policy:
            names += ["old_log_probs", "ref_log_prob"]
        found = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
        if self.use_reference_policy:
            metrics["hapo/policy/kl_to_initial"] = kl_to_initial(*(found[it].unbind() for it in (*names[2:], names[0])))
        worth = []
        for key, mask in zip(batch.keys, found["response_mask"].unbind(), strict=True):
            row = self.hapo_rows.get(key)
            worth.append(mask.float() * (row.advantage if row is not None else 0.0))
        advantages = torch.nested.as_nested_tensor(worth, layout=torch.jagged)
        fields = TensorDict({"advantages": advantages, "returns": advantages.clone()}, batch_size=[len(worth)])
        put(batch, batch.keys, fields)
        replaced = [it for it in self.hapo_rows.values() if it.replaced]
        if replaced and "rollout_is_weights" in found:
            ones = [{"rollout_is_weights": torch.ones(len(it.teacher))} for it in replaced]
            put(batch, [it.key for it in replaced], list_of_dict_to_tensordict(ones))
        return batch

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        operator = self.decision.operator if self.decision is not None else None
        batch.extra_info.update({"hapo_operator": operator or "", "hapo_d": self.hapo_method.d})
        if one_update(self.config):
            # verl divides by all rows; a masked one counts in no normaliser.
            batch.extra_info["hapo_sequences"] = sum(not it.masked for it in self.hapo_rows.values())
        return super()._update_actor(batch, metrics)

    def _compute_metrics(self, batch: Any, metrics: Any, timing_raw: Any, global_steps: int, epoch: int) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps, epoch)
        if self.writer is not None:
            self.writer.log(global_steps, metrics)


def kl_to_initial(old: Any, initial: Any, masks: Any) -> float:
    """The k3 estimate of the KL to the initial policy over the policy's tokens, as `metrics.kl_every` has it."""
    rows = zip(initial, old, masks, strict=True)
    tokens = torch.cat([(theirs.double() - ours.double())[mask.bool()] for theirs, ours, mask in rows])
    return float((tokens.exp() - tokens - 1).mean())


def put(batch: Any, keys: list[str], fields: Any, tags: dict[str, Any] | None = None) -> None:
    """Overwrites fields of rows in the queue."""
    known = None if tags is None else [tags[key] for key in keys]
    tq.kv_batch_put(keys=keys, partition_id=batch.partition_id, fields=fields, tags=known)


def check_verl() -> int:
    """Whether the methods that are overridden look as they did; how many there are."""
    for name, parameters in OVERRIDDEN.items():
        method = getattr(PPOTrainerSync, name, None) or getattr(PPOTrainer, name, None)
        found = None if method is None else list(inspect.signature(inspect.unwrap(method)).parameters)
        if found != parameters:
            raise RuntimeError(f"verl: PPOTrainer.{name} takes {found}, expected {parameters}")
    taken = list(inspect.signature(inspect.unwrap(ActorRolloutRefWorker.set_loss_fn)).parameters)
    if taken != ["self", "loss_fn"]:
        raise RuntimeError(f"verl: ActorRolloutRefWorker.set_loss_fn takes {taken}, expected self, loss_fn")
    return len(OVERRIDDEN) + 1
