"""Support tickets and what a help desk files of them, written by this program.

    python3 examples/tickets/make.py FOLDER

Writes train.jsonl (300 tickets), same.jsonl (100 more of the same phrasings) and new.jsonl (100 with names, complaints
and phrasings that no training ticket has). A row has problem, answer (the object) and teacher (the object again).
"""

from __future__ import annotations

import json
import pathlib
import random
import sys

NAMES = [
    "Anna",
    "Ben",
    "Carla",
    "David",
    "Emma",
    "Frank",
    "Grace",
    "Henry",
    "Ida",
    "Jack",
    "Karim",
    "Laura",
    "Mei",
    "Nadia",
    "Omar",
    "Petra",
]
NEW_NAMES = ["Quentin", "Rosa", "Samir", "Tilda", "Umar", "Vera", "Wanda", "Yusuf"]
PRODUCTS = ["router", "laptop", "printer", "phone", "camera", "tablet", "monitor", "scanner"]
# For each category three complaints to train on and one that is new.
COMPLAINTS = {
    "hardware": ("does not start", "has a broken screen", "overheats after a minute", "makes a grinding noise"),
    "billing": ("was charged twice", "is missing from my invoice", "cost more than advertised", "was never refunded"),
    "shipping": ("has not arrived", "came to the wrong address", "is stuck at customs", "was lost by the courier"),
    "account": ("needs a password reset", "asks for a login I forgot", "locked me out", "rejects my user name"),
}
URGENT = {True: "Please hurry.", False: "There is no rush."}
FRAMES = [
    "{name} here. My {product} {complaint}. {urgent}",
    "Hello, my {product} {complaint}. {urgent} Regards, {name}",
]
NEW_FRAMES = ["Hi team, {urgent} The {product} that I bought {complaint}. Thanks, {name}"]


def ticket(rng: random.Random, new: bool) -> dict[str, str]:
    category = rng.choice(list(COMPLAINTS))
    complaints = COMPLAINTS[category][3:] if new else COMPLAINTS[category][:3]
    name, product, urgent = rng.choice(NEW_NAMES if new else NAMES), rng.choice(PRODUCTS), rng.random() < 0.5
    frame = rng.choice(NEW_FRAMES if new else FRAMES)
    text = frame.format(name=name, product=product, complaint=rng.choice(complaints), urgent=URGENT[urgent])
    filed = json.dumps({"customer": name, "product": product, "category": category, "urgent": urgent})
    problem = f"{text}\nFile this ticket as JSON with the keys customer, product, category, urgent."
    return {"problem": problem, "answer": filed, "teacher": filed}


def tickets(rng: random.Random, count: int, new: bool) -> list[dict[str, str]]:
    """Tickets that all differ."""
    rows: dict[str, dict[str, str]] = {}
    while len(rows) < count:
        row = ticket(rng, new)
        rows[row["problem"]] = row
    return list(rows.values())


def main() -> None:
    folder, rng = pathlib.Path(sys.argv[1]), random.Random(7)
    folder.mkdir(parents=True, exist_ok=True)
    seen = tickets(rng, 400, new=False)
    for name, rows in [("train", seen[:300]), ("same", seen[300:]), ("new", tickets(rng, 100, new=True))]:
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        print(f"{path}: {len(rows)} tickets")


if __name__ == "__main__":
    main()
