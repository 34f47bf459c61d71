#!/usr/bin/env bash
# Fuzzes: builds the preset "fuzz" (clang, libFuzzer, AddressSanitizer, UndefinedBehaviorSanitizer) and runs every
# target from the stored corpus, two at a time; with --in-ctest one at a time, so that other tests may run beside it.
#
#   tests/fuzz/run.sh [SECONDS] [TARGET...]     60 seconds each of contribution, state, spec, keyed, http
#   tests/fuzz/run.sh 3600 state                the long mode is a larger number
#
# What it learns stays in build/fuzz/corpus for the next run; what it finds is kept in build/fuzz/findings, and the
# exit status is 1. A finding belongs into tests/fuzz/corpus/TARGET: then every build tests it.
#
# With --in-ctest it takes the seconds from SHEAF_FUZZ_SECONDS, and is skipped (77) without it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

skip() { echo "fuzzing is skipped: $*"; exit 77; }
at_once=2
if [[ "${1:-}" == --in-ctest ]]; then
  at_once=1
  [[ -n "${SHEAF_FUZZ_SECONDS:-}" ]] || skip "set SHEAF_FUZZ_SECONDS, or run tests/fuzz/run.sh"
  set -- "$SHEAF_FUZZ_SECONDS"
fi
command -v clang++ >/dev/null || skip "there is no clang++; deploy/install-packages.sh fuzz installs it"
compgen -G "$(clang++ -print-resource-dir)/lib/linux/libclang_rt.fuzzer-*.a" >/dev/null ||
  skip "clang++ has no libFuzzer; deploy/install-packages.sh fuzz installs it"

seconds="${1:-60}"
shift || true
targets=("$@")
[[ ${#targets[@]} -gt 0 ]] || targets=(contribution state spec keyed http)

launcher=""
if command -v ccache >/dev/null; then launcher=ccache; fi
cmake --preset fuzz -DSHEAF_UNITY=ON -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher" >/dev/null
cmake --build --preset fuzz -- --quiet -j "$at_once"

fuzz() {
  local name="$1" learnt="build/fuzz/corpus/$1" log="build/fuzz/$1.log"
  mkdir -p "$learnt" build/fuzz/findings
  "build/fuzz/bin/fuzz_$name" -max_total_time="$seconds" -max_len=16384 -len_control=20 -timeout=20 -rss_limit_mb=2048 \
    -malloc_limit_mb=1024 -use_value_profile=1 -print_final_stats=1 -artifact_prefix="build/fuzz/findings/$name-" \
    "$learnt" "tests/fuzz/corpus/$name" >"$log" 2>&1 || true
}

find build/fuzz/findings -type f -delete 2>/dev/null || true
echo "fuzzing ${targets[*]} for $seconds s each, $at_once at a time" >&2
for name in "${targets[@]}"; do
  while [[ $(jobs -rp | wc -l) -ge $at_once ]]; do wait -n; done
  fuzz "$name" &
done
wait

printf '| target | executions | per second | edges covered | features | inputs kept | findings |\n|---|---|---|---|---|---|---|\n'
found_any=0
for name in "${targets[@]}"; do
  log="build/fuzz/$name.log"
  stat() { sed -n "s/^stat::$1: *//p" "$log"; }
  covered="$(grep -oE 'cov: [0-9]+ ft: [0-9]+ corp: [0-9]+' "$log" | tail -1)"
  read -r _ edges _ features _ kept <<<"${covered:-- - - - - -}"
  findings="$(find build/fuzz/findings -name "$name-*" | wc -l)"
  printf '| %s | %s | %s | %s | %s | %s | %s |\n' "$name" "$(stat number_of_executed_units)" \
    "$(stat average_exec_per_sec)" "$edges" "$features" "$kept" "$findings"
  # A fuzzer that ended without its statistics did not run to its end.
  if [[ "$findings" -gt 0 || -z "$(stat number_of_executed_units)" ]]; then
    found_any=1
    echo "--- $log ends with:" >&2
    grep -vE '^#[0-9]+' "$log" | tail -40 >&2
  fi
done
exit "$found_any"
