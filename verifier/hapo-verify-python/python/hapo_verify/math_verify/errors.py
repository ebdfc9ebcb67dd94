"""The exception of Math-Verify."""


class TimeoutException(BaseException):
    """An answer exceeds the bounds. Raised by ``parse`` with ``raise_on_error`` alone."""
