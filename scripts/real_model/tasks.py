"""Problems that people recognise, for a small pretrained model, with solutions written by this program.

    python3 scripts/real_model/tasks.py TASK COUNT > problems.jsonl
    python3 scripts/real_model/tasks.py TASK COUNT FOLDER

A row has id, problem, answer, and a solution as its teacher. A problem never comes twice; the order is fixed by the seed. With FOLDER, the
first 100 are development.jsonl, the next 200 held-out.jsonl, the rest train.jsonl.
"""

import datetime
import json
import pathlib
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


def sort(rng: random.Random) -> Row:
    numbers = rng.sample(range(1, 100), rng.randint(3, 5))
    answer = ", ".join(map(str, sorted(numbers)))
    return f"Sort from smallest to largest: {', '.join(map(str, numbers))}", answer, answer


def countdown(rng: random.Random) -> Row:
    a, b, c = rng.sample(range(2, 20), 3)
    first = rng.choice([f"{a} + {b}", f"{a} * {b}"])
    expression = f"({first}) {rng.choice('+-*')} {c}"
    numbers = ", ".join(map(str, sorted([a, b, c])))
    return f"Use {numbers}, each once, with +, - and * to make {eval(expression)}.", expression, expression


CITIES = ["Paris", "Lima", "Oslo", "Cairo", "Delhi", "Quito", "Hanoi", "Dublin", "Prague", "Havana"]


def reformat(rng: random.Random) -> Row:
    name, age, city = rng.choice(NAMES), rng.randint(2, 90), rng.choice(CITIES)
    text = f"{name} is {age} years old and lives in {city}."
    answer = json.dumps({"name": name, "age": age, "city": city})
    return f"{text} Write this as JSON with the keys name, age, city.", answer, answer


MONTHS = "January February March April May June July August September October November December".split()


def date(rng: random.Random) -> Row:
    day = datetime.date(1900, 1, 1) + datetime.timedelta(days=rng.randrange(45_000))
    month, number, year = MONTHS[day.month - 1], day.day, day.year
    ending = "th" if 4 <= number <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    forms = [f"{month} {number}, {year}", f"{number} {month} {year}", f"the {number}{ending} of {month} {year}"]
    return f"Write this date as YYYY-MM-DD: {rng.choice(forms)}", day.isoformat(), day.isoformat()


TASKS: dict[str, Callable[[random.Random], Row]] = {
    "story": story,
    "words": words,
    "units": units,
    "sort": sort,
    "countdown": countdown,
    "json": reformat,
    "dates": date,
}
TRIES = 1000


def main() -> None:
    task, count = TASKS[sys.argv[1]], int(sys.argv[2])
    rng, rows, tries = random.Random(47), {}, 0
    while len(rows) < count:
        problem, answer, solution = task(rng)
        tries = tries + 1 if problem in rows else 0
        if tries == TRIES:
            sys.exit(f"{sys.argv[1]} has few problems beyond {len(rows)}, expected a COUNT below that, found {count}")
        row = {"id": f"{sys.argv[1]}-{len(rows)}", "problem": problem, "answer": answer, "teacher": solution}
        rows.setdefault(problem, json.dumps(row))
    lines = list(rows.values())
    if len(sys.argv) < 4:
        print("\n".join(lines))
        return
    folder = pathlib.Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in [("development", lines[:100]), ("held-out", lines[100:300]), ("train", lines[300:])]:
        (folder / f"{name}.jsonl").write_text("\n".join(part) + "\n")
        print(f"{folder / name}.jsonl: {len(part)} problems")


if __name__ == "__main__":
    main()
