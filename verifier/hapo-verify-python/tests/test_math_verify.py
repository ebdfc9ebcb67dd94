"""The drop-in of Math-Verify: its signatures, its lists, its configurations; in threads and across processes."""

from __future__ import annotations

import importlib.util
import inspect
import logging
import pickle
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

import hapo_verify.math_verify
from hapo_verify.math_verify import (
    ExprExtractionConfig,
    LatexExtractionConfig,
    NormalizationConfig,
    StringExtractionConfig,
    TimeoutException,
    math_metric,
    parse,
    verify,
)
from hapo_verify.math_verify.grader import verify as verify_of_grader

BOTH = (ExprExtractionConfig(), LatexExtractionConfig())


def test_arguments_and_defaults_are_math_verifys() -> None:
    """As `inspect.signature` shows them for Math-Verify 0.9.0; the default targets are compared by value."""
    names = {
        name: {key: it.default for key, it in inspect.signature(function).parameters.items()}
        for name, function in {"parse": parse, "verify": verify, "math_metric": math_metric}.items()
    }
    empty = inspect.Parameter.empty
    targets = (LatexExtractionConfig(), ExprExtractionConfig())
    assert names["parse"] == {
        "pred": empty,
        "extraction_config": targets,
        "fallback_mode": "first_match",
        "extraction_mode": "any_match",
        "parsing_timeout": 5,
        "raise_on_error": False,
    }
    assert names["verify"] == {
        "gold": empty,
        "target": empty,
        "float_rounding": 6,
        "numeric_precision": 15,
        "strict": True,
        "allow_set_relation_comp": False,
        "timeout_seconds": 5,
        "raise_on_error": False,
    }
    expr = (ExprExtractionConfig(),)
    assert names["math_metric"] == {
        "gold_extraction_target": expr,
        "pred_extraction_target": expr,
        "aggregation_function": max,
        "precision": 6,
    }
    assert verify_of_grader is verify


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r"$\frac12$", [r"1/2", r"\frac{1}{2}"]),
        ("so 1/2", ["1/2", "1/2"]),
        ("$x^2+1$", ["x**2 + 1", "x^2+1"]),
        ("$x=5$", ["Eq(x, 5)", "x=5"]),
        ("$1<x<3$", ["(1 < x) & (x < 3)", "1<x<3"]),
        (r"$\{1,2\}$", ["{1, 2}", r"\{1,2\}"]),
        ("$[1,2)$", ["Interval.Ropen(1, 2)", "[1,2)"]),
        (r"$50\%$", ["50*(1/100)", r"50\%"]),
        (r"$\frac{a+b}{c}$", ["(a + b)/c", r"\frac{a+b}{c}"]),
        (r"$\int_0^1 x dx$", ["Integral(x, (x, 0, 1))", r"\int_0^1 x dx"]),
        (r"$(1,2)\cup(3,4)$", ["Union(Interval.open(1, 2), Interval.open(3, 4))", r"(1,2)\cup(3,4)"]),
        ("$a$ and $b$", ["{a, b}", "a and b"]),
        ("nothing", []),
    ],
)
def test_objects_print_as_math_verifys(text: str, shown: list[str]) -> None:
    """Copied from what Math-Verify 0.9.0 prints for each."""
    assert [str(it) for it in parse(text)] == shown
    assert repr(parse(text)[:1]) == f"[{', '.join(shown[:1])}]"


def test_configurations() -> None:
    assert verify(parse("1/3"), parse("$0.333$"), float_rounding=3)
    assert not verify(parse("1/3"), parse("$0.333$"))
    assert verify(parse("$f(x)$"), parse("$f(y)$"), strict=False)
    assert verify(parse("$(1,2)$"), parse("$1<x<2$"), allow_set_relation_comp=True)
    assert not verify(parse("$(1,2)$"), parse("$1<x<2$"))
    assert parse(r"\boxed{1}", [LatexExtractionConfig(boxed_match_priority=-1)]) == []
    assert parse(r"so $7$", [LatexExtractionConfig(try_extract_without_anchor=False)]) == []
    assert parse("so 7", [ExprExtractionConfig(try_extract_without_anchor=False)]) == []
    as_is = LatexExtractionConfig(normalization_config=NormalizationConfig(units=True))
    assert parse(r"$\frac12$", [as_is], "no_fallback", "first_match") == []
    assert parse("The answer is B.", [StringExtractionConfig(lowercase=False)]) == ["B", "B"]
    assert parse("The answer is B.", [StringExtractionConfig(), *BOTH]) == ["b", "B"]
    assert parse("Because B is valid", [StringExtractionConfig(try_extract_without_anchor=False)]) == []


