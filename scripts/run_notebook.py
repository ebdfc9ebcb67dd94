"""Runs the cells of a notebook in one namespace, without Jupyter.

python scripts/run_notebook.py FILE.ipynb
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
path = Path(sys.argv[1])
cells = [it for it in json.loads(path.read_text())["cells"] if it["cell_type"] == "code"]
namespace: dict[str, Any] = {"__name__": "__main__"}
for number, cell in enumerate(cells, 1):
    exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), namespace)
print(f"{len(cells)} cells ran")
