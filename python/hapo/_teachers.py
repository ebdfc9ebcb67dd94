"""Teachers from the columns of a data set: which are admitted, and their tokens."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from typing import Any

from hapo._grade import grade


class Teachers:
    """The admitted teachers of an engine's tokenizer, in the columns ``teacher`` (text) or ``teacher_ids``."""

    def __init__(self, tokenizer: Any, end_tokens: Collection[int], longest: int, grader: str | None) -> None:
        """The first of ``end_tokens`` ends a teacher that has none."""
        self.tokenizer = tokenizer
        self.end_tokens = end_tokens
        self.longest = longest
        self.grader = grader
        self._tokens: dict[Any, list[int]] = {}
        self._admitted: dict[Any, bool] = {}

    def of(self, row: Mapping[str, Any]) -> list[int] | None:
        """The tokens of a row's teacher with the end token; None where it has none that is admitted."""
        text, ids = row.get("teacher"), row.get("teacher_ids")
        if not text and not ids:
            return None
        key = (text, tuple(ids or ()))
        if key not in self._tokens:
            tokens = list(ids) if ids else self.tokenizer(text, add_special_tokens=False)["input_ids"]
            if not tokens or tokens[-1] not in self.end_tokens:
                tokens = [*tokens, next(iter(self.end_tokens))]
            self._tokens[key] = tokens
        # A text that is right for one row may be wrong for another.
        asked = (key, repr(row["answer"]) if "answer" in row else None)
        if asked not in self._admitted:
            self._admitted[asked] = self._is_admitted(row, text, self._tokens[key])
        return self._tokens[key] if self._admitted[asked] else None

    def _is_admitted(self, row: Mapping[str, Any], text: str | None, tokens: list[int]) -> bool:
        """Whether it fits the response and its answer is right."""
        if len(tokens) > self.longest:
            warnings.warn(
                f"a teacher of {len(tokens)} tokens is left out, expected at most {self.longest}", stacklevel=2
            )
            return False
        if self.grader is None or "answer" not in row:
            return True
        written = text or self.tokenizer.decode(tokens, skip_special_tokens=True)
        verdict = grade(row["answer"], written, self.grader, extraction="announced")
        if not verdict:
            warnings.warn(f"a teacher is left out, expected a correct answer, got {verdict.name}", stacklevel=2)
        return bool(verdict)