def test_values_may_be_numbers_or_texts() -> None:
    assert verify(7, parse(r"\boxed{7}"))
    assert verify(0.5, parse(r"\boxed{\frac12}"))
    assert verify("some text", ["other", " some text "])
    assert not verify([], parse("7"))
    assert not verify("", "")
    assert not verify("7", parse("7", fallback_mode="no_fallback"))


def test_what_is_too_large(caplog: pytest.LogCaptureFixture) -> None:
    deep = r"$\frac{1}{" * 1 + r"\frac{1}{" * 200 + "3" + "}" * 201 + "$"
    with caplog.at_level(logging.WARNING):
        assert not verify(parse("7"), parse(deep))
    assert "exceeds the bounds" in caplog.text
    with pytest.raises(TimeoutException):
        parse(deep, raise_on_error=True)
    with pytest.raises(TypeError):
        parse(None, raise_on_error=True)  # type: ignore[arg-type]
    assert parse(None) == []  # type: ignore[arg-type]


def test_threads_and_pickles() -> None:
    def one(_: int) -> bool:
        return verify(parse("$1/2$", parsing_timeout=5), parse(r"\boxed{0.5}", BOTH), timeout_seconds=5)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(200)))
    kept = pickle.loads(pickle.dumps(parse(r"The answer is $\frac{x+1}{2}$")))
    assert verify(kept, parse("$x/2+0.5$"))
    assert kept == parse(r"The answer is $\frac{x+1}{2}$")


def test_the_metric() -> None:
    metric = math_metric((LatexExtractionConfig(),), BOTH)
    assert metric([r"\boxed{1/2}"], ["it is 0.5"]) == (1.0, (["1/2", r"\frac{1}{2}"], ["0.5", "0.5"]))
    assert metric([r"\boxed{7}"], ["it is 8", "or 7"])[0] == 1.0
    assert math_metric(aggregation_function=min)(["7"], ["it is 8", "or 7"])[0] == 0.0
    with pytest.raises(ValueError, match="No gold targets found"):
        metric(["nothing"], ["7"])


@pytest.fixture
def installed() -> Iterator[None]:
    """This package in Math-Verify's place, for one test."""
    before = {name: it for name, it in sys.modules.items() if name.startswith(("math_verify", "latex2sympy2_extended"))}
    hapo_verify.math_verify.install()
    yield
    for name in [it for it in sys.modules if it.startswith(("math_verify", "latex2sympy2_extended"))]:
        del sys.modules[name]
    sys.modules.update(before)


