#!/usr/bin/env bash
# Installs the Debian packages that Sheaf needs and this machine lacks.
#
#   deploy/install-packages.sh [--index] [SECTION...]
#
# SECTION is one of those in packages.txt (run, build, python, torch, test, fuzz, prometheus, fresh, dev); without one:
# build, python, torch and test.
# --index  also fetches apt's package index if there is none: `sheaf demo tags` trains on it.
#
# Needs root, or sudo, only if something is missing. Safe to run again.
set -euo pipefail
list="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/packages.txt"

say() { printf '%s\n' "sheaf: $*" >&2; }
die() { say "$*"; exit 1; }

wants_index=false
sections=()
for argument in "$@"; do
  case "$argument" in
    --index) wants_index=true ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) die "unknown option $argument; see --help" ;;
    *) grep -q "^\[$argument\]" "$list" || die "packages.txt has no section [$argument]"; sections+=("$argument") ;;
  esac
done
[[ ${#sections[@]} -gt 0 ]] || sections=(build python torch test)

command -v apt-get >/dev/null && command -v dpkg-query >/dev/null ||
  die "this script installs Debian packages and found no apt-get; install the equivalents of deploy/packages.txt by hand"
release="$(. /etc/os-release && printf '%s' "${PRETTY_NAME:-unknown}")"
[[ "$release" == *"12 (bookworm)"* ]] || say "note: made for Debian 12; this is $release, where package names may differ"

packages_of() {
  awk -v section="[$1]" '/^\[/ { is_in = ($1 == section); next } is_in && !/^#/ && NF { print $1 }' "$list"
}
# dpkg knows packages that were never here or were removed, too: "not-installed", "config-files". One line for each
# architecture.
is_installed() { dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed; }
has_index() { [[ -n "$(apt-get indextargets --format '$(FILENAME)' 'Created-By: Packages' 2>/dev/null)" ]]; }

as_root() {
  if [[ "$(id -u)" -eq 0 ]]; then
    env DEBIAN_FRONTEND=noninteractive "$@"
  elif ! command -v sudo >/dev/null; then
    die "needs root to run: $*; there is no sudo here: run this script as root"
  elif [[ -t 0 ]]; then
    sudo env DEBIAN_FRONTEND=noninteractive "$@"
  else
    sudo -n env DEBIAN_FRONTEND=noninteractive "$@" ||
      die "failed as root: $*; if sudo wants a password, run this script in a terminal or as root"
  fi
}
apt() { as_root apt-get -q -o DPkg::Lock::Timeout=300 "$@" >&2; }
update() {
  say "fetching apt's package index"
  apt update
}
install() { apt install -y --no-install-recommends "${missing[@]}"; }

missing=()
for section in "${sections[@]}"; do
  for package in $(packages_of "$section"); do
    is_installed "$package" || missing+=("$package")
  done
done

if { "$wants_index" || [[ ${#missing[@]} -gt 0 ]]; } && ! has_index; then update; fi
if [[ ${#missing[@]} -eq 0 ]]; then
  say "all packages of [${sections[*]}] are installed"
  exit 0
fi
say "installing ${#missing[@]} packages: ${missing[*]}"
# An index that is too old names versions that the archive has dropped: fetch it and try once more.
install || { update && install; } || die "apt-get could not install: ${missing[*]}; its messages are above"
