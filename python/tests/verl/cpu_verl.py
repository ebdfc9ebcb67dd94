"""Stock verl on a CPU: a platform, gloo, and a rollout whose server is a Ray actor. No part of verl is changed.

verl loads this module in each of its processes by ``VERL_USE_EXTERNAL_MODULES``; ``cpu_environment`` says the rest.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
import torch.distributed
from verl.plugin.platform import PlatformRegistry
from verl.plugin.platform.platform_base import PlatformBase

from hapo.verl.plugin import after


class Device(ModuleType):
    """The functions of ``torch.cpu``; what it lacks does nothing and is 0."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "mem_get_info":
            return lambda *_: (1 << 34, 1 << 34)
        if name == "get_device_name":
            return lambda *_: "CPU"
        return getattr(torch.cpu, name, lambda *_, **__: 0)


@PlatformRegistry.register("hapo_cpu")
class PlatformCPU(PlatformBase):
    """Ranks are processes; Ray's accelerators are slots without a device."""

    device_name = "cpu"
    vendor_name = "hapo"
    device_module = Device("device")

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        pass

    def synchronize(self, device_index: int | None = None) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        pass

    def manual_seed_all(self, seed: int) -> None:
        pass

    def set_allocator_settings(self, settings: str) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str):
        yield

    def profiler_start(self) -> None:
        pass

    def profiler_stop(self) -> None:
        pass

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None


def gloo_once(*arguments: Any, backend: str | None = None, **keywords: Any) -> Any:
    """verl asks for `cpu:gloo,cpu:gloo`, which torch refuses."""
    if backend == "cpu:gloo,cpu:gloo":
        backend = "gloo"
    return _init_process_group(*arguments, backend=backend, **keywords)


# FSDP pins what it offloads, for copies to a GPU: verl offloads a reference model always.
torch.Tensor.pin_memory = lambda tensor, *_: tensor
_init_process_group = torch.distributed.init_process_group
torch.distributed.init_process_group = gloo_once


def _replica() -> type:
    from cpu_rollout import CpuReplica

    return CpuReplica


def _adapter() -> None:
    import verl.workers.rollout.base as base

    base._ROLLOUT_REGISTRY["hapo_cpu", "async"] = "cpu_rollout.CpuRollout"


def _server() -> None:
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    RolloutReplicaRegistry.register("hapo_cpu", _replica)


def _recorded() -> None:
    import recorded  # noqa: F401


after("verl.workers.rollout.base", _adapter)
after("verl.workers.rollout.replica", _server)
if os.environ.get("HAPO_TEST_RECORD"):
    after("verl.trainer.ppo.v1.trainer_sync", _recorded)
