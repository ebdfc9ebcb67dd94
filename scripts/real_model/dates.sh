#!/usr/bin/env bash
# Dates as YYYY-MM-DD by SmolLM2-135M-Instruct: GRPO, SFT, SFT then GRPO, and HAPO, by the recipes that `hapo new`
# writes, on 200 held-out dates. One seed takes 18 CPU minutes, and the same seed prints the same table.
# `few` imitates for 3 steps instead of 10: about as many solutions as HAPO shows.
#
#     scripts/real_model/dates.sh [SEED…]        # 0 by default; HAPO names the binary, if it is another
#
# Everything lies in runs/dates. What is done is not done again. `python3 scripts/real_model/records.py runs/dates` makes
# records of it.
set -euo pipefail
hapo=${HAPO:-target/release/hapo}
here=runs/dates
data=$here/data
[ -d "$here/smollm2" ] || scripts/real_model/fetch.sh "$here/smollm2"
[ -d "$data" ] || python3 scripts/real_model/tasks.py dates 1000 "$data"

recipe() { # name options of `hapo new`…
  local name=$1
  shift
  [ -f "$here/$name.toml" ] || "$hapo" new --model "$here/smollm2" --lora --data "$data/train.jsonl" \
    --test "$data/development.jsonl" -o "$here/$name.toml" "$@"
}
recipe grpo --steps 20 --method grpo --grader exact --extraction whole
recipe sft --steps 20 --method sft
recipe sft-grpo --steps 10 --method sft,grpo
cp "$here/sft-grpo.toml" "$here/few.toml"
recipe hapo --steps 20

evaluate() { # name options of the adapter…
  local name=$1
  shift
  "$hapo" eval --model "$here/smollm2" "$@" --data "$data/held-out.jsonl" --template chat --grader exact \
    --extraction whole --temperature 0.6 --max-tokens 16 --k 1 --out "$here/scores/$name.jsonl" \
    --json > "$here/scores/$name.json"
}
finished='import json, sys; json.load(sys.stdin)["finished"] or sys.exit("stopped: the same command continues")'
mkdir -p "$here/scores"
evaluate base
for seed in "${@:-0}"; do
  compared=(base="$here/scores/base.jsonl")
  for arm in grpo sft sft-grpo few hapo; do
    run=$here/$arm-$seed steps=()
    [ $arm = few ] && steps=(--set stage.sft.steps=3 --set stage.grpo.steps=17)
    [ ! -d "$run" ] || steps+=(--resume)
    [ -f "$run/done" ] || "$hapo" train "$here/$arm.toml" --run-dir "$run" --set "seed=$seed" --set compute=f32 \
      --set eval.k=1 "${steps[@]}" --json | python3 -c "$finished"
    : > "$run/done"
    of_stage=$run
    [ -d "$run/grpo" ] && of_stage=$run/grpo
    last=("$of_stage"/checkpoints/step-*)
    evaluate "$arm-$seed" --adapter "${last[-1]}"
    compared+=("$arm=$here/scores/$arm-$seed.jsonl")
  done
  "$hapo" eval --compare "${compared[@]}"
done
"$hapo" report "$here"/*-[0-9]* -o "$here/report.html" --figures "$here/figures"
