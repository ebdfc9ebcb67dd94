"""A reward function for verl (and any trainer that calls Python): one `hapo grade` runs, and is asked line by line.

In verl's configuration:

    custom_reward_function.path=examples/verl_reward.py
    custom_reward_function.name=compute_score

`hapo` must be on the PATH, or HAPO must name it. Nothing else is needed: the standard library, no timeouts, and no
process per answer. `python examples/verl_reward.py` tries it.
"""

import json
import os
import subprocess
import threading

_lock = threading.Lock()
_grader = None


def _ask(row):
    """The verdict on one row, from a grader that is started at the first question, once in each process."""
    global _grader
    with _lock:
        if _grader is None or _grader[0] != os.getpid():  # a fork must not share its parent's pipe
            command = [os.environ.get("HAPO", "hapo"), "grade", "--grader", "math"]
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            _grader = (os.getpid(), child)
        child = _grader[1]
        child.stdin.write(json.dumps(row) + "\n")
        child.stdin.flush()
        return json.loads(child.stdout.readline())


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    """1.0 where the completion's answer means the gold answer, else 0.0."""
    return float(_ask({"gold": str(ground_truth), "pred": solution_str})["verdict"] == "correct")


if __name__ == "__main__":
    completions = ["so $x = \\boxed{0.5}$", "it is \\boxed{2}", "I do not know", "a line\nand \\boxed{\\frac{1}{2}}"]
    for it in completions:
        print(compute_score("demo", it, "\\frac{1}{2}"), json.dumps(it))
