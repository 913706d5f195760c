# Stands for apache/kafka: its user, its folders, and its own class that makes properties of the environment.
FROM edgewake-test/bookworm
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 1000 --create-home --shell /bin/bash appuser \
 && mkdir -p /etc/kafka/docker /etc/kafka/secrets /var/lib/kafka/data /mnt/shared/config /opt/kafka/config /opt/kafka/logs \
 && touch /etc/kafka/docker/server.properties \
 && chown -R appuser /etc/kafka /var/lib/kafka /mnt/shared /opt/kafka
COPY libs /opt/kafka/libs
COPY kafka-log4j2.yaml /etc/kafka/docker/log4j2.yaml
COPY kafka-log4j2.yaml /etc/kafka/docker/tools-log4j2.yaml
COPY kafka-run.sh /etc/kafka/docker/run
USER appuser
VOLUME ["/etc/kafka/secrets", "/var/lib/kafka/data", "/mnt/shared/config"]
CMD ["bash", "/etc/kafka/docker/run"]
