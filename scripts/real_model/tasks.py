"""Problems that people recognise, for a small pretrained model, with solutions written by this program.

    python3 scripts/real_model/tasks.py TASK COUNT > problems.jsonl

A row has problem, answer and solution. A problem never comes twice; the order is fixed by the seed.
"""

import json
import random
import sys
from collections.abc import Callable

NAMES = ["Anna", "Ben", "Carla", "David", "Emma", "Frank", "Grace", "Henry", "Ida", "Jack"]
THINGS = ["apples", "books", "coins", "eggs", "pencils", "stamps", "shells", "cards"]
ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen".split()
ONES += "sixteen seventeen eighteen nineteen".split()
TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()
Row = tuple[str, str, str]


def boxed(steps: str, answer: object) -> tuple[str, str]:
    return str(answer), f"{steps} The answer is {answer}."


def in_words(n: int) -> str:
    if n >= 100:
        rest = f" {in_words(n % 100)}" if n % 100 else ""
        return f"{ONES[n // 100]} hundred{rest}"
    if n < 20:
        return ONES[n]
    return TENS[n // 10] + (f"-{ONES[n % 10]}" if n % 10 else "")


def story(rng: random.Random) -> Row:
    name, other = rng.sample(NAMES, 2)
    thing, a, b, c = rng.choice(THINGS), rng.randint(5, 30), rng.randint(2, 20), rng.randint(2, 5)
    match rng.randrange(4):
        case 0:
            text = f"{name} has {a} {thing}. {other} gives {name} {b} more. How many {thing} does {name} have now?"
            return text, *boxed(f"{a} + {b} = {a + b}.", a + b)
        case 1:
            text = f"{name} has {a + b} {thing} and gives {b} to {other}. How many {thing} are left?"
            return text, *boxed(f"{a + b} - {b} = {a}.", a)
        case 2:
            text = f"{name} buys {c} boxes of {b} {thing} each. How many {thing} is that?"
            return text, *boxed(f"{c} * {b} = {c * b}.", c * b)
        case _:
            text = f"{name} has {a} {thing} and buys {c} bags of {b} {thing} each. How many {thing} does {name} have?"
            return text, *boxed(f"{c} * {b} = {c * b}. {a} + {c * b} = {a + c * b}.", a + c * b)


def words(rng: random.Random) -> Row:
    a, b = rng.randint(10, 999), rng.randint(10, 99)
    if rng.randrange(2):
        return f"What is {in_words(a)} plus {in_words(b)}?", *boxed(f"{a} + {b} = {a + b}.", a + b)
    a += 100
    return f"What is {in_words(a)} minus {in_words(b)}?", *boxed(f"{a} - {b} = {a - b}.", a - b)


UNITS = [("meters", "centimeters", 100), ("hours", "minutes", 60), ("kilograms", "grams", 1000)]
UNITS += [("minutes", "seconds", 60), ("feet", "inches", 12), ("weeks", "days", 7), ("days", "hours", 24)]


def units(rng: random.Random) -> Row:
    (large, small, factor), n = rng.choice(UNITS), rng.randint(2, 99)
    steps = f"There are {factor} {small} in one of the {large}. {n} * {factor} = {n * factor}."
    return f"How many {small} are {n} {large}?", *boxed(steps, n * factor)


TASKS: dict[str, Callable[[random.Random], Row]] = {"story": story, "words": words, "units": units}


def main() -> None:
    task, count = TASKS[sys.argv[1]], int(sys.argv[2])
    rng, seen = random.Random(47), set()
    while len(seen) < count:
        problem, answer, solution = task(rng)
        if problem not in seen:
            seen.add(problem)
            print(json.dumps({"problem": problem, "answer": answer, "solution": solution}))


if __name__ == "__main__":
    main()
