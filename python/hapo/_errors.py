"""Errors of the engine."""

from __future__ import annotations

import re

# What the command line calls what is a keyword here.
_KEYWORDS = (("--resume --force-recipe", 'resume="force"'), ("--resume", "resume=True"), ("--run-dir", "run_dir"))


class Error(Exception):
    """A run, a recipe, data or a function of the user's that cannot be used; the message names the thing and its place.

    ``hint`` says what to do, ``key`` is the recipe's key, ``row`` the number of the row of the data; each is None where
    there is none. What a function of the user's raised is the ``__cause__``.
    """

    def __init__(self, message: str, hint: str | None = None, key: str | None = None) -> None:
        super().__init__(message, hint, key)
        self.message = message
        self.hint = hint
        for option, keyword in _KEYWORDS:
            self.hint = self.hint and self.hint.replace(option, keyword)
        self.key = key
        found = re.search(r"\brow (\d+)|\.\w+:(\d+):", message)
        self.row = int(found[1] or found[2]) if found else None

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message
