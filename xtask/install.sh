#!/bin/sh
# Installs what `make run` or `make test` needs and is missing; says what it installs; does nothing and needs no network
# when all of it is there. Usage: install.sh run|test|bench
set -eu

# A package, and a file that shows it is there.
needs_run='gcc:/usr/bin/cc make:/usr/bin/make cmake:/usr/bin/cmake libc6-dev:/usr/include/stdio.h curl:/usr/bin/curl'
needs_test="$needs_run redis-server:/usr/bin/redis-server nats-server:/usr/sbin/nats-server mariadb-server:/usr/sbin/mariadbd
chromium:/usr/bin/chromium fonts-wqy-microhei:/usr/share/fonts/truetype/wqy/wqy-microhei.ttc nodejs:node npm:npm python3-venv:python3"

needs_bench="$needs_run nginx-light:/usr/sbin/nginx wrk:wrk python3-venv:python3 nodejs:node npm:npm
redis-server:/usr/bin/redis-server nats-server:/usr/sbin/nats-server mariadb-server:/usr/sbin/mariadbd
libnginx-mod-http-lua:/usr/lib/nginx/modules/ngx_http_lua_module.so lua-nginx-redis:/usr/share/lua/5.1/nginx/redis.lua
lua-cjson:/usr/share/lua/5.1/cjson/util.lua"

case "${1:-}" in
run) needs=$needs_run ;;
test) needs=$needs_test ;;
bench) needs=$needs_bench ;;
*) echo "usage: $0 run|test|bench" >&2; exit 2 ;;
esac

missing=''
for need in $needs; do
    package=${need%%:*}
    proof=${need#*:}
    case "$proof" in
    /*) [ -e "$proof" ] || command -v "$(basename "$proof")" >/dev/null 2>&1 || missing="$missing $package" ;;
    *) command -v "$proof" >/dev/null 2>&1 || missing="$missing $package" ;;
    esac
done
if [ "${1}" != run ] && command -v python3 >/dev/null 2>&1; then
    # Debian's python3 has no ensurepip until python3-venv is installed.
    python3 -c 'import ensurepip' >/dev/null 2>&1 || missing="$missing python3-venv"
fi

if ! command -v cargo >/dev/null 2>&1; then
    echo "cargo is missing: install the stable Rust toolchain with rustup first, see the README" >&2
    exit 1
fi

# Guests compile to wasm32-unknown-unknown. rustup has it where its server can be reached; Debian carries a second Rust
# with its library source where it cannot.
has_target() { [ -d "$(rustc --print sysroot 2>/dev/null)/lib/rustlib/wasm32-unknown-unknown" ]; }
has_debian_pair() { [ -x /usr/bin/rustc ] && [ -e /usr/lib/rustlib/src/rust/library/Cargo.toml ]; }
if ! has_target && ! has_debian_pair; then
    echo "installing the target wasm32-unknown-unknown with rustup"
    if ! timeout 60 rustup target add wasm32-unknown-unknown >/dev/null 2>&1; then
        echo "rustup cannot fetch it; using Debian's rustc-web and rust-web-src instead"
        missing="$missing rustc-web rust-web-src"
    fi
fi

[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
    as_root=''
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    as_root='sudo'
elif command -v sudo >/dev/null 2>&1 && [ -t 0 ]; then
    as_root='sudo'
else
    echo "these packages are missing, and installing them needs root:$missing" >&2
    exit 1
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "these packages are missing, by their Debian names:$missing" >&2
    exit 1
fi
echo "installing:$missing"
log=$(mktemp)
if ! { $as_root apt-get update -qq && DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing; } >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    exit 1
fi
rm -f "$log"
