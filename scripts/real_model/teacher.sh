#!/usr/bin/env bash
# A student that learns from a teacher, both real: SmolLM2-135M-Instruct on word problems, with solutions of
# Qwen2.5-Coder-1.5B-Instruct, which `hapo serve` serves and `hapo teacher` asks, or with the program's own. GRPO, SFT then
# GRPO, SFT, TRAPO and HAPO, 40 steps each, on 200 held-out problems; the plan is docs/results/plan.md#a-real-teacher.
#
#     scripts/real_model/teacher.sh [TASK-SOURCE [SEED…]]      # story-model 0 by default; HAPO names another binary
#     scripts/real_model/teacher.sh TASK-SOURCE search         # each arm's best setting, for all that follow
#
# TASK is of tasks.py, SOURCE `model` or `own`. COMPUTE=bf16 is the format of the teacher and of the runs, DEVICE=cuda:0
# where they compute, ARMS names some of the arms; with HAPO_THREADS=1 two of these commands run beside each other.
# Everything lies in runs/teacher. What is done is not done again.
# `python3 scripts/real_model/records.py runs/teacher/TASK-SOURCE` makes records of it.
set -euo pipefail
hapo=${HAPO:-target/release/hapo}
on=(--device "${DEVICE:-cpu}" --compute "${COMPUTE:-f32}")
cell=${1:-story-model}
shift || true
task=${cell%-*} source=${cell#*-}
here=runs/teacher/$cell
data=runs/teacher/$task
ask=$'\nWork it out in one line and end with "The answer is" and the number.'
ask_teacher='Explain your reasoning in at most two short sentences. Then write "The answer is" and the number.'
grader='command:python3 scripts/real_model/reward.py' # "the answer is" and the number at the end
student=runs/teacher/smollm2 teacher=runs/teacher/coder
[ -d "$student" ] || scripts/real_model/fetch.sh "$student"
[ -d "$data" ] || python3 scripts/real_model/tasks.py "$task" 620 "$data"
mkdir -p "$here/scores"

traces() { # the teacher's solutions of the training problems, or the program's own
  if [ "$source" = own ]; then
    cp "$data/train.jsonl" "$here/train.jsonl"
    return
  fi
  [ -d "$teacher" ] || scripts/real_model/fetch.sh "$teacher" teacher
  "$hapo" serve --model "$teacher" --served-model-name coder --port 8461 "${on[@]}" > "$here/serve.log" 2>&1 &
  local server=$!
  trap 'kill $server' EXIT
  until curl -sf http://127.0.0.1:8461/v1/models > "$here/models.json"; do
    kill -0 $server || { cat "$here/serve.log" >&2; exit 1; }
    sleep 1
  done
  "$hapo" teacher --input "$data/train.jsonl" --endpoint http://127.0.0.1:8461/v1 --model coder --prompt bare \
    --drop teacher --system "$ask_teacher" --grader "$grader" --attempts 4 --rule first-correct \
    --max-tokens 96 --concurrency 64 --tokenizer "$student" --max-trace-tokens 96 -o "$here/train.jsonl"
  kill $server
  trap - EXIT
}
[ -s "$here/train.jsonl" ] || traces

recipe() { # name options of `hapo new`…
  local name=$1
  shift
  [ -f "$here/$name.toml" ] || "$hapo" new --model "$student" --lora --data "$here/train.jsonl" --grader "$grader" \
    --template chat --no-sample -o "$here/$name.toml" "$@"
}
recipe grpo --steps 40 --method grpo
recipe sft-grpo --steps 20 --method sft,grpo
recipe sft --steps 40 --method sft
recipe trapo --steps 40 --method trapo
recipe hapo --steps 40

finished='import json, sys; json.load(sys.stdin)["finished"] or sys.exit("stopped: the same command continues")'
train() { # arm folder setting keys…
  local arm=$1 run=$2 setting=(--set "optim.lr=$3")
  [ "$arm" = sft-grpo ] && # steps of SFT and the rate of GRPO, as 10-5e-4
    setting=(--set "stage.sft.steps=${3%%-*}" --set "stage.grpo.steps=$((40 - ${3%%-*}))" --set "stage.grpo.optim.lr=${3#*-}")
  shift 3
  [ ! -d "$run" ] || set -- "$@" --resume
  [ ! -f "$run/done" ] || return 0
  "$hapo" train "$here/$arm.toml" --run-dir "$run" --no-preflight "${on[@]}" \
    --set sampling.max_new_tokens=96 --set data.max_prompt_tokens=128 \
    --set "data.template_suffix=$ask" "${setting[@]}" "$@" --json | python3 -c "$finished"
  : > "$run/done"
}

score() { # name file of problems, options of the adapter…
  local name=$1 problems=$2
  shift 2
  [ -s "$here/scores/$name.json" ] && return
  "$hapo" eval --model "$student" "$@" --data "$problems" --template chat --suffix "$ask" --grader "$grader" \
    --temperature 0.6 --max-tokens 96 --k 1 "${on[@]}" \
    --quiet --out "$here/scores/$name.jsonl" --json > "$here/scores/$name.partial"
  mv "$here/scores/$name.partial" "$here/scores/$name.json"
}

last() { # the last checkpoint of a run, of its last stage
  local run=$1
  [ -d "$run/grpo" ] && run=$run/grpo
  local all=("$run"/checkpoints/step-*)
  echo "${all[-1]}"
}

arms=${ARMS:-grpo sft-grpo sft trapo hapo}
chosen=runs/teacher/chosen
if [ "${1:-}" = search ]; then
  for arm in $arms; do
    case $arm in
      sft-grpo) settings='3-5e-4 10-5e-4 20-5e-4 10-1e-4' ;;
      sft) settings='2e-4 5e-4 1e-3' ;;
      grpo) settings='1e-4 2e-4 5e-4 1e-3' ;;
      *) settings='1e-4 2e-4 5e-4' ;;
    esac
    for setting in $settings; do
      train $arm "$here/search-$arm-$setting" "$setting" --set seed=1000
      score "search-$arm-$setting" "$data/development.jsonl" --adapter "$(last "$here/search-$arm-$setting")"
    done
  done
  python3 scripts/real_model/records.py "$here" search | tee "$chosen.partial"
  mv "$chosen.partial" "$chosen"
  exit
fi
score base "$data/held-out.jsonl"
for seed in "${@:-0}"; do
  for arm in $arms; do
    [ "$arm-$source" = grpo-own ] && continue # it sees no solution
    setting=$(awk -v arm=$arm '$1 == arm { print $2 }' "$chosen" 2> /dev/null) || true
    [ $arm = sft-grpo ] && : "${setting:=10-5e-4}"
    train $arm "$here/$arm-$seed" "${setting:-5e-4}" --set "seed=$seed"
    score "$arm-$seed" "$data/held-out.jsonl" --adapter "$(last "$here/$arm-$seed")"
  done
done
