#!/bin/sh
# Counts the tests that were skipped, by reason, in the output of `cargo test`: skipped.sh LOG
set -eu
awk '
    # Such a test is a process that another test starts.
    / \.\.\. ignored, run by / { next }
    /^test .* \.\.\. ignored/ { skipped++; sub(/.* ignored(, )?/, ""); count[$0 ? $0 : "no reason given"]++ }
    /^test .* \.\.\. ok$/ { passed++ }
    END {
        printf "%d tests passed, %d skipped\n", passed, skipped
        for (reason in count) printf "skipped: %d: %s\n", count[reason], reason
    }
' "$1"
