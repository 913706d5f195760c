"""The benchmark's query in Bytewax, as its documents advise: Kafka in batches, a fold over tumbling
windows of event time, Kafka out.

It has no exactly-once to Kafka, and recovery is off: its fastest form. `python rival_bytewax.py
KAFKA TOPIC_IN TOPIC_OUT FORM WORKERS`, FORM `readings` (each reading goes through the window, as
ours does) or `frames` (each frame is summed up in Python first).
"""

import copyreg
import sys
import time
from datetime import UTC, datetime, timedelta

import orjson
from bytewax import operators as op
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kop
from bytewax.dataflow import Dataflow
from bytewax.operators import windowing
from bytewax.run import cli_main
from bytewax.testing import run_main
from datasketches import hll_sketch, hll_union

KAFKA, TOPIC_IN, TOPIC_OUT, FORM, WORKERS = sys.argv[1:6]
LOG2_BUCKETS = 14
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
seen = {}

# It copies all states at the end of each epoch, without recovery, too, and these sketches say
# nothing of how they are copied.
copyreg.pickle(hll_sketch, lambda one: (hll_sketch.deserialize, (one.serialize_compact(),)))


def _note() -> None:
    now = time.monotonic()
    seen.setdefault("first", now)
    seen["last"] = now


def readings(message):
    """A reading each: (device, (time, speed, bat))."""
    _note()
    row = orjson.loads(message.value)
    fields, device = row["fields"], row["device"]
    return [
        (device, (t, speed, bat))
        for t, speed, bat in zip(row["t"], fields["speed"], fields["bat"], strict=True)
    ]


def frames(message):
    """A frame, summed up: (device, (time, n, sum, max, sketch))."""
    _note()
    row = orjson.loads(message.value)
    speed = row["fields"]["speed"]
    sketch = hll_sketch(LOG2_BUCKETS)
    for bat in row["fields"]["bat"]:
        sketch.update(bat)
    return [(row["device"], (row["t"][0], len(speed), sum(speed), max(speed), sketch))]


class Union:
    """An hll_union that can be copied."""

    def __init__(self):
        self._union = hll_union(LOG2_BUCKETS)
        self.update = self._union.update
        self.get_estimate = self._union.get_estimate

    def __deepcopy__(self, _memo):
        copy = Union()
        copy.update(self._union.get_result())
        return copy


def nothing():
    """The fold's begin."""
    return [0, 0.0, float("-inf"), hll_sketch(LOG2_BUCKETS) if FORM == "readings" else Union()]


def fold_reading(state, value):
    """One more reading."""
    state[0] += 1
    state[1] += value[1]
    if value[1] > state[2]:
        state[2] = value[1]
    state[3].update(value[2])
    return state


def fold_frame(state, value):
    """One more frame."""
    state[0] += value[1]
    state[1] += value[2]
    state[2] = max(state[2], value[3])
    state[3].update(value[4])
    return state


def merged(left, right):
    """Only sessions merge."""
    raise NotImplementedError


def result(item):
    """A result as it goes to Kafka."""
    device, (window, (n, total, high, sketch)) = item
    levels = sketch.get_estimate()
    row = {
        "device": device,
        "window_start": window * 60_000,
        "n": n,
        "mean": total / n,
        "high": high,
        "levels": levels,
    }
    return KafkaSinkMessage(device.encode(), orjson.dumps(row))


flow = Dataflow("rival")
stream = kop.input("in", flow, brokers=[KAFKA], topics=[TOPIC_IN], tail=False, batch_size=1000)
keyed = op.flat_map("decode", stream.oks, readings if FORM == "readings" else frames)
clock = windowing.EventClock(
    lambda value: EPOCH + timedelta(milliseconds=value[0]),
    wait_for_system_duration=timedelta(seconds=30),
)
windower = windowing.TumblingWindower(length=timedelta(minutes=1), align_to=EPOCH)
folded = windowing.fold_window(
    "window",
    keyed,
    clock,
    windower,
    nothing,
    fold_reading if FORM == "readings" else fold_frame,
    merged,
)
kop.output("out", op.map("result", folded.down, result), brokers=[KAFKA], topic=TOPIC_OUT)

if __name__ == "__main__":
    if int(WORKERS) == 1:
        run_main(flow)
    else:
        cli_main(flow, workers_per_process=int(WORKERS))
    print(orjson.dumps({"first": seen["first"], "last": time.monotonic()}).decode(), flush=True)
