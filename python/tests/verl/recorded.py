"""``hapo_sync`` that writes down what each update was computed from; started as ``trainer_mode=hapo_recorded``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import transfer_queue as tq
from verl.trainer.ppo.v1.trainer_base import register_trainer

from hapo.verl.loss import WEIGHT
from hapo.verl.trainer import HapoTrainer

FIELDS = [
    "responses", "response_mask", "loss_mask", "input_ids", "position_ids", "rm_scores", "advantages",
    "rollout_log_probs", "old_log_probs", "rollout_is_weights", WEIGHT,
]  # fmt: skip


@register_trainer("hapo_recorded")
class Recorded(HapoTrainer):
    """Writes rows and decisions into the folder HAPO_TEST_RECORD."""

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        found = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=FIELDS)
        columns = {name: [it.tolist() for it in found[name].unbind()] for name in FIELDS if name in found}
        rows = {}
        for place, (key, tag) in enumerate(zip(batch.keys, batch.tags, strict=True)):
            row = self.hapo_rows[key]
            rows[key] = {
                **{name: it[place] for name, it in columns.items()},
                "tag": {"response_len": tag["response_len"], "seq_len": tag["seq_len"]},
                "group": row.group, "session": row.session, "sampled": row.tokens, "truncated": row.truncated,
                "reward": row.graded, "teacher": row.teacher, "prompt": row.prompt,
            }  # fmt: skip
        folder = Path(os.environ["HAPO_TEST_RECORD"])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"step-{self.global_steps}.json").write_text(json.dumps(rows))
        return super()._update_actor(batch, metrics)
