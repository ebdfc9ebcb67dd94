"""A whole HAPO training loop, stage by stage, with the weights of ``examples/loop.rs``.

python examples/python/loop.py [FOLDER]        # twelve steps on the built-in base, saved into the folder
"""

from __future__ import annotations

import sys

import hapo

GROUP_SIZE, PROMPTS_PER_STEP, MAX_TOKENS = 8, 8, 96


def main() -> None:
    model = hapo.load("builtin:base", context=128, threads=2)
    rows = hapo.task({"linear": 4}, 64, teacher_coverage=0.5)
    prompts = model.prompts(rows, max_prompt_tokens=32, max_tokens=MAX_TOKENS)

    # TRAPO's terms behind HAPO's gate: the teacher enters groups without a success, until the second epoch.
    schedule = hapo.Schedule(GROUP_SIZE, len(prompts) // PROMPTS_PER_STEP, turn_off_epoch=1)
    method = hapo.Method("trapo", GROUP_SIZE, schedule=schedule)
    loss = hapo.Loss("constant", max_response=MAX_TOKENS)

    rewards = []
    for step in range(1, 13):
        batch = [prompts[it] for it in hapo.order(step, len(prompts), PROMPTS_PER_STEP)]
        sampled = model.sample(batch, GROUP_SIZE, max_tokens=MAX_TOKENS, step=step)
        groups, correct = [], 0.0
        for prompt, rollouts in zip(batch, sampled, strict=True):
            scores = [hapo.grade(prompt.answer, it.text).reward for it in rollouts]
            correct += sum(scores)
            group = hapo.group(method, prompt, rollouts, scores, step=step)
            groups.append((prompt, group, method.credit(group)))
        numbers = model.gradient(groups, loss)
        model.update(4e-4)
        rewards.append(correct / (GROUP_SIZE * PROMPTS_PER_STEP))
        print(f"step {step:2}: reward {rewards[-1]:.3f}, loss {numbers['loss']:+.4f}")
    if len(sys.argv) > 1:
        model.save(sys.argv[1])
    print(f"the policy-only reward rose from {sum(rewards[:5]) / 5:.3f} to {sum(rewards[-5:]) / 5:.3f}")


if __name__ == "__main__":
    main()
