#!/bin/sh
# images.sh: the images of others that compose.yaml names. What is here stays; what can be pulled is pulled; the rest is made of Debian's
# packages and of Kafka's jars, under the same name: the same programs, in other releases where Debian has others. It says which those are.
# Run by root where images are made; DOCKER names the engine's client. COMPOSE_BUILD: a folder for what is made meanwhile.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
build=${COMPOSE_BUILD:-$here/../../build/compose}
docker=${DOCKER:-docker}
python_image=$(sed -n 's/^FROM \(python:[^ ]*\) AS base$/\1/p' "$here/../../deploy/Dockerfile")

say() { printf '%s\n' "compose: $*" >&2; }
fail() { say "$*"; exit 1; }

# named WORD: the image that compose.yaml names for it.
named() {
    sed -n "s|^ *image: \($1:[^ ]*\)\$|\1|p" "$here/../../deploy/compose.yaml" | sort -u
}

# is_there IMAGE: here already, or pulled now.
is_there() {
    $docker image inspect "$1" >/dev/null 2>&1 && return
    [ "${COMPOSE_PULL:-yes}" = yes ] && timeout 300 $docker pull --quiet "$1" >/dev/null 2>&1 && say "pulled $1"
}

# debian SUITE PACKAGES: a base image of one of Debian's releases with packages in it, as edgewake-test/SUITE.
debian() {
    $docker image inspect "edgewake-test/$1" >/dev/null 2>&1 && return
    command -v mmdebstrap >/dev/null || fail "mmdebstrap is missing, to make images where none can be pulled: apt-get install mmdebstrap"
    mkdir -p "$build"
    say "making a base image of Debian $1 (some two minutes)"
    # A mirror may be a snapshot of last month; its signature counts all the same.
    mmdebstrap --quiet --variant=minbase --aptopt='Acquire::Check-Valid-Until "false"' --include="ca-certificates,$2" "$1" "$build/$1.tar"
    # What this machine trusts, since packages may come through a proxy of its own.
    trusted=/etc/ssl/certs/ca-certificates.crt
    cp "$trusted" "$build/trusted.crt"
    $docker import -c 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' "$build/$1.tar" "edgewake-test/$1-plain" >/dev/null
    rm "$build/$1.tar"
    printf 'FROM edgewake-test/%s-plain\nCOPY trusted.crt %s\nENV SSL_CERT_FILE=%s PIP_CERT=%s\nRUN printf %s > /etc/apt/apt.conf.d/snapshot\n' \
        "$1" "$trusted" "$trusted" "$trusted" "'Acquire::Check-Valid-Until \"false\";'" > "$build/Dockerfile.$1"
    made "edgewake-test/$1" "Dockerfile.$1" "$build"
}

# made IMAGE DOCKERFILE FOLDER
made() {
    $docker build --quiet -t "$1" -f "$3/$2" "$3" >/dev/null 2>"$build/errors" || { cat "$build/errors" >&2; fail "$1 could not be built"; }
    say "made $1"
}

is_there "$python_image" || {
    debian bookworm python3,python3-venv
    made "$python_image" python.Dockerfile "$here/images"
}
image=$(named apache/kafka)
is_there "$image" || {
    debian bookworm python3,python3-venv
    rm -rf "$build/kafka"
    mkdir -p "$build/kafka/libs"
    cp "$here"/images/kafka* "$build/kafka/"
    cp "${KAFKA_JARS:?the folder of Kafka\'s jars}"/*.jar "$build/kafka/libs/"
    made "$image" kafka.Dockerfile "$build/kafka"
    rm -rf "$build/kafka"
}
image=$(named eclipse-mosquitto)
is_there "$image" || {
    debian trixie mosquitto,netcat-openbsd
    made "$image" mosquitto.Dockerfile "$here/images"
}
image=$(named nginx)
is_there "$image" || {
    # The first release of Debian whose nginx asks the name service again for each server.
    debian forky nginx,wget
    made "$image" nginx.Dockerfile "$here/images"
}
