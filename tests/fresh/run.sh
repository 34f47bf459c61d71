#!/usr/bin/env bash
# Does what the README tells a newcomer to do, on machines that have never seen us: in a minimal Debian 12, and in one
# where somebody has installed a compiler and two libraries before.
#
#   tests/fresh/run.sh [OPTIONS]
#
# --quick          the packages and CMake's configuration only; nothing is built
# --guide          types docs/guides/your-own-model.md instead, as it stands, and looks how well the model has learned
# --only MACHINE   minimal or used; without it, both
# --commit REV     clones this commit; without it, the one that is checked out
# --root DIR       makes the machines under DIR, which has room for 4 GB each; without it, under $TMPDIR
# --keep           leaves them there
#
# Needs root (it makes the machines with debootstrap and enters them with chroot), and a Debian archive, the one that
# this machine's apt uses. What it mounts lives in a mount namespace, what it starts in a process namespace: both are
# gone when it ends, however it ends. Changes that are not committed are not tested.
set -euo pipefail
# Where the machine's commands find their own.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"

say() { printf '%s\n' "fresh: $*"; }
die() { say "$*" >&2; exit 1; }

release=bookworm
quick=false
guide=false
keep=false
commit=HEAD
parent="${TMPDIR:-/tmp}"
machines=(minimal used)
while [[ $# -gt 0 ]]; do
  case "$1" in
    --quick) quick=true ;;
    --guide) guide=true ;;
    --keep) keep=true ;;
    --only | --commit | --root)
      [[ $# -gt 1 ]] || die "$1 needs a value; see --help"
      case "$1" in
        --only) machines=("$2") ;;
        --commit) commit="$2" ;;
        --root) parent="$2" ;;
      esac
      shift
      ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) die "unknown option $1; see --help" ;;
  esac
  shift
done
for machine in "${machines[@]}"; do
  [[ "$machine" == minimal || "$machine" == used ]] || die "there is no machine $machine; choose minimal or used"
done

[[ "$(id -u)" -eq 0 ]] || die "needs root, to make a machine and to enter it: run it as root"
for tool in debootstrap unshare git; do
  command -v "$tool" >/dev/null || die "needs $tool: deploy/install-packages.sh fresh"
done
commit="$(git -C "$repository" rev-parse --verify --quiet "$commit^{commit}")" || die "there is no such commit"
# What is run here is what the README says.
for command in deploy/quickstart.sh tests/run.sh; do
  grep -qx "$command" "$repository/README.md" || die "README.md does not tell people to run $command any more"
done

mkdir -p "$parent"
home="$(mktemp -d "$parent/sheaf-fresh.XXXXXX")"
running=""
clean_up() {
  # A step has a process group of its own; what it started in a machine dies with the group's unshare.
  if [[ -n "$running" ]]; then
    kill -KILL -- "-$running" 2>/dev/null || true
    wait "$running" 2>/dev/null || true
    sleep 1
  fi
  if "$keep"; then
    say "kept: $home"
  else
    # Nothing is mounted here: what was is gone with its namespace. Were it not, the mount would not be entered.
    rm -rf --one-file-system "$home"
  fi
}
trap clean_up EXIT
trap 'say "interrupted"; exit 130' INT TERM HUP

# Runs a command with what it prints in a file, which is shown if it fails; then says how long it took.
step() {
  local what="$1" start="$SECONDS" code=0
  shift
  set -m
  ("$@") >"$home/log" 2>&1 </dev/null &
  running="$!"
  set +m
  wait "$running" || code="$?"
  running=""
  if [[ "$code" -eq 0 ]]; then
    printf 'fresh:   %-54s %4d s\n' "$what" "$((SECONDS - start))"
  else
    # What a test says of its failure stands before what those after it print.
    grep --before-context=8 --after-context=12 'FAILED:$' "$home/log" | head -n 80 || true
    tail -n 60 "$home/log"
    die "FAILED after $((SECONDS - start)) s: $what (exit code $code); its last lines are above"
  fi
}

