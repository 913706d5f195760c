#!/bin/sh
# certificates.sh DIR [--bridge NAME | --revoke NAME | NAME]...: authorities, certificates of the MQTT broker, of Kafka's brokers and of the
# proxy, one certificate per name, and the keys and passwords of the cloud parts. What is there already stays, so a name can be added later; a certificate that has less than RENEW_DAYS to live
# is renewed with the key that it has. Nothing here needs to be on a server but what docs/production.md copies there.
#
#   DIR/authority/   the authorities' private keys and their lists: keep this folder on another machine
#   DIR/broker/      what the broker reads: server.crt and server.key, the authorities' certificates and their revocation lists, and
#                    subscriptions.json: what each device may subscribe to
#   DIR/devices/     NAME.crt and NAME.key: what a device is given, beside broker/devices-ca.crt; NAME.token, where it sends by HTTP
#   DIR/tokens/      devices: the tokens of all of them, as bridges read them
#   DIR/bridges/     the same for each bridge, signed by an authority of its own: no device can pass for a bridge
#   DIR/keys/        cursor.key, lease.key, ops.key, seal.key, share.key: secrets of the cloud parts; ops-push.key, which operations shows
#                    to the push proxy, and readers.key, in which the proxy finds it
#   DIR/kafka/       kafka-N.pem, kafka-ca.crt, users.jaas: what Kafka's brokers read; NAME.password: by which each part is known to them
#   DIR/front/       server.crt and server.key of the proxy. A certificate of another authority that you put there is never replaced
#
#   certificates.sh DIR --bridge bridge-1 car-07    issue, or renew
#   certificates.sh DIR --revoke car-07             revoke; hand the new list to the broker as docs/production.md says
#
# FRONT_NAMES: what clients call the proxy, by default DNS:localhost,IP:127.0.0.1. KAFKA_BROKERS, KAFKA_USERS: names of Kafka's brokers, and of
# the parts beside the bridges.
# SERVER_NAMES: what clients call the broker, by default DNS:mosquitto,DNS:localhost,IP:127.0.0.1. DAYS: how long a certificate lives.
set -eu
umask 077

fail() {
    echo "$*" >&2
    exit 2
}

[ $# -ge 1 ] || fail "usage: certificates.sh DIR [--bridge NAME | --revoke NAME | NAME]..."
dir=$1
shift
server_names=${SERVER_NAMES:-DNS:mosquitto,DNS:localhost,IP:127.0.0.1}
days=${DAYS:-825}
renew_days=${RENEW_DAYS:-30}
front_names=${FRONT_NAMES:-DNS:localhost,IP:127.0.0.1}
kafka_brokers=${KAFKA_BROKERS:-kafka-1 kafka-2 kafka-3}
kafka_users=${KAFKA_USERS:-sequencer analysis lake access-1 access-2 push ops}
mkdir -p "$dir/authority" "$dir/broker" "$dir/devices" "$dir/bridges" "$dir/keys" "$dir/kafka" "$dir/front" "$dir/tokens"
cd "$dir"

# readers GROUP: the folder with what those read who trust the authority.
readers() {
    case $1 in
        kafka) echo kafka ;;
        *) echo broker ;;
    esac
}

# authority GROUP: its key, its certificate, and its empty list of revoked certificates.
authority() {
    public=$(readers "$1")
    [ -e "$public/$1-crl.pem" ] && return
    mkdir -p "authority/$1"
    : > "authority/$1/index.txt"
    echo 01 > "authority/$1/crlnumber"
    cat > "authority/$1/openssl.cnf" <<END
[ca]
default_ca = this
[this]
database = authority/$1/index.txt
crlnumber = authority/$1/crlnumber
certificate = $public/$1-ca.crt
private_key = authority/$1/ca.key
default_md = sha256
# As long as the authority itself: an expired list would shut everybody out.
default_crl_days = 3650
END
    if [ ! -e "$public/$1-ca.crt" ]; then
        # A name of its own: of two authorities of one name a broker would ask the wrong one.
        openssl req -x509 -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "authority/$1/ca.key" \
            -out "$public/$1-ca.new" -days 3650 -subj "/CN=Edgewake $1 $(openssl rand -hex 4)" -addext keyUsage=critical,keyCertSign,cRLSign 2>/dev/null
        mv "$public/$1-ca.new" "$public/$1-ca.crt"
    fi
    revocations "$1"
    echo "made $dir/$public/$1-ca.crt; keep $dir/authority off this machine"
}

