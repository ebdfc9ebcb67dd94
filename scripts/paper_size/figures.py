"""Figures 2, 3 and 5 from the runs that there are, as SVG."""

import json
import math
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path

from paper_size.rows import FIGURE_2, FIGURE_3, FIGURE_5, Paper

Curve = list[tuple[int, float]]
Panel = tuple[str, Mapping[str, Curve]]
COLOURS = ["#777777", "#0b6e3b", "#3fae6f", "#9bd6b3"]
"""The host is grey, and the smaller a threshold the darker its green, as in the paper."""
WIDTH, HEIGHT = 360, 250

BETA, LENGTH = "hapo/gate/beta", "hapo/response_length/mean"


def figures(paper: Paper) -> None:
    curves = Curves(paper)
    validation = curves.validation
    drawn: dict[str, list[list[Panel]]] = {
        "figure-2": [[
            (f"{host}: validation reward", {name: validation(row) for name, row in zip(("host", "with HAPO"), rows,
             strict=True)})
            for host, rows in FIGURE_2.items()
        ]],
        "figure-3": [
            [curves.panel("threshold γ", "hapo/gate/threshold", FIGURE_3), curves.panel("share β", BETA, FIGURE_3)],
            [curves.panel("entropy, teacher's tokens too", "hapo/entropy/all", FIGURE_3),
             curves.panel("entropy of the policy's tokens", "hapo/policy/entropy", FIGURE_3)],
            [curves.panel("KL to the start", "hapo/policy/kl_to_initial", FIGURE_3),
             curves.panel("reward of the policy", "hapo/reward/policy_only", FIGURE_3)],
        ],
        "figure-5": [
            [curves.panel(f"{host}: share β", BETA, rows) for host, rows in FIGURE_5.items()],
            [(f"{host}: validation reward", {it: validation(row) for it, row in rows.items()})
             for host, rows in FIGURE_5.items()],
            [curves.panel(f"{host}: response length", LENGTH, rows) for host, rows in FIGURE_5.items()],
        ],
    }  # fmt: skip
    folder = paper.out / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    for name, panels in drawn.items():
        if not any(curve for row in panels for _, lines in row for curve in lines.values()):
            print(f"{name}: none of its rows has run (--rows {name.replace('-', '')})")
            continue
        (folder / f"{name}.svg").write_text(page(panels), encoding="utf-8")
        print(folder / f"{name}.svg")


class Curves:
    """What verl logged in a row's last stage, by step; a resumed stage has several files."""

    def __init__(self, paper: Paper) -> None:
        self.out = paper.out

    def steps(self, row: str) -> dict[int, dict[str, float]]:
        stages = sorted(self.out.glob(f"{row}/stage-*"))
        files = sorted(stages[-1].glob("verl-*.jsonl"), key=number) if stages else []
        steps: dict[int, dict[str, float]] = {}
        for file in files:
            for line in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
                steps.setdefault(line["step"], {}).update(line["data"])
        return dict(sorted(steps.items()))

    def of(self, row: str, wanted: Callable[[str], bool]) -> Curve:
        found = []
        for step, metrics in self.steps(row).items():
            value = next((it for key, it in metrics.items() if wanted(key)), None)
            if isinstance(value, int | float) and math.isfinite(value):
                found.append((step, float(value)))
        return found

    def validation(self, row: str) -> Curve:
        return self.of(row, lambda key: key.startswith("val-") and key.endswith("reward/mean@1"))

    def panel(self, title: str, metric: str, rows: Mapping[str, str]) -> Panel:
        return title, {name: self.of(row, metric.__eq__) for name, row in rows.items()}


def number(file: Path) -> int:
    return int(file.stem.rpartition("-")[2])


def page(rows: list[list[Panel]]) -> str:
    width, height = WIDTH * max(map(len, rows)), HEIGHT * len(rows)
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' viewBox='0 0 {width} {height}'>",
        "<style>text { font: 11px sans-serif; fill: #333 }</style>",
        f"<rect width='{width}' height='{height}' fill='#fff'/>",
    ]
    for down, row in enumerate(rows):
        for right, panel in enumerate(row):
            parts.append(f"<g transform='translate({WIDTH * right} {HEIGHT * down})'>{drawn(panel)}</g>")
    return "\n".join([*parts, "</svg>", ""])


def drawn(panel: Panel) -> str:
    """A panel: title, axes with three numbers each, a line and a name for each curve."""
    title, curves = panel
    left, top, right, bottom = 52, 30, WIDTH - 12, HEIGHT - 34
    parts = [f"<text x='{left}' y='18' font-weight='bold'>{escape(title)}</text>"]
    points = [it for curve in curves.values() for it in curve]
    if not points:
        return "".join([*parts, f"<text x='{left}' y='{HEIGHT / 2}'>not run</text>"])
    first, last = min(it for it, _ in points), max(it for it, _ in points)
    low, high = min(it for _, it in points), max(it for _, it in points)
    across = (right - left) / max(last - first, 1)
    up = (bottom - top) / ((high - low) or 1.0)
    for share in (0.0, 0.5, 1.0):
        value, y = low + share * (high - low), bottom - share * (high - low) * up
        step, x = first + share * (last - first), left + share * (last - first) * across
        parts.append(f"<line x1='{left}' x2='{right}' y1='{y:.1f}' y2='{y:.1f}' stroke='#ddd'/>")
        parts.append(f"<text x='{left - 4}' y='{y + 4:.1f}' text-anchor='end'>{value:.3g}</text>")
        parts.append(f"<text x='{x:.1f}' y='{bottom + 14}' text-anchor='middle'>{step:.0f}</text>")
    for place, (name, curve) in enumerate(curves.items()):
        colour, y = COLOURS[place % len(COLOURS)], HEIGHT - 6
        at = " ".join(f"{left + (step - first) * across:.1f},{bottom - (it - low) * up:.1f}" for step, it in curve)
        parts.append(f"<polyline points='{at}' fill='none' stroke='{colour}' stroke-width='1.6'/>")
        shown = name if curve else f"{name} (not run)"
        x = left + place * (right - left) / len(curves)
        parts.append(f"<text x='{x:.0f}' y='{y}' style='fill: {colour}'>{escape(shown)}</text>")
    return "".join(parts)
