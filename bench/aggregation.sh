#!/bin/sh
# Builds release and measures the aggregation algebra against numeric libraries, in turns, on one core, and then on all
# cores against one; prints each figure when it is measured, on stderr, and the tables at the end; writes them, with a
# plot, into docs/reference/performance.md.
#   bench/aggregation.sh [REPEATS]     3 by default; about four minutes
set -eu
cd "$(dirname "$0")/.."
repeats="${1:-3}"
cmake --preset release -DSHEAF_BENCH=ON >&2
cmake --build --preset release --target sheaf_aggregation_bench >&2
out="$(mktemp -d)"
trap 'rm -r "$out"' EXIT
before="$(cut -d' ' -f1 /proc/loadavg)"
# As the server does: freed memory is kept, so that a second round does not pay for first touches again.
export MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=1073741824
# measure FILE [COMMAND ...]: by that command, what is written into FILE.
measure() {
  file="$1"
  shift
  "$@" --benchmark_repetitions="$repeats" --benchmark_enable_random_interleaving=false --benchmark_format=console \
    --benchmark_out_format=json --benchmark_out="$out/$file" >&2
}
bench=build/release/bin/sheaf_aggregation_bench
measure one_core.json taskset -c 0 "$bench"
measure all_cores.json "$bench" --threads="$(nproc)" --benchmark_filter=-Yardstick
taskset -c 0 /usr/bin/python3 bench/aggregation/yardsticks.py "$repeats" >"$out/yardsticks.json"
after="$(cut -d' ' -f1 /proc/loadavg)"
/usr/bin/python3 bench/aggregation/report.py "$out/one_core.json" "$out/all_cores.json" "$out/yardsticks.json" \
  "$before" "$after" --write
