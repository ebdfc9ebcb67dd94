#!/usr/bin/env bash
# GRPO, HAPO, SFT, and SFT followed by GRPO on the JSON task: 12 steps each, three seeds; scores on the held-out problems.
#
#     scripts/real_model/arms.sh [FOLDER]        # runs/real by default, with smollm2 and json in it
#
# Needs recipes/real/smollm2-json.toml's model and problems. HAPO names the release binary, if it is another. What is
# done is not done again; scripts/real_model/records.py makes records and the table of it.
set -euo pipefail
hapo=${HAPO:-target/release/hapo}
here=${1:-runs/real}
recipe=recipes/real/smollm2-json.toml
imitate=(--set method=sft --unset sampling.group_size --unset metrics.preflight)

train() { # name seed steps more…
  local run=$here/$1 seed=$2 steps=$3
  shift 3
  [ -d "$run/checkpoints/step-$(printf %06d "$steps")" ] && return
  rm -rf "$run"
  "$hapo" train $recipe --run-dir "$run" --quiet --set "seed=$seed" --set "steps=$steps" --set "eval.every=$steps" "$@"
}

evaluate() { # name model more…
  local out=$here/scores/$1
  shift
  [ -s "$out.json" ] && return
  mkdir -p "$here/scores"
  "$hapo" eval --model "$@" --compute bf16 --temperature 1 --max-tokens 48 --template chat --k 4 --reward-workers 1 \
    --grader 'command:python3 scripts/real_model/reward.py' --data "$here/json/held-out.jsonl" --out "$out.jsonl" \
    --json > "$out.partial"
  mv "$out.partial" "$out.json"
}

evaluate base "$here/smollm2"
for seed in 0 1 2; do
  train "grpo-$seed" "$seed" 12
  train "hapo-$seed" "$seed" 12 --set method=trapo --set hapo.turn_off_epoch=0.03
  train "sft-$seed" "$seed" 12 "${imitate[@]}"
  for arm in grpo hapo sft; do
    evaluate "$arm-$seed" "$here/smollm2" --adapter "$here/$arm-$seed/checkpoints/step-000012"
  done
  # Six steps of imitation, merged into the weights, then six of GRPO.
  train "first-$seed" "$seed" 6 "${imitate[@]}"
  [ -d "$here/imitated-$seed" ] ||
    "$hapo" merge --model "$here/smollm2" --adapter "$here/first-$seed/checkpoints/step-000006" -o "$here/imitated-$seed"
  train "then-$seed" "$seed" 6 --set "model.path=$here/imitated-$seed"
  evaluate "sft-grpo-$seed" "$here/imitated-$seed" --adapter "$here/then-$seed/checkpoints/step-000006"
done
