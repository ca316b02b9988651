#!/usr/bin/env bash
# Runs every test, prints cargo's output as it comes, and closes with one line: N passed, N failed.
# Arguments go to `cargo test`. The exit code is cargo's.
#
# Tests that need geth are in modules named `on_geth`, behind the feature `geth`. They run where geth can be built, and are
# named as skipped where it cannot. With `--only-geth` as the first argument nothing else runs.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

only_geth=false
if [[ ${1:-} == --only-geth ]]; then
    only_geth=true
    shift
fi

scripts/geth.sh
case $? in
    0) geth=true ;;
    3) geth=false ;;
    *) exit 1 ;;
esac

told() { "$geth" || echo "SKIPPED: the tests on geth"; }

if "$only_geth"; then
    if ! "$geth"; then
        told
        exit 0
    fi
    selected=(-p gapless-testkit -p gapless-evm -p gapless-engine --tests "$@" on_geth)
elif "$geth"; then
    selected=(--workspace "$@")
elif [[ " $* " == *" -- "* ]]; then
    selected=(--workspace "$@" --skip on_geth)
else
    selected=(--workspace "$@" -- --skip on_geth)
fi

log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT

# Most tests wait for blocks and for other processes, not for the processor.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-4}
cargo test --all-features --no-fail-fast "${selected[@]}" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}

# A filter that matches nothing is no success.
if "$only_geth" && ! grep -q '^test .*on_geth::.* \.\.\. ' "$log"; then
    echo "no test on geth was found"
    status=1
fi

told
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
