"""Writes readings of many devices at a steady rate, each with the time of its writing and a number
of its device's own, one more than the one before.

`python -m tests.bench.devices_writer BOOTSTRAP STREAM RATE DEVICES`: until killed. Devices take
turns; each frame has one reading.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import Producer

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.frames import frame, record
from edgewake.protocol.frames.frame import Frame
from edgewake.protocol.frames.record import Mode

TURNS_PER_S = 100


def write(producer: Producer, stream: str, device: int, number: int) -> None:
    """One reading."""
    now = time.time()
    ms = int(now * 1000)
    fields = {"n": [number], "speed_kmh": [51.2], "sent": [now]}
    body = frame.encode(Frame(1, number, number, [ms], fields))  # type: ignore[arg-type]
    value = record.encode(
        device=f"car-{device}",
        stream=stream,
        mode=Mode.ACK,
        sent_at=ms,
        received_at=ms,
        frame_bytes=body,
    )
    producer.produce(topics.stream_topic(stream), value, partition=0)


def main(bootstrap: str, stream: str, rate: int, devices: int) -> None:
    """Write RATE readings a second."""
    producer = clients.producer(KafkaConfig(bootstrap=bootstrap), "bench-writer")
    written, due = 0, time.monotonic()
    while True:
        for _ in range(max(1, rate // TURNS_PER_S)):
            write(producer, stream, written % devices, 1 + written // devices)
            producer.poll(0)
            written += 1
        if due and written <= rate // TURNS_PER_S:
            producer.flush(30)
            print("writing", flush=True)
            due = time.monotonic()
        due += 1 / TURNS_PER_S
        time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
