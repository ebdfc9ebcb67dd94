#!/usr/bin/env bash
# Kills the real binary with SIGKILL at random moments and compares what comes out with an unbroken run,
# bit for bit. Prints kills, starts, runs and mismatches.
#   scripts/torture/kill.sh [KILLS]
set -euo pipefail
cd "$(dirname "$0")/../.."
HAPO_KILLS="${1:-60}" cargo test -p hapo-cli --test it -- --nocapture a_killed_run