# The lines as the published files have them, and a call as the file makes it.
IMPORTS = {
    "verl 0.9.1, utils/reward_score/math_verify.py": (
        """
from math_verify.errors import TimeoutException
from math_verify.grader import verify
from math_verify.parser import ExprExtractionConfig, LatexExtractionConfig, parse
""",
        """
gold = parse("\\\\boxed{1/2}", (LatexExtractionConfig(),))
found = parse("so \\\\boxed{0.5}", (ExprExtractionConfig(), LatexExtractionConfig()))
score = max(1.0 if any(verify(g, p) for g in gold) else 0.0 for p in found)
""",
    ),
    "NeMo-RL 7ea279abf, environments/math_environment.py": (
        """
from math_verify import grader
from math_verify.errors import TimeoutException
from math_verify.metric import math_metric
from math_verify.parser import ExprExtractionConfig, LatexExtractionConfig
""",
        """
metric = math_metric(
    gold_extraction_target=(LatexExtractionConfig(),),
    pred_extraction_target=(ExprExtractionConfig(), LatexExtractionConfig()),
)
try:
    score, (golds, found) = metric(["\\\\boxed{1/2}"], ["so \\\\boxed{0.5}"])
except (Exception, TimeoutException):
    score = 0.0
assert not grader.verify("1", "2")
""",
    ),
    "lm-eval, tasks/minerva_math/utils.py": (
        "from math_verify import parse, verify",
        'score = float(verify(parse("$1/2$"), parse("The answer is $0.5$.")))',
    ),
    "lm-eval, tasks/leaderboard/math/utils.py": (
        "from math_verify import LatexExtractionConfig, parse, verify",
        """
found = parse("so \\\\boxed{0.5}", extraction_config=[LatexExtractionConfig()], extraction_mode="first_match")
score = float(verify(parse("$1/2$"), found))
""",
    ),
    "TRL 1.16.0, rewards/accuracy_rewards.py, and open-r1, rewards.py": (
        """
from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify
""",
        """
config = LatexExtractionConfig(
    normalization_config=NormalizationConfig(units=True), boxed_match_priority=0, try_extract_without_anchor=False
)
found = parse("so \\\\boxed{0.5}", extraction_config=[config], extraction_mode="first_match", parsing_timeout=None)
score = float(verify(parse("$1/2$"), found, timeout_seconds=None))
""",
    ),
    "open-r1's configuration in full": (
        """
from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify
""",
        """
normal = NormalizationConfig(
    nits=False, malformed_operators=False, basic_latex=True, equations=True, boxed="all", units=True
)
config = LatexExtractionConfig(normalization_config=normal, boxed_match_priority=0, try_extract_without_anchor=False)
found = parse("so \\\\boxed{0.5}", extraction_config=[config], extraction_mode="first_match")
score = float(verify(parse("$1/2$", extraction_mode="first_match"), found))
""",
    ),
    "lighteval's tasks with Math-Verify": (
        """
from latex2sympy2_extended.latex2sympy2 import NormalizationConfig
from math_verify.metric import math_metric
from math_verify.parser import ExprExtractionConfig, LatexExtractionConfig
""",
        """
metric = math_metric((LatexExtractionConfig(),), (ExprExtractionConfig(), LatexExtractionConfig()), max, 6)
score = metric(["$1/2$"], ["so 0.5"])[0]
""",
    ),
    "patches of the timeouts": (
        """
import math_verify
import math_verify.parser
from math_verify import *
from math_verify.utils import timeout
""",
        """
math_verify.parser.timeout, math_verify.grader.timeout, math_verify.metric.timeout
score = timeout(5)(float)(verify(parse("$1/2$"), parse("0.5")))
""",
    ),
}


@pytest.mark.parametrize("engine", IMPORTS)
@pytest.mark.usefixtures("installed")
def test_an_engines_imports_find_this_package(engine: str) -> None:
    lines, call = IMPORTS[engine]
    names: dict[str, Any] = {}
    exec(lines.strip() + "\n" + call, names)
    assert names["score"] == 1.0
    if "verify" in names:
        assert names["verify"] is verify
    if "TimeoutException" in names:
        assert names["TimeoutException"] is TimeoutException


@pytest.mark.usefixtures("installed")
def test_what_is_installed_is_found_and_the_rest_is_missing() -> None:
    assert importlib.util.find_spec("math_verify") is not None
    from math_verify.errors import TimeoutException as theirs  # type: ignore[import-not-found]

    with pytest.raises(theirs):
        parse(r"$\frac{1}{" + r"\frac{1}{" * 200 + "3" + "}" * 201 + "$", raise_on_error=True)
    for absent in ("math_verify.tasks", "math_verify.few_shots"):
        with pytest.raises(ModuleNotFoundError, match=absent):
            importlib.import_module(absent)
    hapo_verify.math_verify.install()
    assert sys.modules["math_verify"] is hapo_verify.math_verify


def test_both_names_of_the_package_raise_one_class() -> None:
    hapo = pytest.importorskip("hapo.verify.math_verify")
    assert hapo.errors.TimeoutException is TimeoutException


def test_a_number_equals_the_number() -> None:
    numbers = {"so 1": 1, "$-3$": -3, "$1/2$": 0.5, r"$\frac13$": Fraction(1, 3), "0.1": 0.1, "2.50": Decimal("2.5")}
    for text, number in numbers.items():
        value = parse(text)[0]
        assert value == number, text
        assert number == value, text
        assert hash(value) == hash(number) or isinstance(number, float)
        assert value != 7
    assert parse(r"$50\%$")[0] == Fraction(1, 2)
    assert parse("$1/2$")[0] == parse("0.5")[0]
    assert float(parse("$3/4$")[0]) == 0.75
    for text in ("$x$", r"$\sqrt 2$", "$x=1$", "$(1,2)$", "$9^{9^{9}}$", r"$10^{1000000}$"):
        value = parse(text)[0]
        assert value != 1, text
        assert value == parse(text)[0], text
    assert len({parse("$x+1$")[0], parse("$x+1$")[0], parse("7")[0], 7}) == 2