# In a machine, with proc, sys and dev; what it starts ends with it.
enter() {
  local root="$1"
  shift
  unshare --mount --propagation private --pid --fork --kill-child -- bash -euc '
    root="$1"
    shift
    mount -t proc proc "$root/proc"
    mount -t sysfs sysfs "$root/sys"
    mount --rbind /dev "$root/dev"
    mount --bind "$root/../packages" "$root/var/cache/apt/archives"
    cd "$root"
    exec chroot . /bin/bash -c "cd /srv/sheaf && exec \"\$@\"" bash "$@"' bash "$root" "$@"
}

make_base() {
  # The archive that this machine uses; where it uses none of this release, debootstrap has its own.
  local mirror
  mirror="$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' "Codename: $release" 2>/dev/null | head -n 1)" ||
    mirror=""
  debootstrap --variant=minbase "$release" "$home/base" ${mirror:+"$mirror"}
  # How this machine reaches it: proxies and the like. Names are found as debootstrap has arranged already.
  apt-config dump | grep -E '^Acquire::(http|https|ftp|Check|Retries)' >"$home/base/etc/apt/apt.conf.d/90host" || true
  # As Debian's installer writes it; debootstrap leaves it out, and nobody would know what localhost is.
  printf '127.0.0.1\tlocalhost\n::1\t\tlocalhost ip6-localhost ip6-loopback\n' >"$home/base/etc/hosts"
  mkdir -p "$home/packages/partial"
}

clone() {
  git clone --quiet --no-local --no-checkout "$repository" "$1/srv/sheaf"
  git -C "$1/srv/sheaf" -c advice.detachedHead=false checkout --quiet "$commit"
}

# What the guide tells people to type on their first machine.
guide_commands() {
  awk '/^## On other machines/ { exit }
       /^```/ { kind = kind == "" ? $0 : ""; next }
       kind == "```sh" { print }
       kind == "```console" && sub(/^[$] /, "") || kind == "```console" && /^  / { print }' \
    "$1/srv/sheaf/docs/guides/your-own-model.md"
}

type_guide() {
  local commands
  commands="$(guide_commands "$1")"
  enter "$1" bash -ec "$commands" | tee "$home/guide.log"
  awk '/^round 20 / { recall = $NF } END { exit !(recall >= 0.52) }' "$home/guide.log"
}

say "commit $(git -C "$repository" log -1 --format='%h %s' "$commit")"
[[ -z "$(git -C "$repository" status --porcelain)" ]] || say "note: changes that are not committed are not tested"
step "debootstrap: a minimal Debian 12" make_base

for machine in "${machines[@]}"; do
  root="$home/$machine"
  say "machine: $machine"
  step "a copy of the minimal machine, and a clean clone" eval 'cp -a "$home/base" "$root" && clone "$root"'
  if [[ "$machine" == used ]]; then
    step "before us: build-essential libgmp-dev libboost-dev" enter "$root" \
      bash -c 'apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y build-essential libgmp-dev libboost-dev'
  fi
  if "$guide"; then
    step "docs/guides/your-own-model.md, recall@5 >= 0.52" type_guide "$root"
    grep '^round 20 ' "$home/guide.log"
  elif "$quick"; then
    step "deploy/install-packages.sh --index build" enter "$root" deploy/install-packages.sh --index build
    step "deploy/install-packages.sh build python torch test" enter "$root" deploy/install-packages.sh build python torch test
    step "cmake --preset release, with tests and benchmarks" enter "$root" \
      cmake --preset release -DSHEAF_TESTS=ON -DSHEAF_BENCH=ON
  else
    step "deploy/quickstart.sh" enter "$root" deploy/quickstart.sh
    step "tests/run.sh" enter "$root" tests/run.sh
  fi
done
say "all went well, in $SECONDS s"
