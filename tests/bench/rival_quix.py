"""The benchmark's query in Quix Streams, as its documents advise: rows expanded, a tumbling window
of event time, Kafka out.

`python rival_quix.py KAFKA TOPIC_IN TOPIC_OUT FORM FOLDER GUARANTEE`, FORM `readings` (each reading
goes through the window, as ours does) or `frames` (each frame is summed up in Python first). Its
state is JSON in RocksDB, so a sketch is kept as base64.
"""

import base64
import logging
import sys
import time
from datetime import timedelta

import orjson
from datasketches import hll_sketch, hll_union
from quixstreams import Application
from quixstreams.dataframe.windows import Count, Max, Mean
from quixstreams.dataframe.windows.aggregations import Aggregator

KAFKA, TOPIC_IN, TOPIC_OUT, FORM, FOLDER, GUARANTEE = sys.argv[1:7]
LOG2_BUCKETS = 14
IDLE_S = 5.0
seen = {}


class Distinct(Aggregator):
    """A sketch of a column."""

    def initialize(self):
        """No value yet."""
        return

    def agg(self, old, new, timestamp):
        """One more reading."""
        sketch = hll_sketch.deserialize(base64.b64decode(old)) if old else hll_sketch(LOG2_BUCKETS)
        sketch.update(new["bat"])
        return base64.b64encode(sketch.serialize_compact()).decode()

    def result(self, value):
        """How many."""
        return hll_sketch.deserialize(base64.b64decode(value)).get_estimate() if value else 0.0


def readings(row):
    """A reading each."""
    seen.setdefault("first", time.monotonic())
    fields, device = row["fields"], row["device"]
    return [
        {"device": device, "t": t, "speed": speed, "bat": bat}
        for t, speed, bat in zip(row["t"], fields["speed"], fields["bat"], strict=True)
    ]


def frame(row):
    """A frame, summed up."""
    seen.setdefault("first", time.monotonic())
    speed = row["fields"]["speed"]
    sketch = hll_sketch(LOG2_BUCKETS)
    for bat in row["fields"]["bat"]:
        sketch.update(bat)
    kept = base64.b64encode(sketch.serialize_compact()).decode()
    return {
        "device": row["device"],
        "t": row["t"][0],
        "n": len(speed),
        "sum": sum(speed),
        "high": max(speed),
        "sketch": kept,
    }


def merged(old, new):
    """Two frames."""
    union = hll_union(LOG2_BUCKETS)
    for one in (old, new):
        union.update(hll_sketch.deserialize(base64.b64decode(one["sketch"])))
    kept = base64.b64encode(union.get_result().serialize_compact()).decode()
    return {
        "device": old["device"], "n": old["n"] + new["n"], "sum": old["sum"] + new["sum"],
        "high": max(old["high"], new["high"]), "sketch": kept,
    }  # fmt: skip


def result_of_readings(window):
    """A result as it goes to Kafka; the key names the device."""
    seen["last"] = time.monotonic()
    return {
        "window_start": window["start"],
        **{name: window[name] for name in ("n", "mean", "high", "levels")},
    }


def result_of_frames(window):
    """The same."""
    seen["last"] = time.monotonic()
    row = window["value"]
    levels = hll_sketch.deserialize(base64.b64decode(row["sketch"])).get_estimate()
    return {
        "window_start": window["start"],
        "n": row["n"],
        "mean": row["sum"] / row["n"],
        "high": row["high"],
        "levels": levels,
    }


def main() -> None:
    """Run until nothing comes any more."""
    logging.disable(logging.WARNING)
    app = Application(
        broker_address=KAFKA,
        consumer_group="rival",
        auto_offset_reset="earliest",
        processing_guarantee=GUARANTEE,
        state_dir=FOLDER,
        use_changelog_topics=False,
        commit_interval=1.0,
        consumer_extra_config={"isolation.level": "read_committed", "fetch.wait.max.ms": 20},
        producer_extra_config={"linger.ms": 5, "compression.type": "lz4"},
    )
    rows = app.dataframe(app.topic(TOPIC_IN, value_deserializer="bytes", key_deserializer="str"))
    rows = rows.apply(orjson.loads)
    rows = rows.apply(readings, expand=True) if FORM == "readings" else rows.apply(frame)
    rows = rows.set_timestamp(lambda row, *_: row["t"])
    window = rows.tumbling_window(timedelta(minutes=1))
    if FORM == "readings":
        counted = window.agg(n=Count(), mean=Mean("speed"), high=Max("speed"), levels=Distinct())
        results = counted.final(closing_strategy="partition").apply(result_of_readings)
    else:
        results = (
            window.reduce(merged, lambda row: row)
            .final(closing_strategy="partition")
            .apply(result_of_frames)
        )
    results.apply(lambda row, key, *_: {**row, "device": key}, metadata=True).to_topic(
        app.topic(TOPIC_OUT, key_serializer="str")
    )
    app.run(timeout=IDLE_S)
    print(orjson.dumps(seen).decode(), flush=True)


if __name__ == "__main__":
    main()
