"""The benchmark's query in Pathway: JSON decoded in a function, readings flattened, tumbling
windows of event time, Kafka out.

`python rival_pathway.py KAFKA TOPIC_IN TOPIC_OUT FORM THREADS`, FORM `readings` (each reading goes
through the window, as ours does), `frames` (each frame is summed up in Python first) or `once` (as
`readings`, each window passed on once, when a later reading closes it).

While a window is open, Pathway passes on each change of it and takes the row before back (`diff`
-1): the last row counts, and no window is ever closed or forgotten. `once` (its
`exactly_once_behavior`) closes them by the latest time of all partitions together; it is slower, so
it is left out of the figures. At least once, without persistence; no licence key, no monitoring. It
has a HyperLogLog of its own for readings; sketches of frames are united by an accumulator in
Python, whose state it keeps in bytes.
"""

import os
import sys
import threading
import time
import traceback

import orjson
import pathway as pw
from datasketches import hll_sketch, hll_union

KAFKA, TOPIC_IN, TOPIC_OUT, FORM, THREADS = sys.argv[1:6]
LOG2_BUCKETS = 14
IDLE_S = 8.0
COMMIT_MS = 100
"""What is read is passed on so often; so the first reading is noted at most so much too late."""
seen = {}


def readings(body: bytes) -> list[tuple[str, int, float, float]]:
    """A reading each: (device, time, speed, bat)."""
    seen.setdefault("first", time.monotonic())
    row = orjson.loads(body)
    fields, device = row["fields"], row["device"]
    return [
        (device, t, speed, bat)
        for t, speed, bat in zip(row["t"], fields["speed"], fields["bat"], strict=True)
    ]


def frame(body: bytes) -> tuple[str, int, int, float, float, bytes]:
    """A frame, summed up: (device, time, n, sum, max, sketch)."""
    seen.setdefault("first", time.monotonic())
    row = orjson.loads(body)
    speed = row["fields"]["speed"]
    sketch = hll_sketch(LOG2_BUCKETS)
    for bat in row["fields"]["bat"]:
        sketch.update(bat)
    return (
        row["device"],
        row["t"][0],
        len(speed),
        sum(speed),
        max(speed),
        sketch.serialize_compact(),
    )


class Levels(pw.BaseCustomAccumulator):
    """The union of sketches."""

    def __init__(self, union):
        self.union = union

    @classmethod
    def from_row(cls, row):
        """Of one frame."""
        union = hll_union(LOG2_BUCKETS)
        union.update(hll_sketch.deserialize(row[0]))
        return cls(union)

    def update(self, other):
        """One more."""
        self.union.update(other.union.get_result())

    def serialize(self):
        """As Pathway keeps it."""
        return self.union.get_result().serialize_compact()

    @classmethod
    def deserialize(cls, kept):
        """The same, back."""
        return cls.from_row([kept])

    def compute_result(self) -> float:
        """How many."""
        return self.union.get_estimate()


def summed():
    """The query."""
    source = pw.io.kafka.read(
        {
            "bootstrap.servers": KAFKA,
            "group.id": f"rival-{TOPIC_IN}",
            "auto.offset.reset": "earliest", "isolation.level": "read_committed",
            "fetch.wait.max.ms": "20",
        },
        topic=TOPIC_IN, format="raw", autogenerate_key=True, autocommit_duration_ms=COMMIT_MS,
    )  # fmt: skip
    minute = pw.temporal.tumbling(duration=60_000)
    if FORM == "frames":
        row = source.select(
            row=pw.apply_with_type(frame, tuple[str, int, int, float, float, bytes], pw.this.data)
        )
        names = ("device", "t", "n", "total", "high", "sketch")
        rows = row.select(**{name: pw.this.row[i] for i, name in enumerate(names)})
        return (
            rows.windowby(pw.this.t, window=minute, instance=pw.this.device)
            .reduce(
                device=pw.this._pw_instance,
                window_start=pw.this._pw_window_start,
                n=pw.reducers.sum(pw.this.n),
                total=pw.reducers.sum(pw.this.total),
                high=pw.reducers.max(pw.this.high),
                levels=pw.reducers.udf_reducer(Levels)(pw.this.sketch),
            )
            .select(
                pw.this.device,
                pw.this.window_start,
                pw.this.n,
                pw.this.high,
                pw.this.levels,
                mean=pw.this.total / pw.this.n,
            )
        )
    row = source.select(
        row=pw.apply_with_type(readings, list[tuple[str, int, float, float]], pw.this.data)
    ).flatten(pw.this.row)
    rows = row.select(
        device=pw.this.row[0], t=pw.this.row[1], speed=pw.this.row[2], bat=pw.this.row[3]
    )
    behavior = pw.temporal.exactly_once_behavior() if FORM == "once" else None
    return rows.windowby(
        pw.this.t, window=minute, instance=pw.this.device, behavior=behavior
    ).reduce(
        device=pw.this._pw_instance,
        window_start=pw.this._pw_window_start,
        n=pw.reducers.count(),
        mean=pw.reducers.avg(pw.this.speed),
        high=pw.reducers.max(pw.this.speed),
        levels=pw.reducers.count_distinct_approximate(pw.this.bat, precision=LOG2_BUCKETS),
    )


def changed(key, row, time, is_addition):
    """Readings in all results."""
    seen["n"] = row["n"]


def leave_when_idle():
    """Nothing comes any more."""
    before, since = None, time.monotonic()
    while before is None or time.monotonic() - since < IDLE_S:
        time.sleep(0.1)
        if seen.get("n") != before:
            before, since = seen["n"], time.monotonic()
            seen["last"] = since
    print(orjson.dumps(seen).decode(), flush=True)
    os._exit(0)


if __name__ == "__main__":
    os.environ["PATHWAY_THREADS"] = THREADS
    for home in ("PATHWAY_LICENSE_KEY", "PATHWAY_MONITORING_SERVER"):
        os.environ.pop(home, None)
    results = summed()
    pw.io.kafka.write(
        results,
        {"bootstrap.servers": KAFKA, "linger.ms": "5", "compression.type": "lz4"},
        TOPIC_OUT,
        key=results.device,
    )
    pw.io.subscribe(results.reduce(n=pw.reducers.sum(pw.this.n)), on_change=changed)
    threading.Thread(target=leave_when_idle, daemon=True).start()
    try:
        pw.run(monitoring_level=pw.MonitoringLevel.NONE, default_logging=False)
    except Exception:
        traceback.print_exc()
        os._exit(1)
