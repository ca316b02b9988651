#!/usr/bin/env bash
# Gets what the build and the tests need, and says nothing when nothing is missing.
#
#   Rust         from rustup; never installed by this script
#   C compiler   for the bundled SQLite, and for linking
#   PostgreSQL   server binaries and pgbench; tests start their own clusters, no service is needed
#   anvil        a real Ethereum node for tests, from npm, into .tools/
#
# As root on Debian or Ubuntu it installs system packages; otherwise it names them and stops.
# GAPLESS_PG_BIN names the folder of PostgreSQL's programs when they are in an unusual place.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly ANVIL_VERSION=1.7.1
readonly TOOLS=.tools
readonly NO_CLUSTER=/etc/postgresql-common/createcluster.d/gapless-setup.conf

say() { printf 'setup: %s\n' "$*"; }
fail() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}
has() { command -v "$1" >/dev/null 2>&1; }

# Two runs must not install into the same place at once. The second waits, then finds nothing to do.
lock() {
    mkdir -p "$TOOLS"
    if has flock; then
        exec 9>"$TOOLS/setup.lock"
        flock 9
    fi
}

check_rust() {
    if ! has cargo || ! has rustc; then
        fail "Rust is missing. Install it from https://rustup.rs, open a new shell, and run this again."
    fi
    if ! has cargo-fmt || ! has cargo-clippy; then
        fail "rustfmt or clippy is missing. Run: rustup component add rustfmt clippy"
    fi
}

# The server and pgbench of one version: a folder that lacks either does not count.
is_postgres() { [[ -x $1/postgres && -x $1/initdb && -x $1/pgbench ]]; }

has_postgres() {
    local folder
    if [[ -n ${GAPLESS_PG_BIN:-} ]]; then
        is_postgres "$GAPLESS_PG_BIN" ||
            fail "GAPLESS_PG_BIN names $GAPLESS_PG_BIN, which lacks postgres, initdb or pgbench. Correct or unset it."
        return
    fi
    for folder in /usr/lib/postgresql/*/bin; do
        if is_postgres "$folder"; then return; fi
    done
    has postgres && has initdb && has pgbench
}

anvil_platform() {
    case "$(uname -s)-$(uname -m)" in
        Linux-x86_64) echo linux-amd64 ;;
        Linux-aarch64) echo linux-arm64 ;;
        Darwin-x86_64) echo darwin-amd64 ;;
        Darwin-arm64) echo darwin-arm64 ;;
        *) fail "anvil is not published for $(uname -s) on $(uname -m)" ;;
    esac
}

# The wrapper alone proves nothing: the node itself is in the package of the platform.
has_anvil() {
    local native=$TOOLS/node_modules/@foundry-rs/anvil-$PLATFORM
    [[ -x $TOOLS/node_modules/.bin/anvil && -x $native/bin/anvil ]] &&
        grep -q "\"version\": \"$ANVIL_VERSION\"" "$native/package.json"
}

# Debian's server package holds pgbench and the contrib modules; `postgresql` names the current version.
missing_packages() {
    has cc || echo gcc libc6-dev
    has_postgres || echo postgresql
    has node || echo nodejs # runs anvil's wrapper
    has_anvil || has npm || echo npm
}

# Debian's package creates and starts a cluster named "main" on install, unless told otherwise.
# The drop-in is ours: it goes away again, and the machine's own settings stay as they are.
install_packages() {
    if [[ $(id -u) -ne 0 ]] || ! has apt-get; then
        fail "missing: $*" \
            "On Debian or Ubuntu, as root: apt-get install --no-install-recommends $*" \
            "Elsewhere: install a C compiler, PostgreSQL with pgbench, Node.js and npm."
    fi
    say "installing with apt-get: $*"
    trap 'rm -f "$NO_CLUSTER"' EXIT
    mkdir -p "${NO_CLUSTER%/*}"
    echo 'create_main_cluster = false' >"$NO_CLUSTER"
    quietly apt-get update
    quietly env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
}

# Named outright, because npm silently skips the platform's package on Node.js 18, which is Debian 12's.
install_anvil() {
    say "installing anvil $ANVIL_VERSION into $TOOLS"
    quietly npm install --prefix "$TOOLS" --no-audit --no-fund --ignore-scripts \
        "@foundry-rs/anvil@$ANVIL_VERSION" "@foundry-rs/anvil-$PLATFORM@$ANVIL_VERSION"
}

# Runs a command and shows what it printed only if it fails. Children do not inherit the lock.
quietly() {
    local output
    if ! output=$("$@" 2>&1 9>&-); then
        printf '%s\n' "$output" >&2
        fail "failed: $*"
    fi
}

check_rust
PLATFORM=$(anvil_platform)
readonly PLATFORM
lock

missing=$(missing_packages)
if [[ -n $missing ]]; then
    read -ra packages <<<"${missing//$'\n'/ }"
    install_packages "${packages[@]}"
    missing=$(missing_packages)
    [[ -z $missing ]] || fail "installed, but still not found: ${missing//$'\n'/ }"
fi
has_anvil || install_anvil
has_anvil || fail "anvil $ANVIL_VERSION was installed, but is not in $TOOLS/node_modules"