# revocations GROUP: write the authority's list anew.
revocations() {
    public=$(readers "$1")
    openssl ca -gencrl -config "authority/$1/openssl.cnf" -out "$public/$1-crl.new" 2>/dev/null
    mv "$public/$1-crl.new" "$public/$1-crl.pem"
}

# sign GROUP FILE NAME EXTENSIONS: a certificate for FILE.key, which is made where it is missing. Another authority's stays as it is.
sign() {
    public=$(readers "$1")
    if [ -e "$2.crt" ]; then
        openssl x509 -in "$2.crt" -noout -checkend "$((renew_days * 86400))" >/dev/null 2>&1 && return
        [ "$(openssl x509 -in "$2.crt" -noout -issuer_hash)" = "$(openssl x509 -in "$public/$1-ca.crt" -noout -subject_hash)" ] || return 0
    fi
    if [ ! -e "$2.key" ]; then
        openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$2.key.new" 2>/dev/null
        mv "$2.key.new" "$2.key"
    fi
    openssl req -new -key "$2.key" -out "$2.csr" -subj "/CN=$3" 2>/dev/null
    printf 'basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n%s\n' "$4" > "$2.ext"
    openssl x509 -req -in "$2.csr" -CA "$public/$1-ca.crt" -CAkey "authority/$1/ca.key" -set_serial "0x$(openssl rand -hex 16)" \
        -days "$days" -extfile "$2.ext" -out "$2.crt.new" 2>/dev/null
    mv "$2.crt.new" "$2.crt"
    rm "$2.csr" "$2.ext"
    echo "made $dir/$2.crt"
}

# revoke NAME: whatever certificate of it there is. Its files stay aside, so that the name can be issued again with another key.
revoke() {
    for group in devices bridges; do
        if [ -e "$group/$1.crt" ]; then
            openssl ca -config "authority/$group/openssl.cnf" -revoke "$group/$1.crt" 2>/dev/null
            revocations "$group"
            mkdir -p authority/revoked
            mv "$group/$1.crt" "authority/revoked/$1-$(date -u +%Y%m%dT%H%M%S).crt"
            rm -f "$group/$1.key" "$group/$1.token" "kafka/$1.password"
            echo "revoked $1; the broker refuses it once it has $dir/broker/$group-crl.pem and was reloaded"
            return
        fi
    done
    fail "name $1: no certificate of it is in $dir"
}

# client GROUP NAME: check the name, then sign.
client() {
    case $2 in
        *[!A-Za-z0-9._-]* | [!A-Za-z0-9]* | '') fail "name $2: expected A-Z a-z 0-9 . _ -, a letter or digit first" ;;
    esac
    [ "${#2}" -le 64 ] || fail "name $2: expected at most 64 characters"
    # Both name an MQTT session of the same broker: a device called bridge-1 would throw the bridge out.
    case $1/$2 in
        bridges/bridge*) ;;
        bridges/*) fail "name $2: expected a bridge's name to begin with bridge" ;;
        */bridge* | */supervisor) fail "name $2: expected no name of a part of the system" ;;
    esac
    sign "$1" "$1/$2" "$2" "extendedKeyUsage=clientAuth"
}

# subscriptions: what each device may subscribe to, for Mosquitto's dynamic-security: a few filters of its own, and nothing else. Its rules
# in devices.acl are looked at when a message is delivered; then a member of a share group that may not have it has used it up.
subscriptions() {
    {
        printf '{"defaultACLAccess":{"publishClientSend":false,"publishClientReceive":false,"subscribe":false,"unsubscribe":false},\n'
        printf '"roles":[{"rolename":"nothing","acls":['
        printf '{"acltype":"subscribePattern","topic":"#","allow":false},'
        printf '{"acltype":"subscribePattern","topic":"$share/#","allow":false}]}'
        names=$(cd devices && ls | sed -n 's/\.crt$//p')
        for name in $names; do
            printf ',\n{"rolename":"own %s","acls":[' "$name"
            comma=
            for filter in '#' + ack acks 'down/#' down/+ down/command down/settings down/reply down/feed; do
                printf '%s{"acltype":"subscribeLiteral","topic":"ew/v1/%s/%s","allow":true}' "$comma" "$name" "$filter"
                comma=,
            done
            # A node of Sparkplug B: what it is asked for, and whether its host is there.
            for filter in "spBv1.0/+/NCMD/$name/#" "spBv1.0/+/DCMD/$name/#" spBv1.0/STATE/+; do
                printf ',{"acltype":"subscribePattern","topic":"%s","allow":true}' "$filter"
            done
            printf ']}'
        done
        printf '],\n"clients":['
        comma=
        for name in $names; do
            printf '%s\n{"username":"%s","roles":[{"rolename":"own %s","priority":1},{"rolename":"nothing","priority":0}]}' \
                "$comma" "$name" "$name"
            comma=,
        done
        printf ']}\n'
    } > broker/subscriptions.new
    mv broker/subscriptions.new broker/subscriptions.json
}

