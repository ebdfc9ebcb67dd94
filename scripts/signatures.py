"""Checks, in an environment with the newest TRL or verl, the signatures that the package `hapo` relies on.

Usage: python scripts/signatures.py trl|verl
"""

import importlib.metadata
import importlib.util
import pathlib
import re
import sys
import warnings


def trl():
    """`hapo.trl` checks the methods that it overrides itself; a version that no test runs is a warning."""
    import hapo.trl

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hapo.trl._check_trl()
    return len(hapo.trl.OVERRIDDEN)


def verl():
    """verl calls a reward function by these names, and `hapo.verl` checks the methods that it overrides."""
    import inspect

    import hapo

    ours = set(inspect.signature(hapo.compute_score).parameters)
    folder = pathlib.Path(importlib.util.find_spec("verl").submodule_search_locations[0])
    wanted, calls = {"data_source", "solution_str", "ground_truth", "extra_info"}, 0
    assert wanted <= ours, ours
    for path in folder.rglob("*.py"):
        for call in re.findall(r"compute_score\((.*?)\)", path.read_text(), re.DOTALL):
            calls += wanted <= set(re.findall(r"(\w+)\s*=", call))
    assert calls, "no call of compute_score with the names that it has here"
    from hapo.verl.trainer import check_verl

    return calls + check_verl()


if __name__ == "__main__":
    package = sys.argv[1]
    count = {"trl": trl, "verl": verl}[package]()
    print(f"{package} {importlib.metadata.version(package)}: {count} signatures as expected")
