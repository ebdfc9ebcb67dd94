"""A `hapo serve` of one's own on a free port, for the scripts beside this file."""

import re
import signal
import subprocess
from contextlib import contextmanager


@contextmanager
def serve(binary, model, *options):
    """Gives its address; ends it as a user would."""
    server = subprocess.Popen(
        [binary, "serve", "--model", model, "--port", "0", *options], stderr=subprocess.PIPE, text=True
    )
    try:
        found = next((it for line in server.stderr if (it := re.search(r"(http://\S+)/v1", line))), None)
        if found is None:
            raise SystemExit(f"the server ended with {server.wait()}")
        yield found[1]
    finally:
        server.send_signal(signal.SIGINT)
        print("server ended with", server.wait(timeout=60))
