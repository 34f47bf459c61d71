#!/usr/bin/env bash
# Runs release 0.1 and this build against each other, both ways, while servers and workers are killed.
#
#   tests/compat/run.sh [OPTIONS] [-- OPTIONS OF compat_test...]
#
# --build-only      builds 0.1 and runs nothing
# --if-built        runs nothing where 0.1 was not built before
# --tests PROGRAM   this build's compat_test; without it, build/release/bin/compat_test
#
# Builds sheafd, sheaf-worker and sheaf from the commit in tests/compat/release_0.1, out of git's history, under
# build/compat, or under $SHEAF_COMPAT_BUILD. That takes five minutes on two cores, and less with ccache; what was built
# is used again. Ends with 77 where it cannot be built: there is no history, or no compiler. For one test:
#
#   tests/compat/run.sh -- "A store that 0.1 left in the middle of its rounds*"
set -euo pipefail
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"

say() { printf '%s\n' "compat: $*"; }
die() { say "$*" >&2; exit 1; }
skip() { say "skipped: $*"; exit 77; }

build_only=false
if_built=false
tests="$repository/build/release/bin/compat_test"
while [[ $# -gt 0 ]]; do
  case "$1" in
    --build-only) build_only=true ;;
    --if-built) if_built=true ;;
    --tests)
      [[ $# -gt 1 ]] || die "--tests needs a value; see --help"
      tests="$2"
      shift
      ;;
    --) shift; break ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) die "unknown option $1; see --help" ;;
  esac
  shift
done

commit="$(cat "$repository/tests/compat/release_0.1")"
home="${SHEAF_COMPAT_BUILD:-$repository/build/compat}/${commit:0:12}"

# Leaves nothing half done: bin appears when all three are built, and one run waits for another's.
build() {
  git -C "$repository" cat-file -e "$commit^{commit}" 2>/dev/null ||
    skip "the history here does not have release 0.1, commit ${commit:0:12}: clone all of it, or git fetch --unshallow"
  local tool
  for tool in cmake ninja c++; do
    command -v "$tool" >/dev/null || skip "release 0.1 cannot be built without $tool: deploy/install-packages.sh build"
  done
  mkdir -p "$home"
  exec 9>"$home/lock"
  flock 9
  [[ ! -d "$home/bin" ]] || return 0
  local start="$SECONDS" faster=()
  if command -v ccache >/dev/null; then
    faster=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    # What one clone has compiled another finds, wherever it is.
    export CCACHE_BASEDIR="$home" CCACHE_NOHASHDIR=1
  fi
  say "builds release 0.1, commit ${commit:0:12}, once; the log is $home/log"
  rm -rf "$home/source"
  mkdir "$home/source"
  git -C "$repository" archive "$commit" | tar -x -C "$home/source"
  {
    cmake -G Ninja -S "$home/source" -B "$home/objects" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O2 \
      -DSHEAF_TESTS=OFF -DSHEAF_BENCH=OFF "${faster[@]}" &&
      cmake --build "$home/objects" --target sheaf sheafd sheaf-worker
  } >"$home/log" 2>&1 || {
    tail -n 30 "$home/log"
    die "release 0.1 did not build; the log is $home/log"
  }
  mv "$home/objects/bin" "$home/bin"
  rm -rf "$home/source" "$home/objects"
  say "built in $((SECONDS - start)) s: $home/bin"
}

if [[ ! -d "$home/bin" ]]; then
  "$if_built" && skip "release 0.1 is not built; tests/compat/run.sh builds it, once, and so does -DSHEAF_COMPAT=ON"
  build
fi
"$build_only" && exit 0

[[ -x "$tests" ]] || die "there is no $tests: tests/run.sh -R compat_test builds it and runs this"
say "of 0.1: $("$home/bin/sheafd" --version), commit ${commit:0:12}; of this build: $("$(dirname "$tests")/sheafd" --version)"
SHEAF_COMPAT_PROGRAMS="$home/bin" exec "$tests" --durations yes "$@"
