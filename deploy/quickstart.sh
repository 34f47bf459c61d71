#!/usr/bin/env bash
# From a fresh clone to a federation at work: installs what is missing, builds, runs `sheaf demo tags`.
#
#   deploy/quickstart.sh [OPTIONS OF `sheaf demo tags`...]
#
# Builds into build/release; the binaries are in build/release/bin. Safe to run again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

deploy/install-packages.sh --index build >&2

if command -v ccache >/dev/null; then
  faster=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DSHEAF_PCH=OFF)
else
  faster=(-DCMAKE_CXX_COMPILER_LAUNCHER= -DSHEAF_PCH=ON)
fi
cmake --preset release -DSHEAF_UNITY=ON "${faster[@]}" >&2
cmake --build --preset release --target sheaf sheafd sheaf-worker >&2

build/release/bin/sheaf demo tags "$@"
echo "Read on in docs/start.md: a server and workers of your own, and a round by hand. tests/run.sh runs every test." >&2
