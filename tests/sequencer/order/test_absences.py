"""Things that said that they are offline, over late readings, wrong clocks, and kills."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgewake.cloud.sequencer.order import absences
from edgewake.cloud.sequencer.order.arrival import Arrival
from edgewake.cloud.sequencer.order.bounds import Bounds
from edgewake.cloud.sequencer.order.partition import Partition
from edgewake.protocol.frames import record
from edgewake.protocol.frames.frame import Frame, Scalar, encode
from edgewake.protocol.frames.record import Discipline, Mode, Placement
from edgewake.protocol.frames.sequence import Position
from tests.sequencer.order.test_each_once import Message

T0 = 1_790_000_000_000
HOUR_MS = 3_600_000


def arrival(
    offset: int,
    *readings: tuple[int, bool | None],
    thing: str = "plug",
    has_word: bool = True,
    number: int | None = None,
) -> Arrival:
    """A frame of a thing: seconds of each reading, and its word of itself."""
    number = offset + 1 if number is None else number
    times = [T0 + 1000 * second for second, _ in readings]
    fields: dict[str, list[Scalar]] = {"n": list(range(len(times)))}
    if has_word:
        fields["thing_online"] = [word for _, word in readings]
    body = record.encode(
        device=thing,
        stream="power",
        mode=Mode.ACK,
        sent_at=None,
        received_at=T0 + HOUR_MS,
        frame_bytes=encode(Frame(7, number, number, times, fields)),
        via="gw",
    )
    placement = Placement(
        Discipline.ORDERED, "power", 7, number, number, number, len(times),
        via="gw", newest=max(times),
    )  # fmt: skip
    return Arrival(offset, thing, placement, len(body), T0 + HOUR_MS, payload=Message(body))


LOG = [
    (arrival(0, (10, None)), False),
    (arrival(1, (20, False)), True),
    (arrival(2, (15, None), has_word=False), True),
    (arrival(3, (12, True)), True),
    (arrival(4, (30, True)), False),
    (arrival(5, (99 * 3600, None), (40, False)), True),
    (arrival(6, (39, None), (99 * 3600, False)), True),
    (arrival(7, (35, None), has_word=False), True),
]
"""What came of a plug, and whether it is offline then: also after a late reading, an older word,
and with a reading of the future in one frame with the word."""


@pytest.mark.parametrize("killed_after", [None, *range(len(LOG))])
def test_a_thing_is_offline_by_its_word_until_it_measures_later_whoever_dies(
    killed_after: int | None,
) -> None:
    """It was kept in memory: after a restart a late reading showed the thing online."""
    partition, rows, position = Partition(0, Bounds()), dict[int, bytes](), Position()
    found: list[bool] = []
    for now_s, (one, _) in enumerate(LOG):
        step = partition.step([one], one.offset + 1, now_s=61.0 * now_s, now_ms=T0)
        if step is not None:
            rows |= dict(step.rows)
            position = step.position
        if one.offset == killed_after:
            partition = Partition.restore(0, Bounds(), position=position, blocks=rows)
            partition.start_at(0, one.offset + 1, now_s=0.0)
            for again, _ in LOG[partition.position.read_from : partition.next_offset]:
                partition.replay([again], again.offset + 1, now_s=0.0)
        found.append(partition.order.absences.is_offline("plug", "gw"))
        assert not partition.order.absences.is_offline("plug", "other")
    assert found == [is_offline for _, is_offline in LOG]


def test_a_word_of_the_future_ends_with_the_next_reading() -> None:
    partition = Partition(0, Bounds())
    partition.step([arrival(0, (99 * 3600, False))], 1, now_s=0.0, now_ms=T0)
    assert partition.order.absences.is_offline("plug", "gw")
    later = arrival(1, (3601, None))
    later.received_at += 2000
    partition.step([later], 2, now_s=0.0, now_ms=T0)
    assert not partition.order.absences.is_offline("plug", "gw")


@pytest.mark.parametrize(
    "written",
    [
        b'"t":[1790000001000],"fields":{"x":[1]},"thing_online":[true]',
        b'"gap":{"reason":"quota","count":1},"t":[1,2],"fields":{"thing_online":[false]}',
        b'"gap":{"reason":"quota","count":1},"fields":{"thing_seq":[1]}',
    ],
)
def test_a_frame_that_only_looks_as_if_it_had_a_word_says_none(written: bytes) -> None:
    """It ended the sequencer, and each one that read it after that."""
    one = arrival(0, (1, None))
    body = record.encode(
        device="plug",
        stream="power",
        mode=Mode.ACK,
        sent_at=None,
        received_at=T0 + HOUR_MS,
        frame_bytes=b'{"epoch":7,"frame":1,"seq":1,' + written + b"}",
        via="gw",
    )
    assert record.decode(body).frame.epoch == 7, "a bridge passes it on"
    partition = Partition(0, Bounds())
    assert partition.step([replace(one, payload=Message(body))], 1, now_s=0.0, now_ms=T0)
    assert not partition.order.absences.is_offline("plug", "gw")


def test_they_are_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(absences, "ABSENCES_MAX", 2)
    partition = Partition(0, Bounds())
    for offset, name in enumerate("abc"):
        one = arrival(offset, (1, False), thing=name, number=1)
        partition.step([one], offset + 1, now_s=0.0, now_ms=T0)
    kept = [name for name in "abc" if partition.order.absences.is_offline(name, "gw")]
    assert kept == ["b", "c"]
