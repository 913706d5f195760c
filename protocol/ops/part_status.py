"""What is said of the system's parts, on the stream `part_status`.

    ew.s.part_status
    {"device":"supervisor","stream":"part_status",…,"fields":{"part":["bridge-1"],"state":["ready"],"pid":[812],"restarts":[0],
     "rss_mib":[61.3],"cpu_percent":[4.2],"uptime_s":[17.0]}}

It goes straight to Kafka and not over MQTT: a program that may publish as a device could else say
of the system what it likes. Bridges refuse this stream from every device, and the right to write to
Kafka is Kafka's own matter. The supervisor of `edgewake up` tells of all its parts; without one
each part tells of itself, with its own credentials, as a device of its name.
"""

from __future__ import annotations

from typing import Final

import orjson

from edgewake.protocol import topics
from edgewake.protocol.frames import frame as frames
from edgewake.protocol.frames import record
from edgewake.protocol.frames.record import Mode

SUPERVISOR: Final = "supervisor"
"""The device of what the supervisor says."""
STREAM: Final = topics.PARTS.removeprefix(topics.STREAM_PREFIX)
SUPERVISED: Final = "EDGEWAKE_SUPERVISED"
"""In the environment of a part whose supervisor tells of it: it tells nothing of itself."""
EVERY_S: Final = 5.0
"""Seconds between two words of a part about itself."""
SILENT_MS: Final = 20_000
"""ms without a word after which a part that tells of itself is silent: four words."""


def record_of(device: str, fields: dict[str, object], now_ms: int) -> bytes:
    """The state of a part as a record of the stream; `device`: who says it."""
    frame = frames.from_plain(orjson.dumps(fields), received_at=now_ms, device=device)
    return record.encode(
        device=device,
        stream=STREAM,
        mode=Mode.ONE_WAY,
        sent_at=now_ms,
        received_at=now_ms,
        frame_bytes=frames.encode(frame),
    )
