"""The exception of Math-Verify."""

from __future__ import annotations

import sys


class TimeoutException(BaseException):
    """An answer exceeds the bounds. Raised by ``parse`` with ``raise_on_error`` alone."""


# This package may be imported as `hapo_verify` and as `hapo.verify`: what one of them raises, code that imported the
# name from the other catches.
for _name in ("hapo_verify.math_verify.errors", "hapo.verify.math_verify.errors"):
    if _name != __name__ and _name in sys.modules:
        TimeoutException = sys.modules[_name].TimeoutException  # type: ignore[misc]
