#!/bin/sh
# Counts the words of all texts. docs/reference/runner.md says what an executable finds and returns.
#   sheaf-worker --server HOST:7433 --run count_words=./count_words.sh --data texts=/srv/texts
#   sheaf round create --wait -f count_words.json
set -eu
int64() { n=$1; for _ in 1 2 3 4 5 6 7 8; do printf "\\$(printf %03o $((n & 255)))"; n=$((n >> 8)); done; }
words=$(cat "$SHEAF_DATA"/*.txt | wc -w)
header='{"words":{"dtype":"I64","shape":[],"data_offsets":[0,8]}}'
{ int64 ${#header}; printf %s "$header"; int64 "$words"; } >"$1/result.unfinished"
mv "$1/result.unfinished" "$1/result.safetensors"
