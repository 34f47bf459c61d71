#!/bin/sh
# Builds release and measures the server: prints a Markdown table. Arguments go to sheaf_bench (see --help).
#   bench/run.sh
#   bench/run.sh --only sync --seconds 5
#   bench/run.sh --only pipeline --repeats 3 # Rounds that are prepared ahead.
#   bench/run.sh --only python               # Programs and computations in Python, by bench/python.py.
set -eu
cd "$(dirname "$0")/.."
cmake --preset release -DSHEAF_BENCH=ON >&2
if [ "$*" = "--only python" ]; then
  cmake --build --preset release --target sheafd sheaf-worker sheaf_python >&2
  exec /usr/bin/python3 -B bench/python.py build/release/python build/release/bin
fi
cmake --build --preset release --target sheafd sheaf-worker sheaf sheaf_python sheaf_pipeline_worker sheaf_bench sheaf_slow_flush >&2
exec build/release/bin/sheaf_bench --sheafd build/release/bin/sheafd \
  --python-package "$PWD/build/release/python" --python-sleeper "$PWD/bench/pipeline_sleeper.py" \
  --slow-flush "$PWD/build/release/bench/libsheaf_slow_flush.so" "$@"
