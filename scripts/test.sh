#!/usr/bin/env bash
# Runs every test, prints cargo's output as it comes, and closes with one line: N passed, N failed.
# Arguments go to `cargo test`. The exit code is cargo's.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT

cargo test --workspace --all-features --no-fail-fast "$@" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}

awk -v status="$status" '
    /^test result: / {
        for (i = 2; i <= NF; i++) {
            if ($i == "passed;") passed += $(i - 1)
            if ($i == "failed;") failed += $(i - 1)
        }
    }
    END {
        if (status != 0 && failed == 0)
            print "cargo test ended with code " status " outside of any counted test"
        printf "%d passed, %d failed\n", passed, failed
    }' "$log"

exit "$status"
