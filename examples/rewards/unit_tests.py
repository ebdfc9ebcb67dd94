"""The share of a problem's tests that the code of a completion passes.

A row has its tests in `tests`, a list of Python statements such as "assert add(1, 2) == 3". Each is run behind the last
```python block of the completion, in a process of its own: a session of its own, two seconds of CPU, half a gigabyte, small
files, an empty folder, and no network where the kernel lets an ordinary user have none.

THIS IS NO SECURITY BOUNDARY. It keeps honest mistakes (endless loops, huge lists, a stray sys.exit) from ending a run.
Code that means harm reads your files and leaves its session; run hapo in a container or a virtual machine for that.
"""

import ctypes
import json
import os
import re
import resource
import secrets
import signal
import subprocess
import sys
import tempfile

SECONDS = 4
MEMORY = 512 << 20
FILE_BYTES = 1 << 20
LIBC = ctypes.CDLL(None, use_errno=True)


def limit() -> None:
    """Limits of the process that runs a test; called in it before the code."""
    for what, most in [
        (resource.RLIMIT_CPU, 2),
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 64),
    ]:
        resource.setrlimit(what, (most, most))
    if sys.platform == "linux":
        # Dies with this program (PR_SET_PDEATHSIG), however that ends.
        LIBC.prctl(1, signal.SIGKILL)
        # A network of its own with nothing in it (CLONE_NEWUSER | CLONE_NEWNET); not every kernel allows it.
        LIBC.unshare(0x10000000 | 0x40000000)


def passes(code: str, test: str) -> bool:
    """Whether a test passes behind the code."""
    # Whoever leaves early does not print this.
    proof = secrets.token_hex(8)
    program = f"{code}\n{test}\nprint({proof!r})\n"
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", program],
            cwd=folder,
            env={"PATH": os.defpath, "HOME": folder},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=limit,
        )
        try:
            printed, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            printed = b""
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.communicate()
    lines = printed.decode(errors="replace").splitlines()
    return process.returncode == 0 and lines[-1:] == [proof]


for line in sys.stdin:
    it = json.loads(line)
    tests = it["row"]["tests"]
    blocks = re.findall(r"```(?:python)?\n(.*?)```", it["completion"], re.DOTALL)
    passed = sum(passes(blocks[-1], test) for test in tests) if blocks else 0
    share = passed / len(tests)
    print(json.dumps({"id": it["id"], "reward": share, "parts": {"code": bool(blocks), "passed": share}}))
