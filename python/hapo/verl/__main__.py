"""verl's ``main_ppo`` with HAPO's trainer: ``python -m hapo.verl`` and verl's options, and ``+hapo.*``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hapo.verl import plugin
from hapo.verl.settings import MODE, check, check_packages, model_ends


def prepare(config: Any) -> None:
    """Checks a configuration and makes it one of HAPO's."""
    from omegaconf import open_dict

    settings = check(config)
    with open_dict(config):
        if config.trainer.v1.trainer_mode == "sync":
            config.trainer.v1.trainer_mode = MODE
        # What verl saves names it too; else it writes the tokenizer's alone.
        changed = config.actor_rollout_ref.model.override_config
        changed = changed.get("model_config", changed)
        if "eos_token_id" not in changed:
            changed.eos_token_id = model_ends(config).stops
        if settings.run_dir is not None:
            # Ray's processes may stand in another folder.
            config.hapo.run_dir = str(Path(settings.run_dir).resolve())


def main() -> None:
    """Says what is in the way before Ray starts, with status 2."""
    try:
        check_packages()
    except ModuleNotFoundError as problem:
        sys.exit(f"hapo.verl: {problem}")
    import hydra
    import verl.trainer.ppo.v1  # noqa: F401
    from verl.trainer import main_ppo
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config
    from verl.utils.device import auto_set_device

    from hapo.verl import trainer

    def run(config: Any) -> None:
        auto_set_device(config)
        try:
            prepare(config)
        except (ValueError, ModuleNotFoundError) as problem:
            sys.stderr.write(f"hapo.verl: {problem}\n")
            sys.exit(2)
        trainer.check_verl()
        validate_config(
            config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config)
        )
        # Ray's processes import verl, and verl the plug-in.
        modules = [it for it in os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",") if it]
        if plugin.__name__ not in modules:
            os.environ["VERL_USE_EXTERNAL_MODULES"] = ",".join([*modules, plugin.__name__])
        main_ppo.run_ppo(config, task_runner_class=main_ppo.TaskRunnerV1)

    hydra.main(config_path="pkg://verl.trainer.config", config_name="ppo_trainer", version_base=None)(run)()


if __name__ == "__main__":
    main()
