"""verl's command for each row, from its recipe."""

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from paper_size.data import prepare
from paper_size.rows import Paper, Recipe, call, has_weights

NORMALISERS = {
    "token-mean": "token-mean",
    "sequence-mean": "seq-mean-token-mean",
    "constant": "seq-mean-token-sum-norm",
}
LOOK_EVERY = 20
"""Steps between two looks at the held-out part."""


def commands(paper: Paper) -> None:
    for name, stages in paper.rows.items():
        for number in range(len(stages)):
            print(f"# {name}\n{shlex.join(command(paper, name, number))}\n")


def train(paper: Paper) -> None:
    prepare(paper)
    for name, stages in paper.rows.items():
        for number in range(len(stages)):
            if has_weights(paper.checkpoint(name, number)):
                print(f"{name}: stage {number + 1} is done", flush=True)
                continue
            folder = paper.stage(name, number)
            folder.mkdir(parents=True, exist_ok=True)
            line = command(paper, name, number)
            (folder / "command.txt").write_text(shlex.join(line) + "\n")
            # verl empties the file at its start.
            log = folder / f"verl-{len(list(folder.glob('verl-*.jsonl')))}.jsonl"
            call(line, env={**os.environ, "VERL_FILE_LOGGER_PATH": str(log)}, cwd=folder)


def command(paper: Paper, name: str, number: int) -> list[str]:
    """verl's command of a row's stage."""
    recipe = paper.rows[name][number]
    folder, model = paper.stage(name, number), paper.model
    if str(recipe["model.path"]).startswith("stage:"):
        model = paper.checkpoint(name, number - 1)
    options, own = (
        (imitation, paper.args.sft_option) if recipe["method"] == "sft" else (reinforcement, paper.args.option)
    )
    loggers = "console,file,wandb" if paper.args.wandb else "console,file"
    logged = [f"trainer.logger=[{loggers}]", f"trainer.project_name=hapo-{paper.args.size}"]
    return [*options(paper, recipe, model, folder), *logged, f"trainer.experiment_name={name}-{number + 1}", *own]


def imitation(paper: Paper, r: Recipe, model: Path, folder: Path) -> list[str]:
    gpus, steps = paper.args.gpus, paper.steps(r)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={gpus}", "-m"]
    return [
        *launcher, "verl.trainer.sft_trainer", f"data.train_files={paper.pairs}",
        f"data.train_batch_size={r['sampling.prompts_per_step']}",
        f"data.max_length={r['data.max_prompt_tokens'] + r['sampling.max_new_tokens']}",
        f"data.max_token_len_per_gpu={tokens_of(r)}", f"model.path={model}",
        f"optim.lr={r['optim.lr']}", f"optim.betas=[{','.join(map(str, r['optim.betas']))}]",
        f"optim.weight_decay={r['optim.weight_decay']}", f"optim.clip_grad={r['optim.max_grad_norm']}",
        f"optim.lr_warmup_steps_ratio={r['optim.warmup']}",
        "checkpoint.save_contents=[model,optimizer,extra,hf_model]", f"trainer.total_training_steps={steps}",
        "trainer.total_epochs=1000", f"trainer.save_freq={r['checkpoint.every'] or steps}",
        "trainer.max_ckpt_to_keep=2", f"trainer.seed={r['seed']}", f"trainer.default_local_dir={folder}/checkpoints",
        "trainer.resume_mode=auto", f"trainer.n_gpus_per_node={gpus}",
    ]  # fmt: skip


