#!/usr/bin/env bash
# Builds geth, the second real Ethereum node for tests, into .tools/bin, from the Go module proxy. Says nothing when it is
# there already. Exits with 3, and says so, where no Go can build it: tests on geth are then skipped, not failed.
#
# GAPLESS_GETH names a geth to use instead; then nothing is built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# 1.17.9 and 1.17.10 need a module that the proxy does not have.
readonly GETH_VERSION=1.17.8
readonly GO_NEEDED=1.25
readonly BIN=.tools/bin
readonly STAMP=$BIN/geth.version
readonly SKIPPED=3

say() { printf 'geth: %s\n' "$*"; }

is_there() { [[ -x $BIN/geth && -f $STAMP && $(<"$STAMP") == "$GETH_VERSION" ]]; }

# Whether the second version is not the older one.
is_enough() { [[ $(printf '%s\n' "$1" "$2" | sort -V | head -n 1) == "$1" ]]; }

if [[ -n ${GAPLESS_GETH:-} ]]; then
    [[ -x $GAPLESS_GETH ]] || { say "GAPLESS_GETH names $GAPLESS_GETH, which is no program" >&2; exit 1; }
    exit 0
fi

mkdir -p "$BIN"
# Two runs must not build into the same place at once. The second waits, then finds nothing to do.
if command -v flock >/dev/null 2>&1; then
    exec 9>.tools/geth.lock
    flock 9
fi
if is_there; then exit 0; fi

if ! command -v go >/dev/null 2>&1; then
    say "there is no Go here to build it with"
    exit "$SKIPPED"
fi
go_found=$(cd / && go env GOVERSION)
if ! is_enough "$GO_NEEDED" "${go_found#go}"; then
    say "$go_found is too old to build it; Go $GO_NEEDED is needed"
    exit "$SKIPPED"
fi

say "building geth $GETH_VERSION into $BIN; this takes some minutes, once"
rm -f "$STAMP"
if ! output=$(GOBIN=$PWD/$BIN GOFLAGS="${GOFLAGS:-} -p=2" \
    go install "github.com/ethereum/go-ethereum/cmd/geth@v$GETH_VERSION" 2>&1 9>&-); then
    printf '%s\n' "$output" >&2
    say "the build failed" >&2
    exit 1
fi
echo "$GETH_VERSION" >"$STAMP"
