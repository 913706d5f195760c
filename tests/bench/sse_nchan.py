"""Another rival: nchan under nginx (Debian's libnginx-mod-nchan), fed by a publisher that reads the
same Kafka topic.

`python -m tests.bench.sse_nchan BOOTSTRAP TOPIC PORT FOLDER` starts nginx and publishes until
killed. Each piece of 20 ms is one message, so nchan writes as often as we do; its buffer holds the
last 1000 messages in shared memory.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import orjson
from confluent_kafka import TopicPartition

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.offsets import watermarks
from edgewake.protocol.frames import record
from tests.needs import NGINX_MODULES, nginx_with_nchan

MODULE = NGINX_MODULES / "ngx_nchan_module.so"
TICK_S = 0.02

CONFIG = """
load_module {module};
worker_processes 1;
worker_rlimit_nofile 20000;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 10000; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    client_max_body_size 4m; client_body_buffer_size 4m;
    nchan_shared_memory_size 128m;
    server {{
        listen 127.0.0.1:{port};
        location = /publish {{
            nchan_publisher; nchan_channel_id one; nchan_message_buffer_length 1000;
        }}
        location = /events {{
            nchan_subscriber eventsource websocket longpoll; nchan_channel_id one;
            nchan_subscriber_first_message newest;
        }}
    }}
}}
"""


def main(bootstrap: str, topic: str, port: int, folder: Path) -> None:
    """Serve and publish until SIGTERM, which nginx gets, too: killed with its master only, its
    worker would stay.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "nginx.conf"
    config.write_text(CONFIG.format(module=MODULE, folder=folder, port=port))
    server = subprocess.Popen([nginx_with_nchan(), "-p", str(folder), "-c", str(config)])
    print(f"nginx {server.pid}", flush=True)
    try:
        _publish(server, bootstrap, topic, port)
    finally:
        server.terminate()
        server.wait(10)


def _publish(server: subprocess.Popen[bytes], bootstrap: str, topic: str, port: int) -> None:
    with httpx.Client(timeout=10) as publisher:
        for lines in pieces(bootstrap, topic):
            if server.poll() is not None:
                return
            # Lines of one message get a `data:` each, so readers see one event of many objects:
            # they count the objects.
            publisher.post(
                f"http://127.0.0.1:{port}/publish", content=b"\n".join(lines)
            ).raise_for_status()


def pieces(bootstrap: str, topic: str) -> Iterator[list[bytes]]:
    """What came within TICK_S, from now on: readings as JSON."""
    consumer = clients.consumer(KafkaConfig(bootstrap=bootstrap), "rival")
    end = watermarks(consumer, topic, 0)[1]
    consumer.assign([TopicPartition(topic, 0, end)])
    while True:
        due = time.monotonic() + TICK_S
        lines: list[bytes] = []
        while (left := due - time.monotonic()) > 0:
            message = consumer.poll(left)
            if message is not None and message.error() is None:
                lines += [
                    orjson.dumps(reading)
                    for reading in record.readings(record.decode(message.value()))
                ]
        if lines:
            yield lines


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
