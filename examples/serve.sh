#!/bin/sh
# A runner that serves all day, and what a script does with it: wait for one step, use its exit code
# and its output, stop the runner so that nothing is cut short.
#
#   FAIRQ=path sh examples/serve.sh
set -eu

: "${FAIRQ:=fairq}"
dir=$(mktemp -d)
runner=
trap 'if [ -n "$runner" ]; then kill -9 "$runner" 2>/dev/null || :; fi; rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
export FAIRQ_STORE="$dir/store" FAIRQ_CONFIG=/dev/null

"$FAIRQ" run --workers 2 --quiet &
runner=$!

# One word is a line for the shell; more are an exact argv, with no shell between.
good=$("$FAIRQ" enqueue --name count 'printf "%s\n" b a b | sort -u | wc -l')
bad=$("$FAIRQ" enqueue --name missing -- ls "$dir/no such file")

# `wait` for one step exits with the step's own code.
"$FAIRQ" wait --timeout 60s "$good"
echo "$good counted $("$FAIRQ" logs --stdout "$good")"
code=0
"$FAIRQ" wait --timeout 60s "$bad" || code=$?
echo "$bad exited with $code"

# A step that is not due yet, and one that nobody may start, stay where they are.
later=$("$FAIRQ" enqueue --delay 1h 'echo an hour later')
held=$("$FAIRQ" enqueue --hold 'echo when released')
"$FAIRQ" status "$later" "$held"

# TERM: running steps end, no new ones start, then the runner goes.
kill -TERM "$runner"
wait "$runner"
runner=
echo "the runner has gone"
