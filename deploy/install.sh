#!/bin/sh
# install.sh VENV SET: a virtual environment with the locked requirements of SET (demo, test) and this project in it.
# Nothing is installed that is not locked by hash; the project itself is built with the locked tools. Ends with a stamp for make.
set -eu

venv=$1
set=$2
locks=deploy/requirements
# A wheel that is unpacked at once is not worth compressing: of Spark's that took 13 seconds of processor, while nothing else was done.
export DIST_EXTRA_CONFIG="$PWD/$locks/build.cfg"

say() { printf '%s\n' "$*" >&2; }
fail() { say "make: $*"; exit 1; }

find_python() {
    for python in "${PYTHON:-python3}" python3.13 python3.12 python3.11; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    fail "Python 3.11 or newer is missing; install it, on Debian 12 or Ubuntu 24.04 with: sudo apt-get install python3"
}

# Debian keeps ensurepip in a package of its own, python3.11-venv for python3.11.
need_venv() {
    "$1" -c 'import ensurepip' 2>/dev/null && return
    package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
        fail "Python's venv module is missing; install it with: sudo apt-get install $package"
    say "  installing $package"
    { apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install --yes --no-install-recommends "$package"; } >/dev/null 2>&1 ||
        fail "Python's venv module is missing and apt-get could not install $package"
}

pip_install() {
    output=$("$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "$@" 2>&1) && return
    printf '%s\n' "$output" | grep -v '^\[notice\]' | tail -n 15 >&2
    fail "the requirements could not be installed; is this machine online, and is there room on the disk?"
}

# uv downloads side by side, in half of pip's time. It knows no settings of pip: where it finds no index by itself, pip does all, and says what is wrong.
# A lock names all that is needed; with --no-deps nothing is fetched, 450 MB of Spark among it, only to be asked what it needs.
# The cache is one of this installation: where a registry does not let its answers be kept, each would add 2.7 GB to that of the user.
install_locked() {
    cache="$venv/cache"
    "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --cache-dir "$cache" --no-deps --require-hashes --no-build-isolation -r "$1" 2>/dev/null ||
        pip_install --no-deps --require-hashes --no-build-isolation -r "$1"
    rm -rf "$cache"
}

if [ ! -x "$venv/bin/python" ]; then
    python=$(find_python)
    need_venv "$python"
    say "  making $venv with $("$python" --version)"
    "$python" -m venv "$venv" || fail "$venv could not be made"
fi
# uv makes environments without pip.
"$venv/bin/python" -c 'import pip' 2>/dev/null || "$venv/bin/python" -m ensurepip >/dev/null 2>&1 || fail "$venv has no pip; remove it"

say "  installing the locked requirements of $set (the first time about a minute; Spark alone is 400 MB)"
pip_install --require-hashes -r "$locks/build.txt"
install_locked "$locks/$set.txt"
pip_install --no-deps --no-build-isolation --no-index --editable .
touch "$venv/installed-$set"
say "  installed"
