"""Frames of things behind gateways in the order: each gateway numbers by itself, and what the thing
numbered comes once by whichever, also where the process is killed between any two records.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import orjson
import pytest

from edgewake.cloud.sequencer.order.arrival import Arrival, Statement
from edgewake.cloud.sequencer.order.bounds import Bounds
from edgewake.cloud.sequencer.order.partition import Partition
from edgewake.protocol.frames import record
from edgewake.protocol.frames.frame import Frame, encode
from edgewake.protocol.frames.record import Discipline, Mode, Placement
from edgewake.protocol.frames.sequence import Position

T0 = 1_790_000_000_000
EPOCH = 7
"""Of both gateways: it may be."""


@dataclass
class Message:
    """As Kafka's client gives it."""

    body: bytes

    def value(self) -> bytes:
        return self.body


def frame(via: str, number: int, numbers: list[int], *, offset: int, seq: int) -> Arrival:
    """A frame of the thing `meter` with these readings, which it numbered itself."""
    made = Frame(
        EPOCH,
        number,
        seq,
        [T0 + 1000 * n for n in numbers],
        {"n": numbers, "thing_seq": numbers},
    )
    body = record.encode(
        device="meter",
        stream="power",
        mode=Mode.ACK,
        sent_at=None,
        received_at=T0,
        frame_bytes=encode(made),
        via=via,
    )
    placement = Placement(
        Discipline.ORDERED, "power", EPOCH, number, number, seq, len(numbers), via=via, newest=1
    )
    return Arrival(offset, "meter", placement, len(body), T0, payload=Message(body))


def log() -> list[Arrival]:
    """Of `ew.up`: the thing moved from gw-1 to gw-2, which had 5 and 6 again; gw-1 brings late what
    it had kept, out of order, and repeats all of it.
    """
    late = [("gw-1", 3, [7], 7), ("gw-1", 2, [4, 5, 6], 4)]
    rows = [
        ("gw-1", 1, [1, 2, 3], 1),
        ("gw-2", 1, [5, 6, 8, 9], 1),
        *late,
        ("gw-2", 2, [10], 5),
        *late,
        ("gw-1", 1, [1, 2, 3], 1),
    ]
    return [
        frame(via, number, numbers, offset=offset, seq=seq)
        for offset, (via, number, numbers, seq) in enumerate(rows)
    ]


def shown(out: Arrival) -> list[tuple[str, int, int]]:
    """(gateway, its number of the reading, the thing's) of each reading that passes."""
    decoded = record.decode(out.payload.value() if out.value is None else out.value)
    first = decoded.frame.seq or 0
    return [(decoded.via, first + i, int(n)) for i, n in enumerate(decoded.frame.fields["n"])]  # type: ignore[arg-type]


@pytest.mark.parametrize("killed_after", [None, *range(9)])
def test_each_reading_once_whenever_the_process_is_killed(killed_after: int | None) -> None:
    partition, rows, position = Partition(0, Bounds()), dict[int, bytes](), Position()
    passed: list[tuple[str, int, int]] = []
    arrivals = log()
    for arrival in arrivals:
        step = partition.step([arrival], arrival.offset + 1, now_s=0.0, now_ms=T0)
        if step is not None:
            rows |= dict(step.rows)
            position = step.position
            passed += [
                one for out in step.outputs if isinstance(out, Arrival) for one in shown(out)
            ]
        if arrival.offset == killed_after:
            partition = Partition.restore(0, Bounds(), position=position, blocks=rows)
            partition.start_at(0, arrival.offset + 1, now_s=0.0)
            for again in log()[partition.position.read_from : partition.next_offset]:
                partition.replay([again], again.offset + 1, now_s=0.0)
    assert Counter(n for *_, n in passed) == Counter(range(1, 11))
    assert sorted(passed) == [
        ("gw-1", 1, 1), ("gw-1", 2, 2), ("gw-1", 3, 3), ("gw-1", 4, 4), ("gw-1", 7, 7),
        ("gw-2", 1, 5), ("gw-2", 2, 6), ("gw-2", 3, 8), ("gw-2", 4, 9), ("gw-2", 5, 10),
    ]  # fmt: skip


def test_control_without_numbers_the_two_that_were_sent_twice_come_twice() -> None:
    partition = Partition(0, Bounds())
    passed: Counter[int] = Counter()
    for arrival in log():
        body = orjson.loads(arrival.payload.value())
        del body["fields"]["thing_seq"]
        arrival.payload = Message(orjson.dumps(body))
        step = partition.step([arrival], arrival.offset + 1, now_s=0.0, now_ms=T0)
        for out in step.outputs if step is not None else ():
            passed.update(n for *_, n in shown(out))  # type: ignore[arg-type]
    assert passed == Counter(range(1, 11)) + Counter([5, 6])


def test_a_hole_of_one_gateway_is_said_of_that_one_also_after_a_restart() -> None:
    bounds = Bounds(hold_s=1.0, hole_s=60.0)
    partition = Partition(0, bounds)
    for offset, (via, number) in enumerate((("gw-1", 1), ("gw-2", 1), ("gw-2", 3))):
        made = frame(via, number, [offset], offset=offset, seq=number)
        partition.step([made], offset + 1, now_s=0.0, now_ms=T0)
    step = partition.step([], 3, now_s=2.0, now_ms=T0 + 2000)
    assert step is not None
    said = [one for one in step.outputs if isinstance(one, Statement)]
    assert [(one.kind, one.device, one.via, one.first) for one in said] == [
        ("open", "meter", "gw-2", 2)
    ]
    again = Partition.restore(0, bounds, position=step.position, blocks=dict(step.rows))
    again.start_at(0, 3, now_s=2.0)
    again.step([], 3, now_s=3.0, now_ms=T0 + 3000)
    step = again.step([], 3, now_s=200.0, now_ms=T0 + 200_000)
    assert step is not None
    (lost,) = [one for one in step.outputs if isinstance(one, Statement)]
    assert (lost.kind, lost.via, lost.lost) == ("missing", "gw-2", 1)
