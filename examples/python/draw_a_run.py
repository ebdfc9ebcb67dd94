# %% [markdown]
# # Draw a run
# The folder of a run is the first argument, such as the one that `hapo train` or `hapo quickstart` names.

# %%
import sys

import numpy as np

import hapo

run = hapo.Run(sys.argv[1])
metrics = run.metrics

# %% The table: a frame of pandas or polars where one is installed, else NumPy's columns.
try:
    print(run.frame())
except ImportError:
    print(f"{len(metrics)} metrics of {len(metrics['step'])} steps; last reward {metrics['reward/mean'][-1]:.3f}")

# %% The figure, where matplotlib is installed; a line of blocks otherwise.
rewards = metrics["reward/policy_only"]
try:
    import matplotlib.pyplot as plt
except ImportError:
    blocks = np.asarray(list(" ▁▂▃▄▅▆▇█"))
    print("".join(blocks[np.clip(np.nan_to_num(rewards) * 8, 0, 8).astype(int)]))
else:
    plt.plot(metrics["step"], rewards, label="policy")
    plt.plot(metrics["step"], metrics["gate/beta"], label="groups with the teacher")
    plt.legend()
    plt.savefig("run.svg")

# %% What was written, and why it was right or wrong.
for step in run.steps[-1:]:
    for rollout in list(run.rollouts(step))[:3]:
        print(rollout["verdict"], "|", rollout["completion"][:70].replace("\n", " "))
print("checkpoints:", ", ".join(str(it) for it in run.checkpoints.values()))
