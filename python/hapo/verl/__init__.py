"""HAPO inside verl: the trainer ``hapo_sync``, started by ``python -m hapo.verl`` with verl's options and ``+hapo.*``.

Here nothing of verl is imported: Ray's processes unpickle by module names before verl is there. verl loads
``hapo.verl.plugin`` by the entry point ``verl.plugins``, and that ``hapo.verl.trainer`` where trainers are imported.
"""

from hapo._rewards import compute_score
from hapo.verl.settings import Settings, check

__all__ = ["Settings", "check", "compute_score"]
