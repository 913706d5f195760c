#!/bin/bash
# Properties of the environment and a formatted storage, both by Kafka's own class for its images; then the broker.
set -eu
# shellcheck disable=SC2086  # options are words
java() { command java ${KAFKA_HEAP_OPTS-} ${KAFKA_OPTS-} -cp '/opt/kafka/libs/*' "$@"; }

told=$(java kafka.docker.KafkaDockerWrapper setup --default-configs-dir /etc/kafka/docker \
    --mounted-configs-dir /mnt/shared/config --final-configs-dir /opt/kafka/config 2>&1) ||
    grep -qi 'already formatted' <<< "$told" || { echo "$told" >&2; exit 1; }
# shellcheck disable=SC2086
exec java ${KAFKA_HEAP_OPTS-} ${KAFKA_OPTS-} -cp '/opt/kafka/libs/*' -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError \
    -Dlog4j2.configurationFile=/opt/kafka/config/log4j2.yaml kafka.Kafka /opt/kafka/config/server.properties
