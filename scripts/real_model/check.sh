#!/usr/bin/env bash
# Compares what hapo reads of a GGUF file with gguf, transformers and llama.cpp, in an environment of its own that takes
# about ten minutes to build: llama.cpp is compiled.
#
#   scripts/real_model/check.sh FILE.gguf [--hapo HAPO] [--tokenizer FOLDER]
set -euo pipefail
cd "$(dirname "$0")/../.."
export TQDM_DISABLE=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/venv"
"$work/venv/bin/pip" --disable-pip-version-check -q install gguf==0.19.0 transformers==5.23.0 accelerate==1.15.0 \
  torch==2.15.0 sentencepiece==0.2.2 llama-cpp-python==0.3.36
"$work/venv/bin/python" scripts/real_model/check.py "$@"
