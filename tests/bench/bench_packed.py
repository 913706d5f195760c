"""What a frame of few readings costs: bytes, and processor time of the device that makes it and the
bridge that takes it, in one process.

`python -m tests.bench.bench_packed [--runs 3] [--json FILE]`. Frames of 20 readings, what 100 a
second give in the lane `normal`. JSON as zstd beside the packed form. Device: from columns to the
bytes that are sent. Bridge: from the payload to the record for Kafka, with the decoders of
`CompiledStreams` where they apply.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Final

import mqtt5

from edgewake.cloud.bridge.admission.admit import admit
from edgewake.cloud.bridge.admission.catalogue import AwaitsCatalogueError, Catalogue
from edgewake.cloud.bridge.admission.compiled import CompiledStreams
from edgewake.cloud.bridge.admission.expand_compact import expand_compact
from edgewake.protocol import topics
from edgewake.protocol.frames import compact
from edgewake.protocol.frames.compact import COMPACT_TYPE, Compact, correlation
from edgewake.protocol.frames.frame import Frame, compress, encode
from edgewake.protocol.frames.packed import PACKED_TYPE, pack
from tests.bench.bench_edge import gps, host_metrics
from tests.bench.figures import Found, run

READINGS: Final = 20
REPEATS: Final = 2_000
T0: Final = 1_790_000_000_000


def measure(_folder: Path, runs: int) -> Found:
    """All figures."""
    found: Found = defaultdict(list)
    for _ in range(runs):
        for make in (host_metrics, gps):
            rng = random.Random(3)
            rows = [make(rng, n) for n in range(READINGS)]
            t = [T0 + 10 * n + rng.randrange(3) for n in range(READINGS)]
            frame = Frame(
                2_175_000_000_123,
                120,
                2401,
                t,
                {name: [row[name] for row in rows] for name in rows[0]},
            )
            _one(make.__name__, frame, found)
    return found


def _one(stream: str, frame: Frame, found: Found) -> None:
    topic, key = topics.up("bench", stream), (frame.epoch or 0, frame.frame or 0)
    zstd, content_type = compress(encode(frame))
    bits = pack(frame)
    assert bits is not None
    full = mqtt5.PublishPacket(
        topic, zstd, qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=7, content_type=content_type,
        response_topic=topics.ack("bench"),
        correlation_data=correlation(stream, *key), user_properties=[("sent_at", str(T0))],
    )  # fmt: skip
    payload = compact.encode(Compact(T0, *key, PACKED_TYPE, bits))
    short = mqtt5.PublishPacket(
        "",
        payload,
        qos=mqtt5.QoS.AT_LEAST_ONCE,
        packet_id=7,
        content_type=COMPACT_TYPE,
        topic_alias=1,
    )
    arrived = mqtt5.PublishPacket(
        topic, payload, qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=7, content_type=COMPACT_TYPE
    )
    kinds = (
        ("zstd", full, full, lambda: compress(encode(frame))),
        ("packed", short, arrived, lambda: pack(frame)),
    )
    for kind, sent, came, make in kinds:
        name = f"{kind}, {stream}"
        found[f"{name}: packet", "bytes", None].append(len(sent.write()))
        found[f"{name}: frame in it", "bytes", None].append(len(zstd if kind == "zstd" else bits))
        found[f"{name}: device", "µs", None].append(_time(make))
        found[f"{name}: bridge", "µs", None].append(_time(_bridge(came)))


def _bridge(packet: mqtt5.PublishPacket) -> Callable[[], object]:
    catalogue = Catalogue(lambda: 0.0)
    compiled = CompiledStreams(catalogue)

    def take() -> object:
        message = expand_compact(packet)
        assert isinstance(message, mqtt5.PublishPacket)
        return admit(message, catalogue, received_at=T0, compiled=compiled)

    try:
        take()
    except AwaitsCatalogueError:
        for row in catalogue.unpublished():
            catalogue.follow(row.name, row.model_dump_json().encode())
    return take


def _time(call: Callable[[], object]) -> float:
    """µs of processor time."""
    begin_s = time.process_time()
    for _ in range(REPEATS):
        call()
    return (time.process_time() - begin_s) / REPEATS * 1e6


if __name__ == "__main__":
    run(measure, __doc__)
