"""What a frame of 10,000 readings costs that are too late for three queries: the batch is looked at a second time.

`python -m tests.bench.bench_late [--runs 3] [--json FILE]`. Processor time of the driver and its JVM, warm, without Kafka's part.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from time import process_time
from typing import Final

import orjson

from edgewake.cloud.analysis.late import late_windows, old_frames
from edgewake.cloud.analysis.plan_values import PlanValues
from edgewake.cloud.analysis.query_file import parse
from edgewake.cloud.analysis.session import jvm_pid, kill_jvm, start_session
from edgewake.deploy import jars
from edgewake.protocol.field_type import FieldType
from tests.bench.figures import Found, cpu_s, run

READINGS: Final = 10_000
T0: Final = 1_790_000_040_000
QUERY: Final = "-- name: q\nSELECT device, avg(speed) AS mean FROM s GROUP BY window(event_time, {}), device"
WINDOWS: Final = ("'1 second'", "'1 minute'", "'1 minute', '10 seconds'")


def measure(folder: Path, runs: int) -> Found:
    """Start Spark, sort the frame out a few times to warm up, then measure."""
    found: Found = defaultdict(list)
    session = start_session(
        jars_dir=jars.ensure("spark"),
        work_dir=folder / "spark",
        master="local[2]",
        driver_memory="1g",
        state_partitions=1,
        maintenance_s=60,
    )
    try:
        body = {"device": "d", "received_at": T0, "t": [T0 + i * 1000 for i in range(READINGS)], "fields": {"speed": [1.5] * READINGS}}
        frame = session.createDataFrame([(0, 0, orjson.dumps(body))], "partition int, offset bigint, value binary")
        latest = PlanValues(session)
        queries = [parse(QUERY.format(window)) for window in WINDOWS]
        for i in range(5 + runs):
            before_s = cpu_s(jvm_pid(session)) + process_time()
            # Another end each time, as for batches of a real stream.
            latest.set(0, T0 + READINGS * 1000 + i * 10_000)
            closed, fields = [T0 + READINGS * 1000 + i * 10_000] * len(queries), {"speed": FieldType.NUMBER}
            late_windows([old_frames(frame, fields, latest).toArrow()], queries, fields, closed)
            if i >= 5:
                spent_ms = (cpu_s(jvm_pid(session)) + process_time() - before_s) * 1000
                found["late: CPU of a frame of 10,000 old readings, three queries", "ms", 1000].append(spent_ms)
    finally:
        kill_jvm(session)
    return found


if __name__ == "__main__":
    run(measure, __doc__)
