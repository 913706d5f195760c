#!/bin/sh
# pythons.sh PYTHON...: what needs no service, tested with each of these interpreters that is there, in an environment of its own
# below build/ with the locked requirements. Fails where a test fails, or where none of the interpreters was found.
set -u

tested=""
failed=""
for python; do
    if ! version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null); then
        echo "not found, not tested: $python" >&2
        continue
    fi
    venv=build/python-$version
    if [ ! "$venv/installed-test" -nt deploy/requirements/test.txt ]; then
        PYTHON=$python sh deploy/install.sh "$venv" test || exit 1
    fi
    echo "Python $version"
    EDGEWAKE_QUICK=1 "$venv/bin/python" -m pytest -q -n 2 -m "not services and not long" && tested="$tested $version" || failed="$failed $version"
done
[ -z "$failed" ] || { echo "failed with Python$failed" >&2; exit 1; }
[ -n "$tested" ] || { echo "none of these was found: $*; name others: make test-pythons PYTHONS='/path/to/python3.12 ...'" >&2; exit 1; }
echo "passed with Python$tested"
