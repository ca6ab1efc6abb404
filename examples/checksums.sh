#!/bin/sh
# The checksum of every file below a directory, a step a file, in whatever order they end.
#
#   FAIRQ=path sh examples/checksums.sh [DIR]     default: the directory of the examples
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
: "${FAIRQ:=fairq}"
tree=$(CDPATH='' cd -- "${1:-$here}" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
export FAIRQ_STORE="$dir/store" FAIRQ_CONFIG=/dev/null

# A line a file; names are quoted for the shell that will read the line. `--cwd` is where it will run.
(cd "$tree" && find . -type f ! -name '*
*') | sed "s/'/'\\\\''/g; s/.*/cksum '&'/" |
    "$FAIRQ" enqueue --quiet --cwd "$tree" --key checksums --from -

# Exits with 1, and so ends this script, if a file could not be read.
"$FAIRQ" run --drain --quiet

# What the steps wrote is kept with them: all of it, step by step, without the headings.
"$FAIRQ" logs --key checksums --stdout 2>/dev/null | sort -k 3
