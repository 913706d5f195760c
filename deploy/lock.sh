#!/bin/sh
# Resolves the requirements of each extra and locks them with hashes: one file for Linux and Python 3.11 and newer, without index addresses.
# build.in: what builds this project and the requirements that come as source only (pyspark).
set -eu
cd "$(dirname "$0")/requirements"

lock() {
    output=$1
    shift
    ../../.venv/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-emit-find-links --no-header --no-annotate --output-file "$output.txt" "$@"
    echo "locked $output.txt: $(grep -c == "$output.txt") packages"
}

lock build build.in
for extra in edge edge-ble edge-can edge-modbus edge-opcua formats client cloud traces analysis lake demo test; do
    lock "$extra" ../../pyproject.toml --extra "$extra"
done
if grep -n '://' ./*.txt; then
    echo "a lock file names an address" >&2
    exit 1
fi
