"""Reward 1 where the answer of a completion is the gold answer to the letter, else 0.

    hapo train recipe.toml --set 'data.grader="command:python examples/rewards/exact.py"'

`answer` is what data.extraction finds: the last box, or what is announced as the answer; null where there is none.
"""

import json
import sys

for line in sys.stdin:
    it = json.loads(line)
    print(1 if it["answer"] is not None and it["answer"].strip() == it["gold"].strip() else 0)
