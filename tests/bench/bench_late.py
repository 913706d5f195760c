"""What a frame of 10,000 readings costs that are too late for three queries: the batch is looked at
a second time.

`python -m tests.bench.bench_late [--runs 3] [--json FILE]`. Processor time of the driver, without
Kafka's part of reading.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from time import process_time
from typing import Final

from edgewake.cloud.analysis.plan.late import late_windows
from edgewake.cloud.queries.query_file import parse
from edgewake.protocol.frames import frame, record
from edgewake.protocol.frames.field_type import FieldType
from tests.bench.figures import Found, run

READINGS: Final = 10_000
T0: Final = 1_790_000_040_000
QUERY: Final = (
    "-- name: q\nSELECT device, avg(speed) AS mean FROM s GROUP BY window(event_time, {}), device"
)
WINDOWS: Final = ("'1 second'", "'1 minute'", "'1 minute', '10 seconds'")


def measure(_: Path, runs: int) -> Found:
    """Sort the frame out again and again."""
    found: Found = defaultdict(list)
    t = [T0 + i * 1000 for i in range(READINGS)]
    body = frame.encode(frame.Frame(1, 1, 1, t, {"speed": [1.5] * READINGS}))
    value = record.encode(
        device="d",
        stream="s",
        mode=record.Mode.ACK,
        sent_at=None,
        received_at=t[-1],
        frame_bytes=body,
    )
    queries = [parse(QUERY.format(window)) for window in WINDOWS]
    for _ in range(runs):
        before_s = process_time()
        windows = late_windows(
            [value], queries, {"speed": FieldType.NUMBER}, [t[-1] + 60_000] * len(queries)
        )
        assert sum(one.readings for one in windows) == 8 * READINGS
        found["late: CPU of a frame of 10,000 old readings, three queries", "ms", 1000].append(
            (process_time() - before_s) * 1000
        )
    return found


if __name__ == "__main__":
    run(measure, __doc__)
