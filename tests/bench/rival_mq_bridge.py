"""mq-bridge (a Rust core with Python bindings) from MQTT to Kafka, as its documents advise:
batches, manual acknowledgement, acks=all.

It answers no device and checks nothing. `python -m tests.bench.rival_mq_bridge MQTT_PORT KAFKA
TOPIC`
"""

from __future__ import annotations

import sys

from mq_bridge import Route


def config(mqtt_port: int, bootstrap: str, topic: str) -> dict[str, object]:
    """Its best: large batches, a deep queue, an idempotent producer as ours."""
    mqtt = {
        "url": f"tcp://127.0.0.1:{mqtt_port}", "topic": "ew/v1/+/up/+", "client_id": "mq-bridge",
        "qos": 1, "queue_capacity": 10_000,
        "max_inflight": 4000, "session_expiry_interval": 60,
    }  # fmt: skip
    options = [
        ["acks", "all"],
        ["enable.idempotence", "true"],
        ["linger.ms", "5"],
        ["compression.type", "lz4"],
    ]
    kafka = {"url": bootstrap, "topic": topic, "producer_options": options}
    return {
        "input": {"mqtt": mqtt},
        "output": {"kafka": kafka},
        "batch_size": 1024,
        "concurrency": 4,
    }


if __name__ == "__main__":
    route = Route.from_config(config(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
    route.start()
    print("ready", flush=True)
    route.join()
