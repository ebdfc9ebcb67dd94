"""The verifier of story, sort, countdown and json of tasks.py.

story: the answer ends with "the answer is" and the number, reckoned (`42 - 18` is none), at most a noun behind it.
json: the whole answer is JSON and equal to the gold object. sort: the answer's last numbers are the gold ones in order.
countdown: the whole answer is an expression of the same numbers, each once, with the same value.
"""

import ast
import json
import operator
import re
import sys


OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def value(text: str) -> object:
    """The value of sums, differences and products of whole numbers; nothing for any other text."""
    if not re.fullmatch(r"[\d +*()-]{1,60}", text):
        return None
    return value_of(ast.parse(text.strip(), mode="eval").body)


def value_of(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -value_of(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return value_of(operand)
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in OPERATIONS:
            return OPERATIONS[type(operation)](value_of(left), value_of(right))
    raise TypeError(f"expected sums, differences and products, got {ast.unparse(node)}")


def correct(completion: str, gold: str) -> bool:
    text = completion.strip()
    numbers, golds = re.findall(r"\d+", text), re.findall(r"\d+", gold)
    if gold.startswith("{"):
        try:
            return bool(json.loads(text) == json.loads(gold))
        except (ValueError, RecursionError):
            return False
    if gold.isdigit():
        said = re.search(r"\banswer is:? (\d+)(?: [a-z]+)?\.?$", text, re.IGNORECASE)
        return said is not None and said[1] == gold
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
