"""The command `lossproof`."""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import sys
import time
import traceback
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import lossproof
from lossproof import cases as data
from lossproof import page
from lossproof.run import Declared, adapter, cuts_of, run, worst


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="lossproof", description=(lossproof.__doc__ or "").partition("\n")[0])
    parser.add_argument("--version", action="version", version=f"lossproof {lossproof.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    it = commands.add_parser("run", help="run an adapter over the cases and print a verdict for each")
    source = it.add_mutually_exclusive_group(required=True)
    source.add_argument("--adapter", help="module:function, or the name of a shipped adapter")
    source.add_argument("--answers", type=Path, help="answers that an engine wrote as JSON lines")
    it.add_argument("--through-trainer", action="store_true", help="run one real optimiser step of the trainer instead")
    it.add_argument("--engine", help="whose answers they are")
    it.add_argument("--engine-version", default="", help="its version")
    it.add_argument("--about", default="", help="how the answers were made")
    it.add_argument("--case", action="append", default=[], metavar="PREFIX", help="only cases whose id begins so")
    it.add_argument("--traceback", action="store_true", help="print the traceback of every error of the adapter")
    it.add_argument("--json", type=Path, metavar="FILE", help="write the records to a file")
    it.set_defaults(run=run_command)
    it = commands.add_parser("show", help="print a case: its law, hyperparameters, inputs, cuts and numbers")
    it.add_argument("case")
    it.set_defaults(run=show_command)
    it = commands.add_parser("diff", help="print what changed between two files of records")
    it.add_argument("old", type=Path)
    it.add_argument("new", type=Path)
    it.set_defaults(run=diff_command)
    it = commands.add_parser("list", help="print all cases with their numbers")
    it.set_defaults(run=list_command)
    it = commands.add_parser("page", help="write the page of results from the records in a folder")
    it.add_argument("results", type=Path)
    it.add_argument("--out", type=Path, required=True)
    it.set_defaults(run=page_command)
    options = parser.parse_args(arguments)
    try:
        code: int = options.run(options)
    except (KeyError, OSError, ImportError, AttributeError, ValueError) as error:
        print(f"lossproof: {error.args[0] if isinstance(error, KeyError) else error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 0
    return code


def run_command(options: argparse.Namespace) -> int:
    chosen = [it for it in data.load_all() if not options.case or any(it["id"].startswith(p) for p in options.case)]
    if not chosen:
        raise KeyError(f"no case begins with {', '.join(options.case)}")
    begun = time.process_time()
    module: Any = None
    if options.answers:
        step, declared = from_answers(options.answers)
    else:
        module, step = adapter(options.adapter)
        declared = Declared.of(module)
    tier = "function"
    if options.through_trainer:
        tier, step = "trainer", step if options.answers else through_trainer(module)
        chosen = [it for it in chosen if it["kind"] == "loss"]
        declared = replace(declared, covers=())  # They are of the function.
    asked = [it for it in chosen if "planted" not in it]
    records = run(step, asked, declared, print_error if options.traceback else None)
    expected = {record["id"] for record in records if declared.known_failure(record["id"])}
    for record in records:
        print(line(record, expected))
    summary = {word: sum(record["verdict"] == word for record in records) for word in page.ORDER}
    silent = sum(without_loss(record, case) for record, case in zip(records, asked, strict=True))
    counts = [f"{count} {word}" for word, count in summary.items() if count]
    print(", ".join(counts) + (f"; {silent} without the loss that the case has" if silent else ""))
    if any(record["errors"] for record in records) and not options.traceback:
        print("--traceback prints where the adapter's errors come from", file=sys.stderr)
    if options.json:
        about = header(module, tier)
        if options.answers:
            about |= {"engine": options.engine or "", "engine_version": options.engine_version, "about": options.about}
        about["engine"] = getattr(step, "row", about["engine"])
        about["cpu_seconds"] = round(time.process_time() - begun, 2)
        write(options.json, about, records)
    bad = [record for record in records if not record["passed"] and record["id"] not in expected]
    return 1 if bad else 0


def without_loss(record: dict[str, Any], case: data.Case) -> bool:
    """Whether the case expects a loss and some answer to it gave none."""
    expected = case["kind"] == "loss" and case.get("expect", {}).get("loss") is not None
    return expected and any(it["loss_error"] is None for it in record["cuts"].values())


def through_trainer(module: Any) -> Any:
    step = getattr(module, "train_step", None)
    if step is None:
        raise AttributeError("the adapter has no function `train_step`, which --through-trainer calls")
    return step


def print_error(case: data.Case, cut: data.Cut, error: Exception) -> None:
    """The traceback of an adapter's error."""
    print(f"{case['id']} [{cut['name']}]", file=sys.stderr)
    traceback.print_exception(error)


def line(record: dict[str, Any], expected: set[str]) -> str:
    """One row of the output."""
    found = worst(record)
    numbers = ""
    if found and record["verdict"] not in ("exact", "n/a"):
        name, it = found
        loss = it["loss_error"]
        numbers = f"  r {short(it['r'])}  s {short(it['s'])}{'' if loss is None else f'  loss {short(loss)}'}  [{name}]"
    mark = "ok  " if record["passed"] else ("known" if record["id"] in expected else "FAIL")
    because = f"  ({record['because']})" if record["because"] else ""
    return f"{mark:5} {record['id']:42} {record['verdict']}{numbers}{because}"


def short(it: Any) -> str:
    return it if isinstance(it, str) else f"{it:.3g}"


def header(module: Any, tier: str) -> dict[str, Any]:
    """What a result is of."""
    return {
        "suite": lossproof.__version__,
        "engine": getattr(module, "engine", ""),
        "engine_version": module.engine_version() if hasattr(module, "engine_version") else "",
        "adapter_version": getattr(module, "adapter_version", ""),
        "tier": tier,
        "about": getattr(module, "about", ""),
        "licence": getattr(module, "licence", ""),
        "covers": list(getattr(module, "covers", [])),
        "definitions": dict(getattr(module, "definitions", {})),
        "python": platform.python_version(),
        "torch": torch_version(),
        "date": date.today().isoformat(),
        "command": command(),
    }


def command() -> str:
    """The command line without folders and without the file of records."""
    words = [Path(word).name if word.startswith("/") else word for word in sys.argv[1:]]
    if "--json" in words:
        at = words.index("--json")
        del words[at : at + 2]
    return shlex.join(["lossproof", *words])


def torch_version() -> str:
    torch = sys.modules.get("torch")
    return str(torch.__version__) if torch else ""


def write(path: Path, about: dict[str, Any], records: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = ",\n".join("  " + json.dumps(record, ensure_ascii=False) for record in records)
    lines = json.dumps(about, indent=1, ensure_ascii=False)[:-2]
    path.write_text(f'{lines},\n "records": [\n{rows}\n ]\n}}\n')


def from_answers(path: Path) -> tuple[Any, Declared]:
    """A step that looks its answers up. A line is {"id", "cut", "call", …} with what a step returns, "refused" or "n/a".
    The first line may hold the declarations of an adapter's module instead: `definitions`, `covers` and the like."""
    answers: dict[tuple[str, str, int], dict[str, Any]] = {}
    declared = Declared()
    for number, text in enumerate(path.read_text().splitlines(), 1):
        try:
            row = json.loads(text)
            if number == 1 and "id" not in row and row.keys() & {"definitions", "covers", "expected_failures"}:
                declared = Declared.read(row)
                continue
            answers[row["id"], row["cut"], row.get("call", 0)] = row
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}:{number}: expected an object with id and cut: {error!r}") from None
    asked: dict[tuple[str, str], int] = {}

    def step(case: dict[str, Any], cut: dict[str, Any] | None) -> dict[str, Any]:
        # A law's two calls come one after the other, the first of them perhaps uncut.
        key = (case["id"], step_cut(case, cut))
        call = asked.get(key, 0)
        asked[key] = call + 1
        row = answers.get((*key, call))
        if row is None:
            raise data.NotApplicable("no answer")
        if "refused" in row:
            raise data.Refused(row["refused"])
        if "n/a" in row:
            raise data.NotApplicable(row["n/a"])
        return row

    waiting: dict[str, list[str]] = {}

    def step_cut(case: dict[str, Any], cut: dict[str, Any] | None) -> str:
        if "pair" not in case:
            return cut["name"] if cut else "-"
        names = waiting.setdefault(case["id"], [name["name"] for name in cuts_of(case) for _ in range(2)])
        return names.pop(0)

    return step, declared


def show_command(options: argparse.Namespace) -> int:
    case = data.load(options.case)
    print(f"{case['id']}  (number {case['number']}, {case['kind']}, spec {case['spec']})\n\n{case['law']}\n")
    print("hyper      " + ", ".join(f"{key} = {value}" for key, value in sorted(case["hyper"].items())))
    print(f"batch      {case['batch_name']}")
    show_fields(case["batch"])
    for name, steps in case.get("cuts", {}).items():
        print(f"cut        {name:14} {steps}")
    for key in ("steps", "may_refuse", "sum_to_zero"):
        if key in case:
            print(f"{key:10} {case[key]}")
    show_answer(case.get("expect", {}))
    if "pair" in case:
        print(f"pair       the second call changes {case['pair']}")
    for name, variant in case.get("variants", {}).items():
        print(f"registered {name}: {variant['hyper'] or 'other numbers'}")
        show_answer({key: it for key, it in variant["expect"].items() if not key.startswith("grad")})
    return 0


def show_fields(batch: data.Case) -> None:
    """The inputs as they are, a line for each sequence where a sequence has several numbers."""
    for key, values in batch.items():
        if key in ("name", "about"):
            continue
        if isinstance(values, list) and any(isinstance(row, list) for row in values):
            for i, row in enumerate(values):
                print(f"  {key:12} {i:<3} {' '.join(map(str, row)) or '(no token)'}")
        else:
            print(f"  {key:12}     {values}")


def show_answer(expect: dict[str, Any]) -> None:
    for key in ("loss", "surrogate", "grad_l2", "refused", "advantage", "reward", "value"):
        if expect.get(key) is not None:
            print(f"{key:10} {expect[key]}")
    for key in ("grad", "grad_entropy"):
        for i, row in enumerate(expect.get(key, [])):
            numbers = " ".join(f"{x:+.6f}" if isinstance(x, float) else str(x) for x in row)
            print(f"{key} {i:<{10 - len(key)}} {numbers or '(no token)'}")


def list_command(_: argparse.Namespace) -> int:
    for case in sorted(data.load_all(), key=lambda it: (it["number"], it["id"])):
        print(f"{case['number']:2}  {case['id']:44} {case['law']}")
    return 0


def diff_command(options: argparse.Namespace) -> int:
    old, new = (json.loads(path.read_text()) for path in (options.old, options.new))
    before, after = ({it["id"]: it for it in records["records"]} for records in (old, new))
    changed = 0
    for name in sorted(before.keys() | after.keys()):
        first, second = before.get(name), after.get(name)
        if first and second and same(first, second):
            continue
        changed += 1
        print(f"{name:42} {word(first)} -> {word(second)}")
    print(f"{changed} of {len(before.keys() | after.keys())} cases differ")
    return 1 if changed else 0


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """The same verdict, and every r within a hundredth."""
    if (first["verdict"], first["because"]) != (second["verdict"], second["because"]):
        return False
    if first["verdict"] in ("exact", "equal"):
        return True
    pairs = ((first["cuts"].get(cut), it) for cut, it in second["cuts"].items())
    return all(a is not None and near(a["r"], b["r"]) for a, b in pairs)


def near(a: Any, b: Any) -> bool:
    return bool(a == b) if isinstance(a, str) or isinstance(b, str) else abs(a - b) <= 0.01 * max(abs(a), abs(b), 1e-9)


def word(record: dict[str, Any] | None) -> str:
    if record is None:
        return "absent"
    found = worst(record)
    numbers = f" (r {short(found[1]['r'])} at {found[0]})" if found else ""
    return f"{record['verdict']}{numbers}"


def page_command(options: argparse.Namespace) -> int:
    text = page.page(options.results)
    options.out.write_text(text)
    print(f"{options.out}: {len(text.splitlines())} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
