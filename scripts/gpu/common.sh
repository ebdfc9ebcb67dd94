# Sourced by the scripts beside it: where things are, and a step with its own limit of time.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=$here/bin
out=${OUT:-$(mktemp -d)}
mkdir -p "$out"
cd "$root" || exit 1
export HAPO_KERNEL_CACHE=$out/kernels PYTHONUNBUFFERED=1
[ -x "$bin/hapo" ] || { echo "run scripts/gpu/prepare where Rust is, and bring $bin along"; exit 2; }

if [ -n "${DRY:-}" ]; then
  # What stands in for the driver, NVRTC and cuBLASLt runs the kernels on the CPU.
  export LD_LIBRARY_PATH=$bin/stand-in HAPO_CUDA_LIBRARIES=$bin/stand-in
  unset HAPO_TEST_GPU
else
  export HAPO_TEST_GPU=0
  # Tests find their data by the path they were compiled at.
  built_at=$(cat "$bin/built_at")
  [ "$built_at" = "$root" ] || { mkdir -p "$(dirname "$built_at")" && ln -sfn "$root" "$built_at"; }
fi

failures=()

# step SECONDS NAME COMMAND...: its last lines, its status and its time.
step() {
  local limit=$1 name=$2 started=$SECONDS status
  shift 2
  echo "== $name"
  timeout -k 5 "$limit" "$@" > "$out/$name.log" 2>&1
  status=$?
  tail -n "${LINES_SHOWN:-25}" "$out/$name.log"
  echo "== $name: status $status, $((SECONDS - started)) s"
  [ $status = 0 ] || failures+=("$name")
  return $status
}

# The same, of what only a machine with a GPU has.
gpu_step() {
  if [ -n "${DRY:-}" ]; then
    echo "== $2: not without a GPU"
  else
    step "$@"
  fi
}

finish() {
  echo "logs in $out, ${SECONDS} s in all"
  if [ ${#failures[@]} -gt 0 ]; then
    echo "failed: ${failures[*]}"
    exit 1
  fi
}
