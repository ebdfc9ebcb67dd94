#!/usr/bin/env python3
"""Runs other packages' tests of Math-Verify on the drop-in `hapo_verify.math_verify`, the import changed.

Math-Verify's own come from PyPI, into target/suites, which git ignores. `--trl CHECKOUT` also runs the tests of the
accuracy rewards of a checkout of TRL, where TRL is installed; `--verl` holds verl's scorer against itself on both
libraries, over the texts of Math-Verify's tests. Needs hapo_verify, pytest, latex2sympy2_extended and
antlr4-python3-runtime==4.13.2;
`--verl` also math-verify. Prints each test that fails and the share that passes; the exit code is 1 below 97 %.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

import hapo_verify.math_verify

SUITES = Path(__file__).resolve().parent.parent / "target/suites"
SUBMODULES = ("errors", "grader", "metric", "parser")


class Count:
    """Counts the tests, and names those that fail."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)
        elif report.when == "call":
            self.passed += 1


def fetched(requirement: str, *options: str) -> Path:
    """A distribution from PyPI, without what it depends on."""
    folder = SUITES / requirement
    if not folder.is_dir():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *options, "--dest", str(folder)]
        subprocess.run([*command, requirement], check=True)
        (archive,) = folder.iterdir()
        if archive.suffix == ".whl":
            zipfile.ZipFile(archive).extractall(folder)
        else:
            with tarfile.open(archive) as sources:
                sources.extractall(folder, filter="data")
    return folder


def share(name: str, passed: int, failed: list[str]) -> float:
    percent = 100 * passed / max(passed + len(failed), 1)
    print("\n".join([f"{name}: {passed} of {passed + len(failed)} = {percent:.1f} %", *failed]))
    return percent


def tests(name: str, root: Path, *selected: str) -> float:
    count = Count()
    sys.path.insert(0, str(root))
    pytest.main(["-q", "--tb=no", "--no-header", "-p", "no:cacheprovider", "--rootdir", str(root), *selected], [count])
    return share(name, count.passed, count.failed)


def scorer(source: str, package: str) -> ModuleType:
    """verl's scorer with its import changed; it is called in this process, not in one of its own."""
    module = ModuleType(f"scorer_of_{package.replace('.', '_')}")
    exec(re.sub(r"from math_verify\.", f"from {package}.", source), module.__dict__)
    return module


def verl(texts: list[tuple[str, str]]) -> float:
    source = (fetched("verl==0.9.1") / "verl/utils/reward_score/math_verify.py").read_text()
    theirs, ours = scorer(source, "math_verify"), scorer(source, "hapo_verify.math_verify")
    differing = []
    for gold, answer in texts:
        scores = [it._verify_in_subprocess(f"\\boxed{{{gold}}}", answer) for it in (theirs, ours)]
        if scores[0] != scores[1]:
            differing.append(f"{gold[:80]!r}, {answer[:80]!r}: Math-Verify {scores[0]}, here {scores[1]}")
    return share("verl's scorer", len(texts) - len(differing), differing)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trl", type=Path, help="a checkout of TRL")
    parser.add_argument("--verl", action="store_true", help="compare verl's scorer on both libraries")
    args = parser.parse_args()
    folder = fetched("math-verify==0.9.0", "--no-binary", ":all:") / "math_verify-0.9.0"
    shares = []
    if args.verl:
        quoted = re.findall(
            r'\(\s*r?"(.+?)",\s*r?"(.+?)",', "".join(it.read_text() for it in folder.glob("tests/*.py"))
        )
        shares.append(verl([(gold.strip("$"), answer) for gold, answer in quoted]))
    drop_in = hapo_verify.math_verify
    names = ["math_verify", *(f"math_verify.{it}" for it in SUBMODULES)]
    sys.modules.update(zip(names, [drop_in, *(getattr(drop_in, it) for it in SUBMODULES)], strict=True))
    shares.append(tests("Math-Verify's tests", folder, str(folder / "tests")))
    if args.trl:
        for name in [it for it in sys.modules if it == "tests" or it.startswith("tests.")]:
            del sys.modules[name]
        selected = ["-k", "Accuracy or Cosine", str(args.trl / "tests/test_rewards.py")]
        shares.append(tests("TRL's tests of accuracy rewards", args.trl, *selected))
    return int(min(shares) < 97)


if __name__ == "__main__":
    sys.exit(main())
