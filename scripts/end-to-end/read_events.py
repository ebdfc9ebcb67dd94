"""Reads a run's event files with TensorBoard's own reader and compares every scalar with metrics.jsonl.

    pip install tensorboard
    python scripts/end-to-end/read_events.py RUN_DIR
"""
import json
import math
import pathlib
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

run = pathlib.Path(sys.argv[1])
reader = EventAccumulator(str(run), size_guidance={"scalars": 0})
reader.Reload()
compared = 0
lines = [json.loads(line) for line in (run / "metrics.jsonl").open()]
for name in reader.Tags()["scalars"]:
    read = {it.step: it.value for it in reader.Scalars(name)}
    logged = {it["step"]: it[name] for it in lines if it.get(name) is not None}
    assert set(logged) <= set(read), f"{name}: steps {set(logged) - set(read)} are missing"
    for step, value in logged.items():
        assert math.isclose(read[step], value, rel_tol=1e-6, abs_tol=1e-30), f"{name} at step {step}"
        compared += 1
print(f"{compared} scalars of {len(lines)} steps agree")
