"""Writes `ew.up` as bridges do, with their settings, as fast as Kafka takes it.

`python -m tests.bench.up_writer BOOTSTRAP FIRST COUNT STATES RECEIVED_AT`

Record i is the next frame of state i mod STATES, so every device sends in turn, which is the worst
case for any cache. A state is a device and one of STREAMS streams.
"""

from __future__ import annotations

import sys
import time

from edgewake.cloud.bridge.kafka_writer import PRODUCER
from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.frames.record import PLACEMENT_HEADER

STREAMS = 5
_VALUE = (
    '{"device":"%s","stream":"%s","mode":"ack","sent_at":null,"received_at":%d,'
    '"epoch":1,"frame":%d,"seq":%d,"t":[%d],"fields":{"speed":[51.23],"lat":[53.123456],'
    '"lon":[-6.123456],"battery":[77]}}'
)


def names(state: int) -> tuple[str, str]:
    """Device and stream of a state."""
    device, stream = divmod(state, STREAMS)
    return f"device-{device:06d}", f"bench_{stream}"


def main() -> None:
    bootstrap, *numbers = sys.argv[1:]
    first, count, states, received_at = map(int, numbers)
    producer = clients.producer(
        KafkaConfig(bootstrap=bootstrap), "bench-writer", **PRODUCER | {"compression.type": "none"}
    )
    for i in range(first, first + count):
        device, stream = names(i % states)
        frame = i // states + 1
        value = _VALUE % (device, stream, received_at, frame, frame, received_at)
        header = [(PLACEMENT_HEADER, f"o|{stream}|1|{frame}|{frame}|{frame}|1".encode())]
        while True:
            try:
                producer.produce(topics.UP, value, device, headers=header, timestamp=received_at)
                break
            except BufferError:
                producer.poll(0.05)
        if i % 10_000 == 0:
            producer.poll(0)
    deadline = time.monotonic() + 120
    while producer.flush(1) and time.monotonic() < deadline:
        pass
    assert len(producer) == 0


if __name__ == "__main__":
    main()
