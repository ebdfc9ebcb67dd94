"""Logs a run with a tracker's own package. Arguments: tracker, project. Standard input: JSON lines of `hapo export`."""

import importlib
import json
import signal
import sys

tracker, project = sys.argv[1:3]
# Ctrl-C ends the command that writes here; what it has sent is still logged.
signal.signal(signal.SIGINT, signal.SIG_IGN)
try:
    package = importlib.import_module(tracker)
except ImportError as error:
    sys.exit(f"the tracker's package cannot be imported: {error} (pip install {tracker})")

lines = (json.loads(line) for line in sys.stdin)
run = next(lines)
name, settings = run["run"], run["settings"]

if tracker == "wandb":
    logged = package.init(project=project, name=name, config=settings)
    for line in lines:
        logged.log(line["metrics"], step=line["step"])
    logged.finish()
elif tracker == "trackio":
    package.init(project=project, name=name, config=settings)
    for line in lines:
        package.log(line["metrics"], step=line["step"])
    package.finish()
elif tracker == "mlflow":
    package.set_experiment(project)
    with package.start_run(run_name=name):
        # MLflow takes 100 parameters at once, of at most 6000 characters.
        items = [(key, str(value)[:6000]) for key, value in settings.items()]
        for first in range(0, len(items), 100):
            package.log_params(dict(items[first : first + 100]))
        for line in lines:
            # Its names have no `@`.
            metrics = {key.replace("@", "_at_"): it for key, it in line["metrics"].items()}
            package.log_metrics(metrics, step=line["step"])
