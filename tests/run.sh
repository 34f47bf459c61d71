#!/usr/bin/env bash
# Runs every test: installs what is missing, builds the preset "release" with its tests, runs CTest.
#
#   tests/run.sh [OPTIONS OF ctest...]     for example: tests/run.sh -R conformance
#
# Safe to run again; shares build/release with deploy/quickstart.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

deploy/install-packages.sh build python torch test

if command -v ccache >/dev/null; then
  # What another checkout has compiled is as good here.
  export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=true
  faster=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DSHEAF_PCH=OFF)
else
  faster=(-DCMAKE_CXX_COMPILER_LAUNCHER= -DSHEAF_PCH=ON)
fi
cmake --preset release -DSHEAF_TESTS=ON -DSHEAF_BENCH=ON -DSHEAF_UNITY=ON "${faster[@]}"
cmake --build --preset release
ctest --preset release -j2 "$@"
