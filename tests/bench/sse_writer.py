"""Writes readings at a steady rate, each with the time of its writing and a number one more than
the one before, to one partition.

`python -m tests.bench.sse_writer BOOTSTRAP STREAM RATE [COUNT]`: until killed, or COUNT readings as
fast as it can.
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

FRAMES_PER_S = 100
TEXT = "Kings Road, between the bridge and the old market"


def write(producer: Producer, stream: str, first: int, readings: int) -> None:
    """One frame."""
    now = time.time()
    ms = int(now * 1000)
    numbers = range(first, first + readings)
    fields = {
        "n": list(numbers),
        "speed_kmh": [51.2] * readings,
        "street": [TEXT] * readings,
        "sent": [now] * readings,
    }
    body = frame.encode(Frame(1, first, first, [ms] * readings, fields))  # type: ignore[arg-type]
    value = record.encode(
        device="car-1", stream=stream, mode=Mode.ACK, sent_at=ms, received_at=ms, frame_bytes=body
    )
    producer.produce(topics.stream_topic(stream), value, partition=0)


def main(bootstrap: str, stream: str, rate: int, count: int) -> None:
    """Write FRAMES_PER_S frames a second, or `count` readings at once."""
    producer = clients.producer(KafkaConfig(bootstrap=bootstrap), "bench-writer")
    readings = max(1, rate // FRAMES_PER_S)
    number, due = 1, time.monotonic()
    while not count or number <= count:
        write(producer, stream, number, readings)
        producer.poll(0)
        if number == 1:
            producer.flush(30)
            print("writing", flush=True)
            due = time.monotonic()
        number += readings
        due += 0 if count else 1 / FRAMES_PER_S
        time.sleep(max(0.0, due - time.monotonic()))
    producer.flush(30)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 0)
