"""The pytest plugin: `pytest --lossproof module:step` collects one test for each case and cut.

An adapter may declare `covers` (prefixes of ids), `definitions` (case or family to the name of a registered variant)
and `expected_failures` (id to {"link": …, "until": "YYYY-MM-DD"}), which expire.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest

from lossproof.cases import NotApplicable, Refused, load_all
from lossproof.run import adapter, compare_call, cuts_of


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

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        items.extend(Cases.from_parent(session, name=f"lossproof[{self.name}]", adapter_name=self.name).collect())


class Cases(pytest.Collector):
    """All cases of one adapter."""

    def __init__(self, *, adapter_name: str, **more: Any) -> None:
        super().__init__(**more)
        self.adapter_name = adapter_name

    def collect(self) -> Iterator[pytest.Item]:
        module, step = adapter(self.adapter_name)
        covers = tuple(getattr(module, "covers", ()))
        for case in load_all():
            if "planted" in case or (covers and not case["id"].startswith(covers)):
                continue
            for cut in cuts_of(case):
                label = case["id"] if cut["name"] == "-" else f"{case['id']}[{cut['name']}]"
                yield CaseItem.from_parent(self, name=label, step=step, case=case, cut=cut, module=module)


class CaseItem(pytest.Item):
    """One case under one cut."""

    def __init__(self, *, step: Any, case: dict[str, Any], cut: dict[str, Any], module: Any, **more: Any) -> None:
        super().__init__(**more)
        self.step, self.case, self.cut = step, case, cut
        self.definition = definition(case["id"], getattr(module, "definitions", {}))
        known = getattr(module, "expected_failures", {}).get(case["id"])
        if known and known["until"] >= date.today().isoformat():
            self.add_marker(pytest.mark.xfail(reason=f"{known['link']} (until {known['until']})", strict=False))

    def runtest(self) -> None:
        wants_refusal = self.case.get("expect", {}).get("refused")
        try:
            main, variants = compare_call(self.step, self.case, self.cut)
        except NotApplicable as why:
            pytest.skip(str(why))
        except Refused:
            if wants_refusal or self.case.get("may_refuse"):
                return
            raise
        if self.definition is not None:
            if self.definition not in variants:
                raise CaseFailed(
                    f"no registered variant {self.definition!r}; there are {', '.join(variants) or 'none'}"
                )
            main = variants[self.definition]
        elif wants_refusal and any(it.equal for it in variants.values()):
            return
        if not main.equal:
            others = [name for name, it in variants.items() if it.equal]
            hint = f"\nit equals the registered variant {others[0]!r}; declare it in `definitions`" if others else ""
            raise CaseFailed(f"{self.case['law']}\nr = {main.r:.3g}, s = {main.s:.4g}, d = {main.d:.3g}{hint}")

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        if isinstance(excinfo.value, CaseFailed):
            return f"{self.name}: {excinfo.value}\nsee `lossproof show {self.case['id']}`"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[str, int, str]:
        return "lossproof", 0, self.nodeid


class CaseFailed(Exception):
    """The gradient is not the answer."""


def definition(name: str, definitions: dict[str, str]) -> str | None:
    """The variant that an adapter declares: for the id, or for the longest prefix of it."""
    found = [prefix for prefix in definitions if name == prefix or name.startswith(prefix + "/")]
    return definitions[max(found, key=len)] if found else None
