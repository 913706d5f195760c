"""The benchmark's query in Faust (faust-streaming): an agent, a windowed table in memory with event
time, Kafka out.

`python rival_faust.py KAFKA TOPIC_IN TOPIC_OUT FORM`, FORM `readings` (each reading goes through
the window, as ours does), `frames` (each frame is summed up in Python first) or `stock` (as
`readings`, with Faust's own closing of windows).

Faust has no watermark: a timer closes a window so long after its end by the machine's clock, so
what is read back from the log late is closed at once; and its own closing passes no window of one
partition on that begins before the last closed one of another: of 360,000 readings in two
partitions it gave 254 of 600 results (`stock` shows it). `EventTimeTable` therefore closes by the
readings' time, each partition for itself, and reports every window. Neither writes a changelog,
which Faust itself cannot switch off. Its consumer would read uncommitted records unless it runs
exactly-once; here it is told otherwise. At least once.
"""

import asyncio
import logging
import os
import sys
import time

import aiokafka
import faust
import orjson
import uvloop
from datasketches import hll_sketch, hll_union
from faust.tables.table import Table

KAFKA, TOPIC_IN, TOPIC_OUT, FORM = sys.argv[1:5]
LOG2_BUCKETS = 14
IDLE_S = 5.0
WINDOW_S = 60.0
CLOSING_S = 0.2
seen = {}


class Committed(aiokafka.AIOKafkaConsumer):
    """Reads committed records only."""

    def __init__(self, *args, **options):
        super().__init__(*args, **{**options, "isolation_level": "read_committed"})


aiokafka.AIOKafkaConsumer = Committed


class StockTable(Table):
    """Without a changelog; closes windows as Faust does."""

    def partition_for_key(self, key):
        """Of the record that is at work."""
        return faust.current_event().message.partition

    def on_key_set(self, key, value):
        """Note when a new window ends."""
        partition = self.partition_for_key(key)
        if key not in self._partition_timestamp_keys[partition, key[1][1]]:
            self._maybe_set_key_ttl(key, partition)

    def on_key_del(self, key):
        """Nothing to write."""


class EventTimeTable(StockTable):
    """Closes a partition's windows when a later reading of the partition has come."""

    async def _del_old_keys(self):
        for partition, ends in self._partition_timestamps.items():
            latest = self._partition_latest_timestamp[partition] - WINDOW_S
            past = {end for end in ends if end <= latest}
            ends[:] = [end for end in ends if end > latest]
            for end in sorted(past):
                for key in self._partition_timestamp_keys.pop((partition, end), ()):
                    await self.on_window_close(key, self.data.pop(key))


app = faust.App(
    f"rival-{TOPIC_IN}",
    broker=f"kafka://{KAFKA}",
    store="memory://",
    Table=StockTable if FORM == "stock" else EventTimeTable,
    consumer_auto_offset_reset="earliest",
    broker_max_poll_records=5_000,
    broker_commit_every=100_000,
    consumer_max_fetch_size=8 << 20,
    stream_buffer_maxsize=65_536,
    stream_recovery_delay=0.0,
    stream_wait_empty=False,
    producer_linger=0.005,
    producer_acks=-1,
    producer_max_batch_size=1 << 20,
    producer_compression_type="lz4",
    table_cleanup_interval=CLOSING_S,
    topic_disable_leader=True,
    worker_redirect_stdouts=False,
    web_enabled=False,
)
source = app.topic(TOPIC_IN, key_serializer="raw", value_serializer="raw")
results = app.topic(TOPIC_OUT, key_serializer="raw", value_serializer="raw")


def nothing():
    """The fold's begin."""
    return [
        0,
        0.0,
        float("-inf"),
        hll_union(LOG2_BUCKETS) if FORM == "frames" else hll_sketch(LOG2_BUCKETS),
    ]


async def closed(key, state):
    """A result as it goes to Kafka."""
    device, (begin, _) = key
    n, total, high, sketch = state
    row = {
        "device": device,
        "window_start": int(begin) * 1000,
        "n": n,
        "mean": total / n,
        "high": high,
        "levels": sketch.get_estimate(),
    }
    await results.send(key=device.encode(), value=orjson.dumps(row))
    seen["last"] = time.monotonic()


def fold_reading(state, reading):
    """One more reading: (time, speed, bat)."""
    _, speed, bat = reading
    state[0] += 1
    state[1] += speed
    if speed > state[2]:
        state[2] = speed
    state[3].update(bat)
    return state


def fold_frame(state, frame):
    """One more frame: (time, n, sum, max, sketch)."""
    state[0] += frame[1]
    state[1] += frame[2]
    state[2] = max(state[2], frame[3])
    state[3].update(frame[4])
    return state


windows = (
    app.Table("windows", default=nothing, on_window_close=closed)
    .tumbling(WINDOW_S, expires=WINDOW_S)
    .relative_to(lambda value: value[0] / 1000)
)


@app.agent(source)
async def fold(stream):
    """Every frame."""
    async for body in stream:
        seen.setdefault("first", time.monotonic())
        row = orjson.loads(body)
        fields, of_device = row["fields"], windows[row["device"]]
        speed, bat = fields["speed"], fields["bat"]
        if FORM == "frames":
            sketch = hll_sketch(LOG2_BUCKETS)
            for level in bat:
                sketch.update(level)
            frame = row["t"][0], len(speed), sum(speed), max(speed), sketch
            of_device.apply(fold_frame, frame, frame)
        else:
            for reading in zip(row["t"], speed, bat, strict=True):
                of_device.apply(fold_reading, reading, reading)
        seen["read"] = time.monotonic()


@app.task
async def end():
    """Leave when nothing comes any more."""
    while (
        "read" not in seen or time.monotonic() - max(seen["read"], seen.get("last", 0.0)) < IDLE_S
    ):
        await asyncio.sleep(0.2)
    await app.producer.flush()
    os.write(1, b"\n" + orjson.dumps(seen) + b"\n")
    os._exit(0)


if __name__ == "__main__":
    uvloop.install()
    logging.disable(logging.WARNING)
    sys.argv = ["faust", "worker", "--loglevel", "error", "--without-web"]
    app.main()
