"""The verifier of the tasks whose answers are no single number: sort, countdown and json of tasks.py.

json: the whole answer is JSON and equal to the gold object. sort: the answer's last numbers are the gold ones in order.
countdown: the whole answer is an expression of the same numbers, each once, with the same value.
"""

import json
import re
import sys


def value(text: str) -> object:
    return eval(text, {"__builtins__": {}}) if re.fullmatch(r"[\d +*()-]{1,60}", text) and "**" not in text else None


def correct(completion: str, gold: str) -> bool:
    text = completion.strip()
    numbers, golds = re.findall(r"\d+", text), re.findall(r"\d+", gold)
    if gold.startswith("{"):
        try:
            return bool(json.loads(text) == json.loads(gold))
        except (ValueError, RecursionError):
            return False
    if "," in gold:
        return numbers[-len(golds) :] == golds
    try:
        return sorted(numbers) == sorted(golds) and value(text) == value(gold)
    except (SyntaxError, TypeError):
        return False


for line in sys.stdin:
    it = json.loads(line)
    reward = float(not it["truncated"] and correct(it["completion"], it["gold"]))
    print(json.dumps({"id": it["id"], "reward": reward}), flush=True)
