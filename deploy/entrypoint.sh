#!/bin/sh
# entrypoint.sh COMMAND...: runs the command under whatever user the container was given. Java asks the system for the user's name, and
# Hadoop's libraries in Spark end where there is none, so a uid without a name gets one here.
set -eu

if ! getent passwd "$(id -u)" >/dev/null; then
    names=$(mktemp -d)
    # libnss_wrapper answers from these files instead of /etc, which a container may not write.
    printf 'edgewake:x:%s:%s:Edgewake:/var/lib/edgewake:/sbin/nologin\n' "$(id -u)" "$(id -g)" > "$names/passwd"
    printf 'edgewake:x:%s:\n' "$(id -g)" > "$names/group"
    export NSS_WRAPPER_PASSWD="$names/passwd" NSS_WRAPPER_GROUP="$names/group" LD_PRELOAD=libnss_wrapper.so
fi
exec "$@"
