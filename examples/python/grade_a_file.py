# %% [markdown]
# # Grade a file of completions
# Each row has a gold answer and a completion. Run as a script, or cell by cell in an editor that knows `# %%`.

# %%
import collections
import json
import pathlib
import sys
import tempfile

import hapo

# %% A file of your own is the first argument; without one, three rows are written.
if len(sys.argv) > 1 and sys.argv[1].endswith(".jsonl"):
    path = pathlib.Path(sys.argv[1])
else:
    rows = [
        {"gold": r"\frac{1}{2}", "pred": r"Halving gives $x = \boxed{0.5}$."},
        {"gold": "7", "pred": r"So it is \boxed{8}."},
        {"gold": "7", "pred": "I do not know."},
    ]
    path = pathlib.Path(tempfile.mkdtemp()) / "completions.jsonl"
    path.write_text("".join(json.dumps(it) + "\n" for it in rows))

# %% All cores, no timeouts.
rows = [json.loads(line) for line in path.read_text().splitlines()]
verdicts = hapo.grade_many([it["gold"] for it in rows], [it["pred"] for it in rows])
counts = collections.Counter(it.name for it in verdicts)
print(dict(counts))

# %% Why the first wrong one is wrong.
wrong = next((row for row, verdict in zip(rows, verdicts, strict=True) if verdict.name == "wrong"), None)
if wrong is not None:
    print(hapo.explain(wrong["gold"], wrong["pred"]))
