#!/bin/sh
# arm64.sh PYTHON: downloads every locked requirement of an agent as a wheel for 64-bit ARM, such as a Raspberry Pi with a 64-bit system, for
# each Python that Edgewake runs on. Fails where one has none: a device has no compiler.
set -eu

python=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for version in 311 312 313; do
    for set in edge edge-ble edge-can edge-modbus edge-opcua formats; do
        "$python" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
            --implementation cp --python-version "$version" --platform manylinux_2_28_aarch64 --platform manylinux2014_aarch64 \
            --platform manylinux_2_17_aarch64 --dest "$folder" --requirement "deploy/requirements/$set.txt"
        echo "$set, Python $version: every requirement has a wheel for 64-bit ARM"
    done
done
