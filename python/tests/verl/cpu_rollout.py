"""A rollout for a CPU: each rank's server is a Ray actor with the model of transformers, and samples in batches.

Nothing of verl is imported at the top: an actor's class is unpickled by its module's name before verl is imported.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import ray
import torch


class Sampler:
    """Holds the weights and answers requests; those that wait are sampled together."""

    def __init__(self, model_path: str, ends: list[int], pad: int, longest: int, forbid_end: bool) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM

        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model_path)).float().eval()
        self.ends, self.pad, self.longest, self.forbid_end = ends, pad, longest, forbid_end
        self.steps = 0
        self.waiting: list[tuple[list[int], dict[str, Any], asyncio.Future]] = []
        self.asked: dict[tuple[int, ...], int] = {}
        self.task: asyncio.Task | None = None

    async def load(self, tensors: dict[str, Any], steps: int | None) -> None:
        """New weights; tied ones need be there once only."""
        named = {name: torch.from_numpy(it.copy()) for name, it in tensors.items()}
        missing, unexpected = self.model.load_state_dict(named, strict=False)
        assert not unexpected, unexpected
        assert set(missing) <= {"lm_head.weight"}, missing
        self.model.tie_weights()
        self.steps = steps or 0
        self.asked.clear()

    async def generate(self, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str, **_: Any) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        found = asyncio.get_running_loop().create_future()
        self.waiting.append((list(prompt_ids), sampling_params, found))
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self.serve())
        tokens, log_probs = await found
        reason = "completed" if tokens and tokens[-1] in self.ends else "length"
        return TokenOutput(
            token_ids=tokens, log_probs=log_probs, stop_reason=reason, extra_fields={"global_steps": self.steps}
        )

    async def serve(self) -> None:
        """Waits until no more requests come."""
        seen = -1
        while seen != len(self.waiting):
            seen = len(self.waiting)
            await asyncio.sleep(0.1)
        while self.waiting:
            batch, self.waiting = self.waiting[:256], self.waiting[256:]
            for it, answer in zip(batch, self.sample([it[:2] for it in batch]), strict=True):
                it[2].set_result(answer)
            await asyncio.sleep(0)

    @torch.no_grad()
    def sample(self, requests: list[tuple[list[int], dict[str, Any]]]) -> list[tuple[list[int], list[float]]]:
        """Draws depend on the prompt, how often it was asked for, and the weights' version."""
        draws = []
        for prompt, _ in requests:
            key = tuple(prompt)
            turn = self.asked.get(key, 0)
            self.asked[key] = turn + 1
            digest = hashlib.sha256(f"{key} {turn} {self.steps}".encode()).digest()
            draws.append(torch.Generator().manual_seed(int.from_bytes(digest[:7], "little")))
        numbers = torch.stack([torch.rand(self.longest, generator=it) for it in draws])
        temperatures = torch.tensor([[float(params.get("temperature", 1.0))] for _, params in requests])
        greedy, heat = temperatures == 0, torch.where(temperatures == 0, 1.0, temperatures)
        width = max(len(it) for it, _ in requests)
        ids = torch.tensor([[self.pad] * (width - len(it)) + it for it, _ in requests])
        mask = torch.tensor([[0] * (width - len(it)) + [1] * len(it) for it, _ in requests])
        tokens: list[list[int]] = [[] for _ in requests]
        log_probs: list[list[float]] = [[] for _ in requests]
        open_ = [True] * len(requests)
        cache = None
        for position in range(self.longest):
            positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
            out = self.model(
                input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
            )
            cache = out.past_key_values
            logits = out.logits[:, -1].float()
            if self.forbid_end:
                logits[:, self.ends] = -torch.inf
            of_rows = (logits / heat).log_softmax(-1)
            below = of_rows.exp().cumsum(-1)
            # The token at which the cumulated probability passes the row's own number.
            number = numbers[:, [position]] * below[:, -1:]
            drawn = torch.where(
                greedy, of_rows.argmax(-1, keepdim=True), torch.searchsorted(below, number, right=True)
            ).clamp(max=of_rows.shape[1] - 1)
            taken = of_rows.gather(1, drawn)[:, 0].tolist()
            for row, token in enumerate(drawn[:, 0].tolist()):
                if open_[row]:
                    tokens[row].append(token)
                    log_probs[row].append(taken[row])
                    open_[row] = token not in self.ends and len(tokens[row]) < self.longest
            if not any(open_):
                break
            ids = drawn
            mask = torch.cat([mask, torch.ones(len(requests), 1, dtype=mask.dtype)], 1)
        return list(zip(tokens, log_probs, strict=True))

    async def nothing(self, *_: Any, **__: Any) -> None:
        """What a server does with memory and profiles."""

    wake_up = sleep = abort_all_requests = resume_generation = clear_kv_cache = nothing
    release_kv_cache = resume_kv_cache = start_profile = stop_profile = nothing


def __getattr__(name: str) -> Any:
    """The classes that derive from verl's, made when verl asks for them."""
    import os

    from verl.workers.rollout.base import BaseRollout
    from verl.workers.rollout.replica import RolloutReplica

    class CpuRollout(BaseRollout):
        """The trainer's side: sends the weights to the server of its rank."""

        async def resume(self, tags: list[str]) -> None:
            pass

        async def release(self) -> None:
            pass

        async def update_weights(self, weights: Any, global_steps: int | None = None, **_: Any) -> None:
            tensors = {
                name: (it.full_tensor() if hasattr(it, "full_tensor") else it).detach().float().cpu().numpy()
                for name, it in weights
            }
            server = ray.get_actor(f"hapo_cpu_server_{torch.distributed.get_rank()}")
            await server.load.remote(tensors, global_steps)

    class CpuReplica(RolloutReplica):
        """The server's side."""

        async def launch_servers(self) -> None:
            from transformers import AutoTokenizer, GenerationConfig

            path = self.model_config.path
            tokenizer = AutoTokenizer.from_pretrained(path)
            # As vLLM: the tokenizer's end token, and those of generation_config.json.
            named = GenerationConfig.from_pretrained(path).eos_token_id
            ends = [tokenizer.eos_token_id, *(named if isinstance(named, list) else [named])]
            actor = ray.remote(Sampler).options(
                name=f"hapo_cpu_server_{self.replica_rank}", num_cpus=0.1, max_concurrency=2000
            )
            server = actor.remote(
                path, ends, tokenizer.pad_token_id, self.config.response_length,
                bool(os.environ.get("HAPO_TEST_FORBID_END")),
            )  # fmt: skip
            self.servers = [server]
            self._server_handle = server
            self._server_address = f"hapo-cpu-{self.replica_rank}"

    made = {"CpuRollout": CpuRollout, "CpuReplica": CpuReplica}
    if name not in made:
        raise AttributeError(name)
    globals().update(made)
    return made[name]
