#!/bin/sh
# Counts the tests that were skipped, by reason, in the output of `cargo test`: skipped.sh LOG
set -eu
awk '
    # Such a test is a process that another test starts.
    / \.\.\. ignored, run by / { next }
    # A later call may have run it.
    /^test .* \.\.\. ignored/ { reason[$2] = $0; sub(/.* ignored(, )?/, "", reason[$2]) }
    /^test .* \.\.\. ok$/ { passed++; delete reason[$2] }
    END {
        for (test in reason) { skipped++; count[reason[test] ? reason[test] : "no reason given"]++ }
        printf "%d tests passed, %d skipped\n", passed, skipped
        for (why in count) printf "skipped: %d: %s\n", count[why], why
    }
' "$1"
