#!/usr/bin/env python3
"""Every system call on a run's files fails once; afterwards the bits are the unbroken run's. Power cuts, too.

    scripts/torture/faults/sweep.py target/release/hapo               # every call, every fault: hours
    scripts/torture/faults/sweep.py target/debug/hapo --every 20 --images 60     # every 20th call, one fault each
    scripts/torture/faults/sweep.py target/release/hapo --parts staged --faults flipped dropped

What is tried depends on the numbers alone, not on the machine. A run that fails must name a file, end with 1 or 2,
and be resumed to the same weights, moments, state, rollouts and
metrics. A command that fails must leave its output as it was; one that ends with 0 must have written the whole of it.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
EIO, ENOSPC, EMFILE, EINTR, EAGAIN = 5, 28, 24, 4, 11
FILES = (
    "open",
    "read",
    "stat",
    "list",
    "write",
    "flush",
    "rename",
    "mkdir",
    "unlink",
    "rmdir",
    "truncate",
    "create",
    "resize",
)
WRITES = ("write", "flush", "rename", "mkdir", "unlink", "rmdir", "truncate", "create", "resize")
FAULTS = {
    "EIO": (EIO, None),
    "lasting EIO": (f"lasting:{EIO}", WRITES),
    "ENOSPC": (ENOSPC, WRITES),
    "EAGAIN": (EAGAIN, ("thread",)),
    "EMFILE": (EMFILE, ("open", "truncate", "create", "list")),
    "EINTR": (EINTR, ("read", "write", "open")),
    "short": ("short", ("read", "write")),
    "kill": ("kill", WRITES),
    "dropped": ("drop", ("write",)),
    "flipped": ("flip", ("write", "read")),
}
INIT = "{ hidden = 32, layers = 2, heads = 2, kv_heads = 2, ffn = 64 }"
TINY = f"""
method = "trapo"
steps = 6
model.init = {INIT}
[data]
train = "builtin"
prompts = 16
teacher_coverage = 0.5
levels = ["multiply:6", "add:5", "linear:4"]
max_prompt_tokens = 32
[sampling]
group_size = 4
prompts_per_step = 4
max_new_tokens = 96
[optim]
lr = 1e-3
mini_batch_prompts = 2
[hapo]
turn_off_epoch = 1.5
[checkpoint]
every = 2
"""
RICH = (
    TINY.replace("every = 2", "every = 1\nkeep = 1")
    + '[eval]\nsuite = "mini6"\nevery = 1\nproblems = 1\nk = 1\nmax_tokens = 16\n'
)
STAGED = (
    RICH.replace("steps = 6\n", "").replace(f"model.init = {INIT}\n", "")
    + f'[[stage]]\nname = "a"\nsteps = 3\nmodel.init = {INIT}\n'
    + '[[stage]]\nname = "b"\nsteps = 3\nmodel.path = "stage:a"\n'
)


Call = tuple[str, str, str, int, bytes]


class Sweep:
    """One of several that share the faults between them, each in a folder of its own."""

    def __init__(self, asked: argparse.Namespace, work: Path, share: int) -> None:
        self.hapo, self.work, self.asked, self.share = str(Path(asked.hapo).resolve()), work, asked, share
        self.library, self.log = work / "faults.so", work / "log"
        subprocess.run(
            ["cc", "-O1", "-shared", "-fPIC", "-o", self.library, HERE / "faults.c", "-ldl", "-lpthread"], check=True
        )
        self.counts: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []

    def call(self, arguments: list[str], root: Path, **fault: object) -> subprocess.CompletedProcess[str]:
        names = {f"FAULT_{name.upper()}": str(value) for name, value in fault.items() if value is not None}
        preload = {"LD_PRELOAD": str(self.library), "FAULT_ROOT": str(root)} if fault else {}
        return subprocess.run(
            [self.hapo, *arguments],
            env={"PATH": os.environ["PATH"], "HOME": str(self.work), **preload, **names},
            cwd=self.work,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def record(self, arguments: list[str], root: Path) -> list[Call]:
        """The calls of an unbroken command: kind, path, new path, place, bytes."""
        self.log.unlink(missing_ok=True)
        done = self.call(arguments, root, log=self.log)
        assert done.returncode == 0, done.stderr
        return self.logged()[0]

    def logged(self) -> tuple[list[Call], int | None]:
        """The calls of the log, and which one was damaged."""
        text, at, hit = self.log.read_bytes(), 0, None
        calls: list[Call] = []
        while at < len(text):
            end = text.index(b"\n", at)
            kind, path, other, place, size, result = text[at:end].decode().split("\t")
            hit = len(calls) if int(result) else hit
            calls.append((kind, path, other, int(place), text[end + 1 : end + 1 + int(size)]))
            at = end + 1 + int(size)
        return calls, hit

    def bad(self, what: str, done: subprocess.CompletedProcess[str]) -> None:
        self.wrong.append(f"{what}: exit {done.returncode}: {done.stderr.strip()[-300:]}")
        print("WRONG", self.wrong[-1], flush=True)

    def each(self, calls: list[Call], but: tuple[str, ...] = ()) -> list[tuple[str, object, int, str]]:
        """The faults to try: at each call all that it can have, or at every so many calls one, in turn."""
        every, chosen = self.asked.every, []
        for index in range(every // 2, len(calls), every):
            kind = calls[index][0]
            all_of = [it for it, (_, only) in FAULTS.items() if kind in (only or FILES)]
            names = [it for it in all_of if it in self.asked.faults and it not in but]
            if every > 1 and names:
                names = [names[index // every % len(names)]]
            chosen += [(name, FAULTS[name][0], index + 1, kind) for name in names]
        return chosen[self.share :: self.asked.jobs]

    def runs(self, name: str, recipe: str, threads: int = 1) -> None:
        """Each fault in a run, which is then resumed."""
        (self.work / f"{name}.toml").write_text(recipe)
        root = self.work / "R"
        train = [
            "train",
            f"{name}.toml",
            "--run-dir",
            str(root),
            "--threads",
            str(threads),
            "--quiet",
            "--no-preflight",
        ]
        shutil.rmtree(root, ignore_errors=True)
        calls = self.record(train, root)
        wanted = state_of(root)
        for fault, how, at, kind in self.each(calls):
            shutil.rmtree(root, ignore_errors=True)
            # Threads race: there the call is chosen by its kind and file.
            number = {"at": at}
            if threads > 1:
                file = Path(calls[at - 1][1]).name
                number = {"at": 1, "call": kind, "file": re.sub(r"^\.hapo-\d+", "", file)}
            self.log.unlink(missing_ok=True)
            damages = fault in ("dropped", "flipped")
            done = self.call(train, root, how=how, log=self.log if damages else None, **number)
            what = f"{name}, {threads} threads, {fault} at {at} ({kind} {calls[at - 1][1]})"
            self.counts[f"{name}: {fault}"] += 1
            is_named = kind == "thread" or str(root) in done.stderr
            if done.returncode not in (0, 1, 2, -9) or (done.returncode in (1, 2) and not is_named):
                self.bad(what, done)
                continue
            again = done
            begun = root.exists() and any(root.rglob("recipe.toml"))
            if done.returncode != 0 or damages:
                again = self.call([*train, *(["--resume"] if begun else [])], root)
            if again.returncode == 2 and damages:
                continue  # refused by name: what a disk has lost or changed is not trained on
            changed = differences(state_of(root), wanted)
            if damages:
                # The one file that the disk damaged is found by who reads it.
                changed = [it for it in changed if root / it != last_name(*self.logged())]
            if again.returncode != 0 or changed:
                self.bad(f"{what}, then resumed: {', '.join(changed)[:200]}", again)

    def cuts(self, name: str, recipe: str, images: int) -> None:
        """The folder as a power cut leaves it, by five models of what survives; each is resumed."""
        (self.work / f"{name}.toml").write_text(recipe)
        root = self.work / "R"
        shutil.rmtree(root, ignore_errors=True)
        train = ["train", f"{name}.toml", "--run-dir", str(root), "--threads", "1", "--quiet", "--no-preflight"]
        calls = [it for it in self.record(train, root) if it[0] in WRITES]
        wanted, seen = state_of(root), set()
        places = [len(calls) * (i + 1) // (images // 5 + 1) for i in range(images // 5)]
        for place in places[self.share :: self.asked.jobs]:
            for model in ("all", "flushed", "names", "zeros", "every other"):
                files, folders = survivors(calls[:place], model)
                key = hashlib.sha256(repr((sorted(files.items()), sorted(folders))).encode()).digest()
                if key in seen:
                    continue
                seen.add(key)
                shutil.rmtree(root, ignore_errors=True)
                for folder in sorted(folders):
                    Path(folder).mkdir(parents=True, exist_ok=True)
                for path, text in files.items():
                    Path(path).parent.mkdir(parents=True, exist_ok=True)
                    Path(path).write_bytes(text)
                begun = root.exists() and any(root.rglob("recipe.toml"))
                done = self.call([*train, *(["--resume"] if begun else [])], root)
                self.counts[f"{name}: power cut"] += 1
                if done.returncode != 0 or state_of(root) != wanted:
                    what = f"{name}, cut at {place} of {len(calls)}, {model}"
                    self.bad(f"{what}: {', '.join(differences(state_of(root), wanted))[:200]}", done)

    def commands(self) -> None:
        """Each fault in each command that writes: its output is the old one or the whole new one."""
        root = self.work / "W"
        shutil.rmtree(self.work / "R", ignore_errors=True)
        run = self.work / "R"
        (self.work / "tiny.toml").write_text(TINY)
        train = self.call(["train", "tiny.toml", "--run-dir", str(run), "--quiet", "--no-preflight"], root)
        assert train.returncode == 0, train.stderr
        root.mkdir()
        rows = self.work / "rows.jsonl"
        assert self.call(["data", "make", "tiny.toml", "-o", str(rows)], root).returncode == 0
        model = str(run / "checkpoints/step-000006")
        for name, arguments, output in [
            ("report", ["report", str(run), "-o", "W/page.html"], "page.html"),
            ("figures", ["report", str(run), "-o", "W/page.html", "--figures", "W/figures"], "page.html"),
            ("export", ["export", str(run), "-o", "W/table.csv"], "table.csv"),
            ("data make", ["data", "make", "tiny.toml", "-o", "W/made.jsonl"], "made.jsonl"),
            ("data convert", ["data", "convert", str(rows), "--to", "trl", "-o", "W/rows.parquet"], "rows.parquet"),
            ("data check", ["data", "check", str(rows), "--drop-bad", "-o", "W/good.jsonl"], "good.jsonl"),
            ("merge", ["merge", "--model", model, "--dtype", "f32", "-o", "W/merged"], "merged"),
            ("generate", ["generate", "--model", model, "--input", str(rows), "--out", "W/out.jsonl",
                          "--max-tokens", "4", "--threads", "1"], "out.jsonl"),
        ]:  # fmt: skip
            place = root / output
            fresh(root)
            calls = self.record(arguments, root)
            whole = bytes_of(place)
            # What a disk changes behind a command's back is found by who reads the file.
            for fault, how, at, kind in self.each(calls, but=("dropped", "flipped")):
                fresh(root)
                done = self.call(arguments, root, how=how, at=at)
                self.counts[f"{name}: {fault}"] += 1
                what = f"{name}, {fault} at {at} ({kind} {calls[at - 1][1]})"
                named = kind == "thread" or "W/" in done.stderr or str(run) in done.stderr
                if done.returncode not in (0, 1, 2, -9) or (done.returncode in (1, 2) and not named):
                    self.bad(what, done)
                elif done.returncode == 0 and bytes_of(place) != whole:
                    self.bad(f"{what}: exit 0 and another output", done)
                elif output not in ("merged", "out.jsonl") and bytes_of(place) not in ({}, whole):
                    self.bad(f"{what}: a part of the output", done)


def fresh(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def bytes_of(place: Path) -> dict[str, bytes]:
    """The files at a place, without the clock in a report."""
    files = [place] if place.is_file() else [it for it in place.rglob("*") if it.is_file()]
    return {str(it.relative_to(place.parent)): it.read_bytes() for it in files}


def state_of(run: Path) -> dict[str, object]:
    """What a run comes to: checkpoints, rollouts, metrics without clocks, gate; stages each by itself."""
    clocks = re.compile(r"^(time/|tokens_per_second/|memory/|verify/ms)")
    found: dict[str, object] = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        if not path.is_file() or "tfevents" in name or name.endswith("run.lock"):
            continue
        if name.endswith(("metrics.jsonl", "start.json")):
            lines = path.read_text(errors="replace").splitlines() if name.endswith("l") else []
            found[name] = [without(clocks, it) for it in lines]
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def without(clocks: re.Pattern[str], line: str) -> object:
    """A line of metrics without its clocks; one that a fault has damaged as it is."""
    try:
        return {key: value for key, value in sorted(json.loads(line).items()) if not clocks.match(key)}
    except (ValueError, AttributeError):
        return line


def differences(found: dict[str, object], wanted: dict[str, object]) -> list[str]:
    """What differs; a checkpoint more is that of a run that failed, or one that could not be removed, by a warning."""
    extra = [it for it in sorted(found.keys() - wanted.keys()) if "checkpoints/" not in it]
    return extra + [it for it in sorted(wanted) if found.get(it) != wanted[it]]


def last_name(calls: list[Call], hit: int | None) -> Path | None:
    """The name that the file of a call has in the end."""
    if hit is None:
        return None
    path = calls[hit][1]
    for kind, old, new, _, _ in calls[hit:]:
        if kind == "rename" and (path == old or path.startswith(old + "/")):
            path = new + path[len(old) :]
    return Path(path)


def survivors(calls: list[Call], model: str) -> tuple[dict[str, bytes], set[str]]:
    """The files after a power cut behind these calls. `all`: everything was written. `flushed`: of a file what was
    flushed, of a folder the names that were there when it was flushed. `names`: all names, of a file what was flushed.
    `zeros`: the rest of a file as zeros. `every other`: of what was not flushed every second write."""
    content: dict[str, bytearray] = {}
    flushed: dict[str, bytes] = {}
    loose: dict[str, list[tuple[int, int]]] = collections.defaultdict(list)
    names: dict[str, bytes | None] = {}
    folders: set[str] = set()

    def held(path: str) -> bytes:
        if model in ("all", "every other"):
            kept = bytearray(content[path])
            for place, size in loose[path][1::2] if model == "every other" else []:
                kept[place : place + size] = bytes(size)
            return bytes(kept)
        kept = flushed.get(path, b"")
        return kept.ljust(len(content[path]), b"\0") if model == "zeros" else kept

    for kind, path, other, place, text in calls:
        if kind in ("truncate", "create"):
            if kind == "truncate" or path not in content:
                content[path], flushed[path] = bytearray(), b""
        elif kind == "write":
            loose[path].append((place, len(text)))
            content.setdefault(path, bytearray())
            content[path][place : place + len(text)] = text
        elif kind == "flush" and path in content:
            flushed[path], loose[path] = bytes(content[path]), []
        elif kind == "flush":
            inside = [it for it in content if str(Path(it).parent) == path]
            gone = [it for it in names if str(Path(it).parent) == path and it not in content]
            names |= {it: None for it in inside}
            for it in gone:
                del names[it]
        elif kind == "rename":
            moved = [it for it in content if it == path or it.startswith(path + "/")]
            for it in moved:
                new = other + it[len(path) :]
                content[new], flushed[new] = content.pop(it), flushed.pop(it, b"")
                loose[new] = loose.pop(it, [])
                if it in names and it != path:
                    names[new] = names.pop(it)
            folders = {other + it[len(path) :] if it == path or it.startswith(path + "/") else it for it in folders}
        elif kind in ("unlink", "rmdir"):
            content.pop(path, None)
            folders.discard(path)
        elif kind == "mkdir":
            folders.add(path)
        elif kind == "resize":
            content[path] = content[path][:place]
    if model == "flushed":
        return {it: flushed.get(it, b"") for it in content if it in names}, folders
    return {it: held(it) for it in content}, folders


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hapo")
    parser.add_argument("--every", type=int, default=1, help="every so many calls")
    parser.add_argument("--images", type=int, default=2000, help="power cuts")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time")
    asked = parser.parse_args()

    def share(number: int) -> Sweep:
        with tempfile.TemporaryDirectory(prefix="hapo-faults-") as work:
            sweep = Sweep(asked, Path(work).resolve(), number)
            for part in asked.parts:
                PARTS[part](sweep)
        return sweep

    with ThreadPoolExecutor(asked.jobs) as pool:
        sweeps = list(pool.map(share, range(asked.jobs)))
    counts = sum((it.counts for it in sweeps), collections.Counter[str]())
    for name, count in sorted(counts.items()):
        print(f"{count:6}  {name}")
    wrong = sum(len(it.wrong) for it in sweeps)
    print(f"{counts.total()} faults, {wrong} wrong")
    sys.exit(1 if wrong else 0)


PARTS = {
    "cuts": lambda it: it.cuts("tiny", TINY, it.asked.images),
    "tiny": lambda it: it.runs("tiny", TINY),
    "commands": Sweep.commands,
    "staged": lambda it: it.runs("staged", STAGED),
    "rich": lambda it: it.runs("rich", RICH, threads=2),
}


if __name__ == "__main__":
    main()
