#!/usr/bin/env bash
# Makes each fault of tests/mutations/faults in a scratch copy of the committed tree, builds and runs the test that
# should catch it, and prints a table. Exits 1 if one is not caught. See docs/internals/mutations.md.
#
#   tests/mutations/run.sh [NAME...]      for example: tests/mutations/run.sh token_not_checked
set -euo pipefail
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/mutations.py" run "$@"
