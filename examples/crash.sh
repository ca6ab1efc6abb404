#!/bin/sh
# A runner is killed in the midst of a step. The next one sees that it is dead and runs the step
# again: a step runs at least once, so what it does should bear being done twice.
#
#   FAIRQ=path sh examples/crash.sh
set -eu

: "${FAIRQ:=fairq}"
dir=$(mktemp -d)
runner=
trap 'if [ -n "$runner" ]; then kill -9 "$runner" 2>/dev/null || :; fi; rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
export FAIRQ_STORE="$dir/store" FAIRQ_CONFIG=/dev/null
cd "$dir"

# The first try says that it has started and then hangs; the second finds that it is not the first.
mkfifo started
cat >step <<'STEP'
if mkdir first 2>/dev/null; then
    echo "the first try" >started
    while [ -d "$FAIRQ_STORE" ]; do sleep 1; done
    exit 1
fi
echo "once more; still attempt $FAIRQ_ATTEMPT, for the loss was not the step's fault"
STEP
id=$("$FAIRQ" enqueue sh ./step)

"$FAIRQ" run --workers 1 --quiet &
runner=$!
read -r line <started # waits until the step runs
echo "$id runs: $line"
kill -9 "$runner"
wait "$runner" 2>/dev/null || :
runner=
echo "the runner was killed"

"$FAIRQ" run --workers 1 --drain --quiet
"$FAIRQ" logs "$id"
"$FAIRQ" show "$id"
