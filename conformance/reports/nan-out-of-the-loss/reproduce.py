"""pip install openrlhf==0.11.2 skyrl==0.4.0 trl==1.16.0 torch; prints a mean over tokens of which one, out of the loss, is NaN."""

import ast
from importlib.util import find_spec
from pathlib import Path
from typing import Optional

import torch

logp = torch.tensor([[-1.0, float("nan"), -2.0]], dtype=torch.float64, requires_grad=True)
mask = torch.tensor([[1.0, 0.0, 1.0]], dtype=torch.float64)


def function(module, file, name):
    """One function of a file, without the rest of its package, which asks for a GPU."""
    folder = Path(find_spec(module).submodule_search_locations[0])
    tree = ast.parse((folder / file).read_text())
    tree.body = [it for it in tree.body if isinstance(it, ast.FunctionDef) and it.name == name]
    names = {"torch": torch, "Optional": Optional}
    exec(compile(tree, file, "exec"), names)
    return names[name]


means = {
    "OpenRLHF masked_mean": function("openrlhf", "models/utils.py", "masked_mean"),
    "SkyRL masked_mean": function("skyrl", "backends/skyrl_train/utils/torch_utils.py", "masked_mean"),
    "TRL, as in GRPOTrainer._compute_loss": lambda it, mask: (it * mask).sum() / mask.sum().clamp(min=1.0),
    "where": lambda it, mask: torch.where(mask.bool(), it, 0.0).sum() / mask.sum(),
}
for name, mean in means.items():
    logp.grad = None
    loss = mean(-logp, mask)
    loss.backward()
    ratio = mean(-logp.exp(), mask)
    (slope,) = torch.autograd.grad(ratio, logp)
    print(f"{name}: loss {loss.item()}, slopes {logp.grad.tolist()[0]}, through exp {slope.tolist()[0]}")
