#!/bin/sh
# install.sh NAME CERTIFICATES: one of Kafka's brokers on this machine, for the unit edgewake-kafka.service. NAME is one of KAFKA_BROKERS, by
# default kafka-1 kafka-2 kafka-3, each the name of a machine that the others reach; CERTIFICATES was made by certificates.sh for the same names.
# Run it again after a renewal, then `systemctl restart edgewake-kafka`. CLUSTER_ID: the same on all, made once by `kafka-storage.sh random-uuid`
# or by `openssl rand -base64 16 | tr '+/' '-_' | tr -d =`; kept where it was given before. ROOT is put before all targets (for tests and images).
set -eu

fail() {
    echo "$*" >&2
    exit 2
}

[ $# -eq 2 ] || fail "usage: install.sh NAME CERTIFICATES"
name=$1
from=$2/kafka
here=$(dirname "$0")
brokers=${KAFKA_BROKERS:-kafka-1 kafka-2 kafka-3}
etc=${ROOT:-}/etc/edgewake-kafka
user=${KAFKA_USER:-edgewake-kafka}

number=0
id=
voters=
for broker in $brokers; do
    number=$((number + 1))
    voters="$voters${voters:+,}$number@$broker:9093"
    [ "$broker" = "$name" ] && id=$number
done
[ -n "$id" ] || fail "$name: expected one of KAFKA_BROKERS, which are: $brokers"
# Two copies must be written, of three; with fewer brokers there is one copy, and a disk that is lost takes it along.
copies=1
written=1
[ "$number" -ge 3 ] && copies=3 written=2

for file in "$name.pem" kafka-ca.crt users.jaas; do
    [ -e "$from/$file" ] || fail "$from/$file is missing: run certificates.sh with KAFKA_BROKERS=\"$brokers\""
done
mkdir -p "$etc"
cluster=${CLUSTER_ID:-$(cat "$etc/cluster.id" 2>/dev/null || true)}
[ -n "$cluster" ] || fail "CLUSTER_ID is missing: the same on all brokers, made once, as the first lines of this file say"
[ "$(id -u)" = 0 ] && owner="-o root -g $user" || owner=

# Aside and renamed: the broker may start at any moment.
put() {
    # shellcheck disable=SC2086  # the owner is two words or none
    install $owner -m "$1" "$2" "$3.new"
    mv "$3.new" "$3"
}

put 0640 "$from/$name.pem" "$etc/kafka.pem"
put 0644 "$from/kafka-ca.crt" "$etc/kafka-ca.crt"
put 0640 "$from/users.jaas" "$etc/users.jaas"
put 0644 "$here/log4j2.properties" "$etc/log4j2.properties"
sed -e "s/@ID@/$id/" -e "s/@NAME@/$name/" -e "s/@VOTERS@/$voters/" -e "s/@COPIES@/$copies/" -e "s/@WRITTEN@/$written/" \
    -e "s|@ETC@|$etc|" -e "s|@DATA@|${ROOT:-}/var/lib/edgewake-kafka/data|" "$here/server.properties" > "$etc/server.properties.made"
put 0644 "$etc/server.properties.made" "$etc/server.properties"
rm "$etc/server.properties.made"
echo "$cluster" > "$etc/cluster.id.made"
put 0644 "$etc/cluster.id.made" "$etc/cluster.id"
rm "$etc/cluster.id.made"
