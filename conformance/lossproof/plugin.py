"""The pytest plugin: `pytest --lossproof module:step` collects one test for each case and cut.

The judge is that of `lossproof run`: a case is judged once, over all of its cuts, and where it fails, so do the tests of
the cuts that are at fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lossproof.cases import load_all
from lossproof.run import Declared, adapter, cuts_of, judge


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("lossproof")
    group.addoption("--lossproof", metavar="ADAPTER", help="check the adapter module:step against the recorded cases")


def pytest_configure(config: pytest.Config) -> None:
    name = config.getoption("--lossproof")
    if name:
        config.pluginmanager.register(Collected(name), "lossproof-collected")


class Collected:
    """Adds the cases to what pytest found."""

    def __init__(self, name: str) -> None:
        self.name = name

    @pytest.hookimpl(tryfirst=True)  # Before `-k` chooses.
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        items.extend(Cases.from_parent(session, name=f"lossproof[{self.name}]", adapter_name=self.name).collect())


class Cases(pytest.Collector):
    """All cases of one adapter."""

    def __init__(self, *, adapter_name: str, **more: Any) -> None:
        super().__init__(**more)
        self.adapter_name = adapter_name

    def collect(self) -> Iterator[pytest.Item]:
        module, step = adapter(self.adapter_name)
        declared = Declared.of(module)
        for case in load_all():
            if "planted" in case:
                continue
            asked = Asked(step, case, declared)
            for cut in cuts_of(case):
                label = case["id"] if cut["name"] == "-" else f"{case['id']}[{cut['name']}]"
                yield CaseItem.from_parent(self, name=label, asked=asked, cut=cut["name"])


class Asked:
    """One case, judged when the first of its tests runs."""

    def __init__(self, step: Any, case: dict[str, Any], declared: Declared) -> None:
        self.step, self.case, self.declared = step, case, declared
        self.errors: dict[str, Exception] = {}
        self._record: dict[str, Any] | None = None

    @property
    def record(self) -> dict[str, Any]:
        if self._record is None:
            self._record = judge(self.step, self.case, self.declared, self._keep)
        return self._record

    def _keep(self, _: dict[str, Any], cut: dict[str, Any], error: Exception) -> None:
        self.errors[cut["name"]] = error


class CaseItem(pytest.Item):
    """One case under one cut."""

    def __init__(self, *, asked: Asked, cut: str, **more: Any) -> None:
        super().__init__(**more)
        self.asked, self.cut = asked, cut
        known = asked.declared.known_failure(asked.case["id"])
        if known:
            self.add_marker(pytest.mark.xfail(reason=f"{known['link']} (until {known['until']})", strict=False))

    def runtest(self) -> None:
        record = self.asked.record
        if self.cut in record["failed"]:
            if self.cut in self.asked.errors:
                raise self.asked.errors[self.cut]
            raise CaseFailed(f"{self.asked.case['law']}\n{record['verdict']}  {record['because']}{self.numbers()}")
        skipped = [it for it in record["skipped"] if it.startswith(f"{self.cut}: ")]
        if skipped:
            pytest.skip(skipped[0].partition(": ")[2])

    def numbers(self) -> str:
        it = self.asked.record["cuts"].get(self.cut)
        if it is None:
            return ""
        shown = [(key, it[key]) for key in ("r", "s", "d", "loss_error") if it[key] is not None]
        return "\n" + ", ".join(f"{key} = {x if isinstance(x, str) else format(x, '.3g')}" for key, x in shown)

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        if isinstance(excinfo.value, CaseFailed):
            return f"{self.name}: {excinfo.value}\nsee `lossproof show {self.asked.case['id']}`"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[str, int, str]:
        return "lossproof", 0, self.nodeid


class CaseFailed(Exception):
    """The answer is not that of the case."""
