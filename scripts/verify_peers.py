#!/usr/bin/env python3
"""Holds graders of mathematical answers against labelled pairs: agreement, false accepts and rejects, time.

Two corpora: the pairs of formulas in Math-Verify's own tests with their labels (from PyPI, see `verify_suite.py`), and
pairs that are made here, whose truth is known by construction. Needs hapo_verify, math-verify==0.9.0, pylatexenc and
pytest in the environment; verl's and lm-eval's files come from PyPI without what they depend on. Prints a table in
Markdown; arguments choose graders by a part of their names.
"""

from __future__ import annotations

import ast
import random
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from verify_suite import fetched

Pair = tuple[str, str, bool]
Grader = Callable[[str, str], bool]
FORMULA = re.compile(r"\$[^$]+\$\Z")
LIMIT = 20
"""Seconds that a pair may take; then it counts as refused."""


def tests_of_math_verify() -> list[Pair]:
    """The cases that have two formulas and a label."""
    folder = fetched("math-verify==0.9.0", "--no-binary", ":all:") / "math_verify-0.9.0"
    found = []
    for file in sorted(folder.glob("tests/*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if (
                isinstance(node, ast.Tuple)
                and len(node.elts) == 3
                and all(isinstance(it, ast.Constant) for it in node.elts)
            ):
                gold, answer, label = (it.value for it in node.elts if isinstance(it, ast.Constant))
                if (
                    isinstance(gold, str)
                    and isinstance(answer, str)
                    and label in (0, 1)
                    and FORMULA.match(gold)
                    and FORMULA.match(answer)
                ):
                    found.append((gold, answer, bool(label)))
    return found


def made(rng: random.Random) -> Iterator[Pair]:
    """Equal forms and near misses of answers of several kinds."""
    a, b, c = rng.sample(range(2, 40), 3)
    near = rng.choice([-1, 1])
    for right in (True, False):
        d = 0 if right else near
        yield rf"\frac{{{a}}}{{{b}}}", rf"\dfrac{{{3 * a + d}}}{{{3 * b}}}", right
        yield f"{a}.5", rf"\frac{{{2 * a + 1 + d}}}{{2}}", right
        yield f"{a * 1000}", f"{a + d},000", right
        yield rf"{a}\sqrt{{{b}}}", rf"\sqrt{{{a * a * b + d}}}", right
        yield f"{a}x^2+{b}x", f"x({a}x+{b + d})", right
        yield f"({a},{b})", rf"\left({a},\,{b + d}\right)", right
        yield rf"\{{{a},{b},{c}\}}", rf"\{{{c},{a},{b + d * 50}\}}", right
        yield f"[{a},{a + b})", rf"\left[{a}, {a + b + d}\right)", right
        yield f"x={a}", f"{a + d}", right
        yield rf"{a}\%", rf"{a + d} \text{{ percent}}", right
        yield rf"\sin^2 x+{a}", rf"{a + 1 + d}-\cos^2 x", right
        yield (
            rf"\begin{{pmatrix}}{a}&{b}\\{c}&1\end{{pmatrix}}",
            rf"\begin{{bmatrix}}{a} & {b}\\ {c + d} & 1\end{{bmatrix}}",
            right,
        )
        yield f"{a}", rf"{a + d} \text{{ cm}}", right
        yield rf"{a}\frac{{1}}{{2}}", f"{a + d}.5", right
        yield rf"\log_2 {2**a}", f"{a + d}", right
        yield f"{a}!", rf"{a + d}\cdot {a - 1}!", right
        yield rf"2^{{{a + 60}}}", f"{2 ** (a + 60) + d}", right
    yield f"{a}", f"{a} or {b + 50}", False
    yield f"{a}", rf"{a} \text{{ is wrong}}", False
    yield rf"10^{{-{b + 20}}}", rf"2\cdot 10^{{-{b + 20}}}", False


def module(path: Path, *, edits: dict[str, str] | None = None) -> ModuleType:
    """A file as a module, without the package around it."""
    source = path.read_text()
    for old, new in (edits or {}).items():
        source = re.sub(old, new, source)
    it = ModuleType(path.stem)
    sys.modules[it.__name__] = it
    exec(compile(source, str(path), "exec"), it.__dict__)
    return it


def graders() -> dict[str, Grader]:
    import math_verify
    from latex2sympy2_extended import latex2sympy

    import hapo_verify

    rewards = fetched("verl==0.9.1") / "verl/utils/reward_score"
    dapo = module(rewards / "math_dapo.py")
    module(rewards / "prime_math/math_normalize.py")
    grader_of_prime = module(
        rewards / "prime_math/grader.py", edits={r"from verl\S* import timeout_limit": "", r"@timeout_limit\(.*\)": ""}
    )
    sys.modules["grader"] = grader_of_prime
    edits = {
        r"from verl\S* import timeout_limit": "",
        r"@timeout_limit\(.*\)": "",
        r"from \. import math_normalize": "import math_normalize",
        r"from \.grader": "from grader",
    }
    prime = module(rewards / "prime_math/__init__.py", edits=edits)
    lm_eval = fetched("lm_eval==0.4.13") / "lm_eval/tasks/minerva_math/utils.py"
    source = lm_eval.read_text()
    minerva = ModuleType("minerva")
    exec("import re\n" + source[source.index("SUBSTITUTIONS") :], minerva.__dict__)

    def boxed(answer: str) -> str:
        return answer if "boxed" in answer else rf"\boxed{{{bare(answer)}}}"

    def bare(answer: str) -> str:
        return answer.strip().removeprefix("$").removesuffix("$")

    def ours(policy: str) -> Grader:
        return lambda gold, answer: hapo_verify.verify(bare(gold), boxed(answer), policy=policy).correct

    def of_math_verify(seconds: int | None) -> Grader:
        def grade(gold: str, answer: str) -> bool:
            read = [math_verify.parse(it, parsing_timeout=seconds) for it in (f"${bare(gold)}$", boxed(answer))]
            return math_verify.verify(*read, timeout_seconds=seconds)

        return grade

    return {
        "here, `math-verify`": ours("math-verify"),
        "here, `benchmark`": ours("benchmark"),
        "here, `training`": ours("training"),
        "Math-Verify 0.9.0, 5 s": of_math_verify(5),
        "Math-Verify 0.9.0, no timeout": of_math_verify(None),
        "latex2sympy2_extended, `simplify(a - b) == 0`": lambda gold, answer: (
            (latex2sympy(bare(gold)) - latex2sympy(bare(answer))).simplify() == 0
        ),
        "verl 0.9.1, `math_dapo`": lambda gold, answer: dapo.verify(f"Answer: {bare(answer)}", bare(gold))[0],
        "verl 0.9.1, `prime_math`": lambda gold, answer: bool(prime.compute_score(boxed(answer), bare(gold))[0]),
        "lm-eval 0.4.13, Minerva's normaliser": lambda gold, answer: (
            minerva.normalize_final_answer(bare(gold)) == minerva.normalize_final_answer(bare(answer))
        ),
    }


class Slow(BaseException):
    """A pair took longer than the limit."""


def stop(*_: object) -> None:
    raise Slow


def row(name: str, grade: Grader, pairs: list[Pair]) -> str:
    accepts = rejects = 0
    times = []
    for gold, answer, label in pairs:
        signal.signal(signal.SIGALRM, stop)
        signal.alarm(LIMIT)
        begun = time.process_time()
        try:
            got = bool(grade(gold, answer))
        except (Exception, Slow):
            got = False
        finally:
            signal.alarm(0)
        times.append(time.process_time() - begun)
        accepts += got and not label
        rejects += label and not got
    agreement = 100 * (1 - (accepts + rejects) / len(pairs))
    mean, worst = 1e6 * sum(times) / len(times), 1e3 * max(times)
    return f"| {name} | {agreement:.1f} % | {accepts} | {rejects} | {mean:,.0f} | {worst:,.1f} |"


def main() -> None:
    rng = random.Random(7)
    corpora = {
        "formulas in Math-Verify's tests": tests_of_math_verify(),
        "made pairs": [it for _ in range(15) for it in made(rng)],
    }
    chosen = sys.argv[1:]
    for title, pairs in corpora.items():
        print(f"\n{title}, {len(pairs)} pairs, {sum(it[2] for it in pairs)} of them equal:\n")
        print(
            "| grader | agreement | false accepts | false rejects | µs a pair | worst, ms |\n|---|---|---|---|---|---|"
        )
        for name, grade in graders().items():
            if not chosen or any(it in name for it in chosen):
                print(row(name, grade, pairs), flush=True)


if __name__ == "__main__":
    main()
