"""Writes readings at a steady rate, each with the time of its writing: `python -m tests.bench.sse_writer BOOTSTRAP STREAM RATE`."""

from __future__ import annotations

import sys
import time

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import frame, record, topics
from edgewake.protocol.frame import Frame
from edgewake.protocol.record import Mode

FRAMES_PER_S = 100
TEXT = "Kings Road, between the bridge and the old market"


def main(bootstrap: str, stream: str, rate: int) -> None:
    """Write until killed: FRAMES_PER_S frames a second over four devices."""
    producer = clients.producer(KafkaConfig(bootstrap=bootstrap), "bench-writer")
    readings = max(1, rate // FRAMES_PER_S)
    number, due = 0, time.monotonic()
    while True:
        number += 1
        now = time.time()
        ms = int(now * 1000)
        fields = {"speed_kmh": [51.2] * readings, "street": [TEXT] * readings, "sent": [now] * readings}
        body = frame.encode(Frame(1, number, number * readings, [ms] * readings, fields))  # type: ignore[arg-type]
        device = f"car-{number % 4}"
        value = record.encode(device=device, stream=stream, mode=Mode.ACK, sent_at=ms, received_at=ms, frame_bytes=body)
        producer.produce(topics.stream_topic(stream), value, key=device)
        producer.poll(0)
        if number == 1:
            producer.flush(30)
            print("writing", flush=True)
            due = time.monotonic()
        due += 1 / FRAMES_PER_S
        time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