def reinforcement(paper: Paper, r: Recipe, model: Path, folder: Path) -> list[str]:
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    prompts, mode = r["sampling.prompts_per_step"], NORMALISERS.get(r["loss.normaliser"], r["loss.normaliser"])
    tokens, longest = r["sampling.max_new_tokens"], r["data.max_prompt_tokens"] + r["sampling.max_new_tokens"]
    steps = paper.steps(r)
    return [
        sys.executable, "-m", "hapo.verl", *gate(r), f"+hapo.run_dir={folder}/run", f"+hapo.seed={r['seed']}",
        f"+hapo.rollouts_every={r['metrics.rollouts_every']}", f"+hapo.truncated={r['data.truncated']}",
        f"data.train_files={paper.trained}", f"data.val_files={paper.held_out}", f"data.train_batch_size={prompts}",
        f"data.max_prompt_length={r['data.max_prompt_tokens']}", f"data.max_response_length={tokens}",
        "data.filter_overlong_prompts=True", f"data.seed={r['seed']}",
        f"actor_rollout_ref.model.path={model}", "actor_rollout_ref.model.use_remove_padding=True",
        "actor_rollout_ref.model.enable_gradient_checkpointing=True", f"{actor}.strategy=fsdp2",
        f"{actor}.optim.lr={r['optim.lr']}", f"{actor}.optim.betas=[{','.join(map(str, r['optim.betas']))}]",
        f"{actor}.optim.weight_decay={r['optim.weight_decay']}", f"{actor}.grad_clip={r['optim.max_grad_norm']}",
        f"{actor}.ppo_mini_batch_size={r['optim.mini_batch_prompts'] or prompts}",
        f"{actor}.ppo_epochs={r['optim.passes']}", f"{actor}.use_dynamic_bsz=True",
        f"{actor}.ppo_max_token_len_per_gpu={max(tokens_of(r), longest)}",
        f"{actor}.clip_ratio_low={r['loss.clip_low']}", f"{actor}.clip_ratio_high={r['loss.clip_high']}",
        f"{actor}.loss_agg_mode={mode}", f"{actor}.loss_scale_factor={tokens}",
        f"{actor}.entropy_coeff={r['loss.entropy_coef']}",
        # The KL to the start is measured, and no term of the loss.
        f"{actor}.use_kl_loss={r['metrics.kl_every'] > 0}", f"{actor}.kl_loss_coef=0.0",
        f"{actor}.checkpoint.save_contents=[model,optimizer,extra,hf_model]",
        f"{rollout}.name=vllm", f"{rollout}.n={r['sampling.group_size']}",
        f"{rollout}.temperature={r['sampling.temperature']}", f"{rollout}.top_p={r['sampling.top_p']}",
        f"{rollout}.tensor_model_parallel_size=1", f"{rollout}.calculate_log_probs=True",
        f"{rollout}.log_prob_use_dynamic_bsz=True",
        "algorithm.adv_estimator=grpo", f"algorithm.norm_adv_by_std_in_grpo={r['advantage.std']}",
        "algorithm.use_kl_in_reward=False", "reward.custom_reward_function.path=pkg://hapo",
        "reward.custom_reward_function.name=compute_score", "trainer.total_epochs=1000",
        f"trainer.total_training_steps={steps}", f"trainer.save_freq={r['checkpoint.every'] or steps}",
        "trainer.max_actor_ckpt_to_keep=2", "trainer.val_before_train=True", f"trainer.test_freq={LOOK_EVERY}",
        f"trainer.default_local_dir={folder}/checkpoints", "trainer.resume_mode=auto",
        "trainer.nnodes=1", f"trainer.n_gpus_per_node={paper.args.gpus}",
    ]  # fmt: skip


def gate(r: Recipe) -> Iterator[str]:
    """The method and when its teacher enters. A recipe without [hapo] has the method's own slot."""
    yield f"+hapo.method={r['method']}"
    if r["method"] in ("grpo", "maxrl"):
        return
    gate, *own = r["given"].values()
    if gate is None:
        yield "+hapo.gate=own"
    yield from (f"+hapo.{key}={r[f'hapo.{key}']}" for key in gate or ())
    # What verl has no place for is refused there, by its name.
    for section, keys in zip(("srft", "trapo"), own, strict=True):
        yield from (f"+hapo.{section}.{key}={value}" for key, value in (keys or {}).items())
    yield f"+hapo.teacher.weight={r['teacher.weight']}"
    yield f"+hapo.teacher.d={r['teacher.d']}"


def tokens_of(r: Recipe) -> int:
    """Tokens of a micro-batch; `auto` looks at this machine, which is not the one that trains."""
    found = r["optim.micro_batch_tokens"]
    return 8192 if found == "auto" else int(found)
