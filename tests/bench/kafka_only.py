"""The least that any bridge asks of Kafka: records of one reading, over all partitions of a topic,
with the settings of the bridge.

`python -m tests.bench.kafka_only BOOTSTRAP TOPIC COUNT DEVICES` prints the seconds from the first
record to the last confirmation. The records are made before the clock runs, and nothing is called
for each confirmation.
"""

from __future__ import annotations

import sys
import time

from edgewake.cloud.bridge.kafka_writer import PRODUCER
from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol.frames import record
from edgewake.protocol.frames.record import PLACEMENT_HEADER, Discipline, Mode, Placement
from tests.bench.load import reading_messages

GATHER_MS = 20


def main(bootstrap: str, topic: str, count: int, devices: int) -> float:
    """Seconds."""
    records = []
    for number, message in enumerate(reading_messages(count // devices), 1):
        placement = [
            (
                PLACEMENT_HEADER,
                Placement(Discipline.NUMBERED, "wall", 0, number, number, number, 1).encode(),
            )
        ]
        for device in range(devices):
            name = f"wall-{device}"
            value = record.encode(
                device=name,
                stream="wall",
                mode=Mode.ACK,
                sent_at=None,
                received_at=1_790_000_000_000,
                frame_bytes=message.payload,
            )
            records.append((name, value, placement))
    failed: list[object] = []
    more = {
        "linger.ms": GATHER_MS,
        "compression.type": "none",
        "queue.buffering.max.messages": 500_000,
        "delivery.report.only.error": True,
    }
    producer = clients.producer(
        KafkaConfig(bootstrap=bootstrap), "bench-kafka-only", **PRODUCER | more
    )
    start = time.perf_counter()
    for i, (name, value, placement) in enumerate(records):
        while True:
            try:
                producer.produce(
                    topic,
                    value,
                    name,
                    headers=placement,
                    on_delivery=lambda error, _message: failed.append(error),
                )
                break
            except BufferError:
                producer.poll(0.01)
        if not i % 10_000:
            producer.poll(0)
    left = producer.flush(60)
    took_s = time.perf_counter() - start
    assert not failed, failed[0]
    assert left == 0, f"{left} records are not confirmed"
    return took_s


if __name__ == "__main__":
    print(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])), flush=True)
