#!/bin/sh
# install.sh CERTIFICATES: Edgewake's files for Debian's Mosquitto, from this folder and from the folder that certificates.sh made.
# SPARKPLUG=yes for nodes of Sparkplug B, which need messages that the broker retains (docs/production.md).
# Run it again after a renewal or a revocation, then `systemctl reload mosquitto`. ROOT is put before all targets (for tests and images).
set -eu

from=$1/broker
here=$(dirname "$0")
etc=${ROOT:-}/etc/mosquitto
group=${GROUP:-mosquitto}
[ "$(id -u)" = 0 ] && owner="-o root -g $group" || owner=

# Aside and renamed: the broker may read at any moment.
put() {
    # shellcheck disable=SC2086  # the owner is two words or none
    install $owner -m "$1" "$2" "$3.new"
    mv "$3.new" "$3"
}

mkdir -p "$etc/conf.d" "$etc/certs"
for name in devices-ca.crt devices-crl.pem bridges-ca.crt bridges-crl.pem server.crt; do
    put 0644 "$from/$name" "$etc/certs/$name"
done
# The broker reads these as the user mosquitto.
put 0640 "$from/subscriptions.json" "$etc/certs/subscriptions.json"
put 0640 "$from/server.key" "$etc/certs/server.key"
put 0644 "$here/devices.acl" "$etc/devices.acl"
put 0644 "$here/bridges.acl" "$etc/bridges.acl"
unit=${ROOT:-}/etc/systemd/system/mosquitto.service.d
mkdir -p "$unit"
put 0644 "$here/mosquitto.service.conf" "$unit/edgewake.conf"
if [ -z "${ROOT:-}" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
if [ "${SPARKPLUG:-no}" = yes ]; then
    sed 's/^retain_available false$/retain_available true/' "$here/production.conf" > "$etc/edgewake.conf.new"
    grep -q '^retain_available true$' "$etc/edgewake.conf.new"
    put 0644 "$etc/edgewake.conf.new" "$etc/conf.d/edgewake.conf"
    rm "$etc/edgewake.conf.new"
else
    put 0644 "$here/production.conf" "$etc/conf.d/edgewake.conf"
fi