# tokens: by which devices are known that send by HTTP. A folder of its own, so that who has it mounted sees the new file. A line that is
# there stays as it is: it may say that the device is a gateway.
tokens() {
    touch tokens/devices
    for name in $(cd devices && ls | sed -n 's/\.crt$//p'); do
        if [ ! -e "devices/$name.token" ]; then
            openssl rand -hex 20 > "devices/$name.token.new"
            mv "devices/$name.token.new" "devices/$name.token"
        fi
        token=$(cat "devices/$name.token")
        grep "^$token " tokens/devices || echo "$token $name"
    done > tokens/devices.new
    mv tokens/devices.new tokens/devices
}

# key FILE TEXT: a secret, made once.
key() {
    [ -e "keys/$1" ] && return
    echo "$2" > "keys/$1.new"
    mv "keys/$1.new" "keys/$1"
}

# password NAME: by which Kafka knows NAME.
password() {
    [ -e "kafka/$1.password" ] && return
    openssl rand -hex 24 > "kafka/$1.password.new"
    mv "kafka/$1.password.new" "kafka/$1.password"
}

# kafka: what its brokers read. Their image runs as a user of its own, so these files are readable by everybody, in a folder that nobody
# else may enter: a container sees those that are mounted into it.
kafka() {
    for name in $kafka_brokers; do
        sign kafka "authority/kafka/$name" "$name" "extendedKeyUsage=serverAuth,clientAuth
subjectAltName=DNS:$name,DNS:localhost,IP:127.0.0.1"
        cat "authority/kafka/$name.key" "authority/kafka/$name.crt" > "kafka/$name.pem.new"
        mv "kafka/$name.pem.new" "kafka/$name.pem"
    done
    for name in broker $kafka_users $(cd bridges && ls | sed -n 's/\.crt$//p'); do
        password "$name"
    done
    {
        printf 'KafkaServer {\n  org.apache.kafka.common.security.plain.PlainLoginModule required\n'
        printf '  username="broker" password="%s"' "$(cat kafka/broker.password)"
        for file in kafka/*.password; do
            name=${file#kafka/}
            printf '\n  user_%s="%s"' "${name%.password}" "$(cat "$file")"
        done
        printf ';\n};\n'
    } > kafka/users.jaas.new
    mv kafka/users.jaas.new kafka/users.jaas
    chmod 0644 kafka/*.pem kafka/users.jaas kafka/kafka-ca.crt
    chmod 0700 kafka
}

authority devices
authority bridges
authority kafka
sign devices broker/server "Edgewake broker" "extendedKeyUsage=serverAuth
subjectAltName=$server_names"
sign devices front/server "Edgewake" "extendedKeyUsage=serverAuth
subjectAltName=$front_names"
key cursor.key "1 $(openssl rand -hex 32)"
key lease.key "$(openssl rand -hex 32)"
key seal.key "$(openssl rand -hex 32)"
key share.key "$(openssl rand -hex 32)"
key ops.key "ew_$(openssl rand -hex 20)"
key ops-push.key "ew_$(openssl rand -hex 20)"
key readers.key "operations everything $(cat keys/ops-push.key)"
while [ $# -gt 0 ]; do
    case $1 in
        --bridge) client bridges "${2-}" && shift 2 ;;
        --revoke) revoke "${2-}" && shift 2 ;;
        -*) fail "$1: expected --bridge, --revoke or a name" ;;
        *) client devices "$1" && shift ;;
    esac
done
subscriptions
tokens
kafka
