"""The page of scripts/gpu/first_contact: what came beside what was predicted. page.py WORK OUT

Reads the logs in WORK; writes page.md and summary.json into OUT, and adds what must hold and does not to failures.txt.
"""

import json
import math
import os
import pathlib
import sys
from typing import Any

import expected

WORK, OUT = (pathlib.Path(it) for it in sys.argv[1:3])
DRY = bool(os.environ.get("DRY"))
SHAPES = {f"qwen2.5-{it.name.lower()}": it for it in expected.SHAPES}
rows: list[tuple[str, str, str]] = []
failed: list[str] = []


opened = WORK / "open.err"
if opened.exists() and "H100" in opened.read_text():
    # Bytes take 1.35 times as long there.
    expected.MEMORY, expected.PEAK_MEMORY = 3.0e12, 3.35e12


def lines(name: str) -> list[dict[str, Any]]:
    """JSON objects of a log, one a line."""
    path = WORK / name
    text = path.read_text().splitlines() if path.exists() else []
    return [json.loads(it) for it in text if it.startswith("{") and it.endswith("}")]


def whole(name: str) -> Any:
    """A log that is one JSON text, if it is there."""
    path = WORK / name
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def row(what: str, predicted: str, measured: str, holds: bool = True) -> None:
    rows.append((what, predicted, measured))
    if not holds:
        failed.append(f"{what}: {measured}, to be {predicted}")


def off(ours: str, theirs: str) -> float:
    """The largest difference of two logs of log-probabilities; infinite where one has none."""
    a, b = ([x for it in lines(name) for x in it["logprobs"]] for name in (ours, theirs))
    return max((abs(x - y) for x, y in zip(a, b, strict=True)), default=math.inf) if len(a) == len(b) else math.inf


def starts() -> None:
    """Parts of starts, refused products, what the GPU's own clock says of queues, and racecheck."""
    for path in sorted(WORK.glob("*.err")):
        for line in path.read_text().splitlines():
            if line.startswith("start  "):
                row(f"{path.stem}: start", START.get(path.stem, ""), line.removeprefix("start  "))
            if "cuBLASLt refused" in line:
                row(f"{path.stem}: refused products", "0 of 0 kinds", line.split("algorithm of ")[-1])
            if " queues of " in line:
                row(f"{path.stem}", "GPU's time is host's or less; operations .9 of it", line)
    for name in ["copies", "sums"]:
        path = WORK / f"planted-{name}.log"
        if path.exists():
            said = [line for line in path.read_text().splitlines() if "RACECHECK SUMMARY" in line or "ended" in line]
            row(f"racecheck, a barrier left out: {name}", "a hazard", "; ".join(said)[-120:])


# Seconds of weights, of their hash and of the rest, by arithmetic (H200 and H100 alike: the host's work).
START = {
    "train-step": "weights 4 s, hash of the weights 0, rows 0.1, moments 0.2",
    "train-lora": "weights 6 s (7B), hash of the weights 0.1, rows 0.1",
    "train-wide": "weights 1 s",
}


def works() -> None:
    if not (WORK / "cpu.log").exists():
        invariant()
        return
    for compute, most in [("open", 1e-3), ("tf32", 1e-2), ("bf16", 0.1)]:
        found = off(f"{compute}.log", "cpu.log")
        row(f"log-probabilities, {compute} from the CPU's", f"< {most}", f"{found:.1e}", found < most)
    invariant()


def invariant() -> None:
    table = lines("invariance.log")
    for is_whole, predicted in [(True, "0"), (False, "some")]:
        of = [it for it in table if it["whole"] == is_whole]
        unequal, n = sum(len(it["unequal"]) for it in of), sum(it["counts"] for it in of)
        holds = not DRY or (n > 0 and (unequal == 0) == is_whole)
        name = "in one piece" if is_whole else "as cuBLASLt likes"
        row(f"row counts that change a product's row, summed {name}", predicted, f"{unequal} of {n}", holds)
    for it in table:
        if it["whole"] and (it["unequal"] or it["refused"]):
            found = f"{it['refused']} refused, unequal at {it['unequal'][:12]}"
            row(f"{it['inputs']} x {it['outputs']}, in one piece", "0 refused, none unequal", found)


