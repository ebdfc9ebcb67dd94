#!/usr/bin/env bash
# Trains on a tmpfs that is too small, enlarges it, resumes, and compares with an uninterrupted run.
#   scripts/torture/full_disk.sh [HAPO]      needs the right to mount (root, or user namespaces)
set -euo pipefail
cd "$(dirname "$0")/../.."
hapo="$(realpath "${1:-target/debug/hapo}")"
work="$(mktemp -d)"
trap 'umount "$work/disk" 2>/dev/null || true; rm -rf "$work"' EXIT
mkdir "$work/disk"
mount -t tmpfs -o size=700k tmpfs "$work/disk"
train() {
  "$hapo" train recipes/smoke.toml --quiet --run-dir "$1" "${@:2}" \
    --set 'model={ init = { hidden = 32, layers = 2, heads = 4, kv_heads = 2, ffn = 64, std = 0.3 } }' \
    --set data.prompts=16 --set sampling.group_size=4 --set sampling.prompts_per_step=4 \
    --set loss.entropy_coef=0.01 --set checkpoint.every=2 --set metrics.preflight=0
}
if train "$work/disk/run"; then echo "the disk was not full"; exit 1; fi
df -k "$work/disk" | tail -1
ls "$work/disk/run/checkpoints"
mount -o remount,size=64m "$work/disk"
train "$work/disk/run" --resume
train "$work/whole"
for it in parameters first_moments second_moments; do
  cmp "$work/disk/run/checkpoints/step-000016/trainer_state/$it.f32" "$work/whole/checkpoints/step-000016/trainer_state/$it.f32"
done
echo "equal to an unbroken run"
