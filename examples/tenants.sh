#!/bin/sh
# Whose turn is it? Three tenants, two bands, and the plan before anything runs.
#
#   FAIRQ=path sh examples/tenants.sh
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
: "${FAIRQ:=fairq}"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
export FAIRQ_STORE="$dir/store" FAIRQ_CONFIG="$here/config.toml" # which calls band 10 "urgent"

# A thousand steps of alice do not make her share larger; bob's weight does.
awk 'BEGIN { for (i = 1; i <= 1000; i++) print "echo alice", i }' |
    "$FAIRQ" enqueue --quiet --key alice --from -
awk 'BEGIN { for (i = 1; i <= 10; i++) print "echo bob", i }' |
    "$FAIRQ" enqueue --quiet --key bob --weight 3 --from -

echo "# of eight slots alice gets two and bob six"
"$FAIRQ" inspect plan --capacity 8

echo "# where a step of carol's would stand"
"$FAIRQ" enqueue --dry-run --key carol true

echo "# one urgent step, and nothing else is planned"
"$FAIRQ" enqueue --quiet --key carol --band urgent --name hotfix true
"$FAIRQ" inspect plan --capacity 8
"$FAIRQ" status --band urgent