def speed() -> None:
    for log in ["bench.log", "bench-small.log", "bench-large.log", "bench-again.log", "bench-free.log"]:
        how = ", products free" if log == "bench-free.log" else ""
        report = whole(log)
        for it in report["results"] if report else []:
            shape = SHAPES.get(report["shape"])
            predicted, case = "", it["case"]
            if shape and it["part"] == "decoding" and "drawn" in case:
                parts = expected.decoding(shape, int(case.split()[0]), 1024)[0]
                predicted = f"{1e3 * sum(part[1] for part in parts):.1f} ms"
            elif shape and case.startswith("8 x 1024 tokens") and "prompt" not in case:
                forwards = 2 if case.endswith("one layer kept") else 1
                seconds = sum(part[1] for part in expected.training(shape, 8, 1024, forwards)[0])
                predicted = f"{1e3 * (seconds + expected.update(shape)):.0f} ms"
            row(f"{report['shape']}, {it['part']}, {case}{how}", predicted, f"{1e3 * it['seconds']:.2f} ms")
    for name in ["torch-train", "torch-generate", "torch-batch", "torch-static", "ceilings"]:
        for it in lines(f"{name}.log"):
            row(name, "", json.dumps({k: round(v, 2) if isinstance(v, float) else v for k, v in it.items()}))


def trains() -> None:
    if (WORK / "parity.log").exists():
        torch = {it["kind"]: it["logprobs"] for it in lines("torch-parity.log")}
        ours = [x for it in lines("parity.log") for x in it["logprobs"]]
        exact = torch.get("float32", [])
        for name, found in [("PyTorch", torch.get("bfloat16", [])), ("ours", ours)]:
            gap = max((abs(x - y) for x, y in zip(found, exact, strict=False)), default=math.inf)
            row(f"log-probabilities in bf16 from PyTorch's f32, {name}", "ours no further", f"{gap:.1e}")
    plans = whole("plan.log")
    planned = f"{plans[0]['total_bytes'] / 1e9:.1f} GB" if plans else ""
    for name in ["step", "lora", "mini", "stress", "wide"]:
        path = OUT / f"metrics-{name}.jsonl"
        steps = [json.loads(it) for it in path.read_text().splitlines()] if path.exists() else []
        if not steps:
            continue
        last = steps[-1]
        gaps = [it.get("sampler/logprob_gap_max", math.nan) for it in steps]
        if name != "mini":
            row(f"{name}: sampler/logprob_gap_max", "0", f"{max(gaps):.1e}", not DRY or max(gaps) == 0)
        peak = max(it.get("memory/gpu_peak", math.nan) for it in steps)
        row(f"{name}: memory/gpu_peak", planned if name == "step" else "", f"{peak / 1e9:.3f} GB", peak > 0)
        times = {it: round(last[f"time/{it}"], 2) for it in ("sample", "train", "step")}
        row(f"{name}: seconds of the last step", "", json.dumps(times))
        row(f"{name}: reward/mean, first and last", "", f"{steps[0]['reward/mean']:.3f}, {last['reward/mean']:.3f}")


works()
speed()
trains()
starts()
steps = [it.split("\t") for it in (WORK / "steps.tsv").read_text().splitlines()]
page = ["| what | predicted | measured |", "|---|---|---|", *(f"| {' | '.join(it)} |" for it in rows)]
good = sum(it[1] == "0" for it in steps)
page += ["", f"{good} of {len(steps)} steps ended well; {len(failed)} numbers are not what they must be"]
(OUT / "page.md").write_text("\n".join(page) + "\n")
summary = {"steps": [dict(zip(("name", "status", "seconds"), it, strict=True)) for it in steps], "rows": rows}
(OUT / "summary.json").write_text(json.dumps(summary, indent=1))
if failed:
    with (OUT / "failures.txt").open("a") as to:
        to.write("\n".join(["== numbers", *failed]) + "\n")
print("\n".join(page))
