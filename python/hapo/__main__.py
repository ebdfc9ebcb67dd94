"""The command ``hapo``."""

from __future__ import annotations

import signal
import sys

from hapo import _hapo


def main() -> int:
    """Runs the command by the process's arguments, and gives its exit code."""
    # Python's own handlers would wait for the command to end.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _hapo.command(["hapo", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
