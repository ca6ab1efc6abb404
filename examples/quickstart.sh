#!/bin/sh
# Three tenants share two workers: does each get what its weight promises, and does urgent work pass?
#
#   sh examples/quickstart.sh              builds fairq, then tries it in a store of its own
#   FAIRQ=path sh examples/quickstart.sh   tries that binary
#
# Exits with 1 if a tenant was ever more than 4 steps off its share while all three had work, or if
# a step of band 100 started while one of band 10 had been waiting for more than two refill cycles.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
if [ -z "${FAIRQ:-}" ]; then
    (cd "$here/.." && cargo build --release --locked)
    FAIRQ=${CARGO_TARGET_DIR:-$here/../target}/release/fairq
fi
dir=$(mktemp -d)
runner=
trap 'if [ -n "$runner" ]; then kill -9 "$runner" 2>/dev/null || :; fi; rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
export FAIRQ_STORE="$dir/store" FAIRQ_CONFIG="$here/config.toml" # which calls band 10 "urgent"
cd "$dir"

# A step says that it starts, then does something small: it sorts a list of a thousand words.
awk 'BEGIN { for (i = 0; i < 1000; i++) print (i * 7919) % 1000 }' >words
cat >step <<'STEP'
echo "$FAIRQ_BAND $FAIRQ_KEY" >>order
exec sort words
STEP

# steps KEY WEIGHT COUNT BAND: puts COUNT steps in, in one transaction.
steps() {
    awk -v n="$3" 'BEGIN { while (n-- > 0) print "exec sh step" }' |
        "$FAIRQ" enqueue --key "$1" --weight "$2" --band "$4" --from -
}

# Deep backlogs in band 100; who has the most to do has the least weight.
steps alice 1 600 100 >alice
steps bob 2 400 100 >bob
steps carol 3 300 100 >carol
echo "band 100: alice 600 steps, weight 1; bob 400, weight 2; carol 300, weight 3"

workers=2
"$FAIRQ" run --workers $workers --drain --quiet &
runner=$!

# While they are being worked off, something urgent comes for two of them.
"$FAIRQ" wait --timeout 60s "$(sed -n 30p carol)"
steps alice 1 20 urgent >/dev/null
steps bob 1 20 urgent >/dev/null
before=$(($(wc -l <order)))
echo "band 10:  alice 20 and bob 20 steps more, after $before steps had started"
wait "$runner"
runner=

# One refill fills the cache once: twice as many steps as there are workers.
awk -v before="$before" -v cycle=$((2 * workers)) '
    BEGIN { split("alice bob carol", keys); split("1 2 3", weight); split("600 400 300", backlog); all = 6 }
    $1 == 10 { urgent++; last = NR; passed_by = late }
    $1 == 100 {
        if (NR > before) late++
        if (ended) next
        n++
        took[$2]++
        for (i = 1; i <= 3; i++) {
            off = took[keys[i]] - n * weight[i] / all
            if (off < 0) off = -off
            if (off > worst) worst = off
            if (took[keys[i]] == backlog[i]) ended = 1
        }
    }
    END {
        print "\nwhile all three had work in band 100:"
        for (i = 1; i <= 3; i++)
            printf "  %-6s got %3d of %d, %5.1f %%; promised %5.1f %%\n",
                keys[i], took[keys[i]], n, 100 * took[keys[i]] / n, 100 * weight[i] / all
        printf "  most that a tenant ever was off its share: %.1f steps (allowed: 4)\n", worst
        printf "steps of band 100 that passed waiting ones of band 10: %d (allowed: %d)\n",
            passed_by, 2 * cycle
        if (NR != 1340 || urgent != 40) { print "FAILED: not every step ran once"; exit 1 }
        if (!ended || last == NR) { print "FAILED: the backlog ended too early to tell"; exit 1 }
        if (worst > 4) { print "FAILED: the shares are off"; exit 1 }
        if (passed_by > 2 * cycle) { print "FAILED: urgent work had to wait"; exit 1 }
        print "as promised"
    }' order
