"""Prints the arguments in a `training_args.bin` as JSON: the pickle in torch's archive, with none of its classes."""

import json
import pickle
import sys
import zipfile
from typing import Any


class Stand:
    """In the place of every class: a word of an enumeration is its text, another object is nothing."""

    def __new__(cls, *values: Any) -> Any:
        return values[0] if len(values) == 1 and isinstance(values[0], str) else super().__new__(cls)

    def __init__(self, *values: Any) -> None:
        pass


class Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return Stand


def main(path: str) -> None:
    with zipfile.ZipFile(path) as archive:
        (name,) = (it for it in archive.namelist() if it.endswith("data.pkl"))
        with archive.open(name) as file:
            arguments = vars(Reader(file).load())
    found = {}
    for key, value in arguments.items():
        inner = {f"{key}.{name}": it for name, it in value.items()} if isinstance(value, dict) else {key: value}
        found.update({name: it for name, it in inner.items() if isinstance(it, (str, int, float))})
    print(json.dumps({name: it if isinstance(it, str) else json.dumps(it) for name, it in found.items()}))


if __name__ == "__main__":
    main(sys.argv[1])
