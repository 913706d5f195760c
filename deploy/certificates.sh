#!/bin/sh
# certificates.sh DIR NAME...: an authority, the broker's certificate, one certificate per NAME (its common name: a device or a bridge),
# and the two keys of the cloud parts. What is there already is kept, so that a name can be added later.
# SERVER_NAMES: what clients call the broker, by default DNS:mosquitto,DNS:localhost,IP:127.0.0.1.
set -eu
umask 077

dir=$1
shift
names=${SERVER_NAMES:-DNS:mosquitto,DNS:localhost,IP:127.0.0.1}
days=${DAYS:-825}
mkdir -p "$dir"
cd "$dir"

# sign NAME EXTENSIONS: a key, and a certificate signed by the authority.
sign() {
    [ -e "$1.crt" ] && return
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -out "$1.csr" -subj "/CN=$1" 2>/dev/null
    printf 'basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n%s\n' "$2" > "$1.ext"
    openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days "$days" -extfile "$1.ext" -out "$1.crt" 2>/dev/null
    rm "$1.csr" "$1.ext"
    echo "made $dir/$1.crt"
}

if [ ! -e ca.crt ]; then
    openssl req -x509 -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt -days 3650 \
        -subj "/CN=Edgewake authority" -addext keyUsage=critical,keyCertSign,cRLSign 2>/dev/null
    echo "made $dir/ca.crt; keep $dir/ca.key off this machine"
fi
sign server "extendedKeyUsage=serverAuth
subjectAltName=$names"
for name; do
    case $name in
        *[!A-Za-z0-9._-]* | [!A-Za-z0-9]* | '') echo "name $name: expected A-Z a-z 0-9 . _ -, a letter or digit first" >&2; exit 2 ;;
    esac
    sign "$name" "extendedKeyUsage=clientAuth"
done
[ -e cursor.key ] || echo "1 $(openssl rand -hex 32)" > cursor.key
[ -e ops.key ] || echo "ew_$(openssl rand -hex 20)" > ops.key
