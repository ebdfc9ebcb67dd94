"""Reads back what `scripts/end-to-end/trackers` exported, and compares it with metrics.jsonl."""

import json
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

out = Path(sys.argv[1])
rows = [json.loads(line) for line in (out / "run" / "metrics.jsonl").read_text().splitlines()]
expected = {row["step"]: row["reward/policy_only"] for row in rows}


def check(name: str, found: dict[int, float]) -> None:
    assert found.keys() == expected.keys(), (name, sorted(found), sorted(expected))
    assert all(abs(found[step] - expected[step]) < 1e-6 for step in expected), name
    print(f"{name}: {len(found)} steps, reward/policy_only as logged")


from wandb.proto import wandb_internal_pb2


def records(data: bytes) -> Iterator[bytes]:
    """The records of a W&B file: LevelDB's log, blocks of 32 KiB after 7 bytes of its own."""
    at, record = 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield record
            record = b""


found, settings = {}, {}
(file,) = out.glob("wandb/offline-run-*/run-*.wandb")
for data in records(file.read_bytes()):
    record = wandb_internal_pb2.Record()
    record.ParseFromString(data)
    if record.WhichOneof("record_type") == "history":
        items = {it.key or it.nested_key[0]: json.loads(it.value_json) for it in record.history.item}
        found[record.history.step.num] = items["reward/policy_only"]
    for it in record.run.config.update:
        settings[it.key] = it.value_json
check("wandb", found)
assert settings["sampling.group_size"], sorted(settings)

(file,) = (it for it in (out / "trackio").glob("*.db"))
table = sqlite3.connect(file).execute("select step, metrics from metrics")
check("trackio", {step: json.loads(metrics)["reward/policy_only"] for step, metrics in table})

from mlflow.tracking import MlflowClient

client = MlflowClient()
(run,) = client.search_runs([client.get_experiment_by_name("smoke").experiment_id])
history = client.get_metric_history(run.info.run_id, "reward/policy_only")
check("mlflow", {it.step: it.value for it in history})
assert run.data.params["sampling.group_size"]

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(str(out / "run"), size_guidance={"tensors": 0, "scalars": 0})
events.Reload()
check("tensorboard", {it.step: it.value for it in events.Scalars("reward/policy_only")})
texts = events.Tensors("rollout")
print("tensorboard texts:", len(texts), texts[0].tensor_proto.string_val[0][:60])
hparams = events.SummaryMetadata("_hparams_/session_start_info").plugin_data
from tensorboard.plugins.hparams.metadata import parse_session_start_info_plugin_data

session = parse_session_start_info_plugin_data(hparams.content)
assert session.hparams["sampling.group_size"].number_value > 0
print("tensorboard hparams:", len(session.hparams), "keys")
