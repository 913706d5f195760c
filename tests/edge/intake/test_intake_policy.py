"""What becomes of readings at a full queue, at the stop of an agent and at each bound; and that
every one of them is counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.intake.intake import BUNDLE_MIN, SAY_EVERY, SHAPES_MAX, Intake, OneWaySink
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.log.event_log import LogBusyError
from edgewake.edge.log.tables.codec import Reading
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frames.frame import FIELDS_MAX, READING_BYTES_MAX, STRING_CHARS_MAX

NOW_MS = 1_790_000_000_000
ONE: Reading = (1, {"n": 1})
AT = ("file", "5")


class Queue:
    """A sink with so much room; `drain` empties it."""

    def __init__(self, room: int) -> None:
        self.left = room
        self.readings: list[Reading] = []
        self.positions: list[tuple[str, str] | None] = []
        self.lost: Counter[str] = Counter()
        self.steps: list[str] = []
        self._room = asyncio.Event()

    def drain(self, room: int) -> None:
        self.left += room
        self._room.set()

    async def room(self, *, promised: bool = False) -> None:
        self.steps.append("room")
        await self._room.wait()
        self._room.clear()

    def put(
        self, readings: Sequence[Reading], position: tuple[str, str] | None, lost: Mapping[str, int]
    ) -> None:
        if len(readings) > self.left:
            raise LogBusyError
        self.left -= len(readings)
        self.readings += readings
        self.positions.append(position)
        self.lost.update(lost)
        self.steps.append("put")

    def offer(self, readings: Sequence[Reading], position: tuple[str, str] | None) -> None:
        self.put(readings, position, {})

    async def kept(self) -> None:
        self.steps.append("kept")

    async def durable(self) -> None:
        self.steps.append("durable")

    def lose(self, count: int, reason: str) -> None:
        self.lost[reason] += count

    def lose_these(self, readings: Sequence[Reading], reason: str) -> None:
        self.lost[reason] += len(readings)


def intake(sink: Queue, policy: Policy = Policy.BLOCK) -> Intake:
    return Intake("test", sink, policy, FakeClock(NOW_MS))


async def test_one_that_blocks_loses_nothing_however_long_it_waits() -> None:
    queue = Queue(0)
    one = intake(queue)
    putting = asyncio.create_task(one.put([ONE, ONE], position=AT, lost={"rotated": 3}))
    for _ in range(3):
        await asyncio.sleep(0)
        queue.drain(0)
    await asyncio.sleep(0)
    assert (putting.done(), one.taken, queue.readings) == (False, 0, [])
    queue.drain(2)
    assert await putting is True
    assert (one.counts(), queue.positions, queue.lost) == (
        {"taken": 2, "dropped": 0, "turned_away": 0, "refused": {}, "remarks": {}, "names": {}},
        [AT],
        {"rotated": 3},
    )
    assert queue.steps[-2:] == ["put", "kept"], (
        "the source goes on when its mode of logging lets it"
    )


async def test_one_that_drops_goes_on_and_says_what_was_lost_with_it() -> None:
    queue = Queue(0)
    one = intake(queue, Policy.DROP_NEWEST)
    assert await one.put([ONE, ONE], position=AT, lost={"rotated": 3}) is False
    assert await one.put([], position=AT, lost={"rotated": 4}) is True, (
        "a position alone needs no room"
    )
    assert (one.dropped, queue.lost, queue.positions) == (2, {"queue_full": 2, "rotated": 7}, [AT])
    queue.drain(1)
    assert await one.put([ONE]) is True
    assert (one.taken, one.dropped) == (1, 2)


async def test_nothing_without_a_position_is_nothing_to_do() -> None:
    queue = Queue(0)
    assert await intake(queue).put([]) is True
    assert queue.steps == []


@pytest.mark.parametrize(
    ("room", "position", "taken", "dropped", "lost"),
    [
        pytest.param(
            0,
            None,
            0,
            2,
            {"stopped": 2},
            id="nobody reads them again: they are lost, and said to be",
        ),
        pytest.param(2, None, 2, 0, {}, id="nobody reads them again, and just now there is room"),
        pytest.param(
            0, AT, 0, 0, {}, id="with a position they are read again after the next start"
        ),
    ],
)
async def test_a_stop_amid_a_wait(
    room: int, position: tuple[str, str] | None, taken: int, dropped: int, lost: dict[str, int]
) -> None:
    queue = Queue(0)
    one = intake(queue)
    putting = asyncio.create_task(one.put([ONE, ONE], position=position))
    await asyncio.sleep(0)
    queue.left += room
    putting.cancel()
    await asyncio.wait({putting})
    assert putting.cancelled()
    assert (one.taken, one.dropped, queue.lost) == (taken, dropped, lost)


@pytest.mark.parametrize(
    ("room", "readings", "taken", "dropped", "lost"),
    [(2, [ONE, ONE], 2, 0, {}), (1, [ONE, ONE], 0, 2, {"stopped": 2}), (0, [], 0, 0, {})],
    ids=["there is room", "there is too little", "there is nothing"],
)
def test_what_was_read_when_a_source_ends(
    room: int, readings: list[Reading], taken: int, dropped: int, lost: dict[str, int]
) -> None:
    queue = Queue(room)
    one = intake(queue)
    one.put_last(readings)
    assert (one.taken, one.dropped, queue.lost) == (taken, dropped, lost)


async def test_a_source_that_acknowledges_waits_until_it_is_durable() -> None:
    queue = Queue(1)
    one = intake(queue)
    await one.put([ONE])
    await one.durable()
    assert queue.steps == ["put", "kept", "durable"]


async def test_the_one_way_goes_straight_on_and_keeps_nothing() -> None:
    sent: list[Reading] = []
    lost: list[tuple[int, str]] = []
    sink = OneWaySink(sent.extend, lambda count, reason: lost.append((count, reason)))
    one = Intake("test", sink, Policy.BLOCK, FakeClock())
    await sink.room()
    await one.put([ONE], position=AT, lost={"rotated": 1})
    await one.durable()
    one.refuse(RejectReason.JSON, "x")
    assert (sent, one.taken, one.refused) == ([ONE], 1, {"json": 1})
    assert lost == [(1, "rotated"), (1, "refused")], "it may lose readings, and says so"


@given(st.lists(st.integers(0, 4), max_size=12), st.integers(0, 20), st.sampled_from(list(Policy)))
def test_every_reading_is_taken_or_dropped(sizes: list[int], room: int, policy: Policy) -> None:
    queue = Queue(room)
    one = intake(queue, policy)

    async def bring() -> None:
        for size in sizes:
            putting = asyncio.create_task(one.put([ONE] * size))
            await asyncio.sleep(0)
            if not putting.done():
                putting.cancel()
            await asyncio.wait({putting})

    asyncio.run(bring())
    assert one.taken + one.dropped == sum(sizes)
    assert (len(queue.readings), sum(queue.lost.values())) == (one.taken, one.dropped)


def said(caplog: pytest.LogCaptureFixture, event: str) -> int:
    return sum(getattr(record, "event", "") == event for record in caplog.records)


@pytest.mark.parametrize(
    ("counts", "times"),
    [([1] * 999, 1), ([1] * 1000, 2), ([1, 5000], 2), ([5000], 1), ([600, 600, 600], 2)],
)
def test_a_flood_of_refusals_is_no_flood_of_words(
    caplog: pytest.LogCaptureFixture, counts: list[int], times: int
) -> None:
    queue = Queue(0)
    one = intake(queue)
    with caplog.at_level(logging.WARNING):
        for count in counts:
            one.refuse(RejectReason.JSON, "not JSON", count)
    assert (one.refused["json"], queue.lost["refused"], said(caplog, "intake.refused")) == (
        sum(counts),
        sum(counts),
        times,
    )
    with caplog.at_level(logging.WARNING):
        one.refuse(RejectReason.TIME, "another reason is said at once")
    assert said(caplog, "intake.refused") == times + 1


async def test_a_flood_that_is_dropped_is_said_once_and_at_every_thousand(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = intake(Queue(0), Policy.DROP_NEWEST)
    with caplog.at_level(logging.ERROR):
        for _ in range(2 * SAY_EVERY + 1):
            await one.put([ONE])
    assert (one.dropped, said(caplog, "intake.dropped")) == (2 * SAY_EVERY + 1, 3)


# bounds


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        pytest.param(b'{"v": "' + b"x" * STRING_CHARS_MAX + b'"}', None, id="the longest text"),
        pytest.param(
            b'{"v": "' + b"x" * (STRING_CHARS_MAX + 1) + b'"}', "oversize", id="one character more"
        ),
        pytest.param(b'{"v": 1}' + b" " * (READING_BYTES_MAX - 8), None, id="the longest line"),
        pytest.param(b'{"v": 1}' + b" " * (READING_BYTES_MAX - 7), "oversize", id="one byte more"),
        pytest.param(b'{"t": 31536000000, "v": 1}', None, id="the first moment"),
        pytest.param(b'{"t": 4102444800000, "v": 1}', None, id="the last moment"),
        pytest.param(b'{"t": true, "v": 1}', None, id="a field that is called like the time"),
        pytest.param(b'{"t": null, "v": 1}', None, id="a time that is null"),
        pytest.param(b'{"v": 9223372036854775807}', None, id="the largest integer"),
        pytest.param(b'{"v": 18446744073709551615}', None, id="the largest without a sign"),
        pytest.param(b"null", "shape", id="null"),
        pytest.param(b'"text"', "shape", id="a text"),
        pytest.param(b"", "json", id="an empty line"),
        pytest.param(b'\xef\xbb\xbf{"v": 1}', None, id="the mark of an editor"),
        pytest.param(
            "{" + ",".join(f'"f{n}":1' for n in range(FIELDS_MAX)) + "}", None, id="the most fields"
        ),
        pytest.param(
            "{" + ",".join(f'"f{n}":1' for n in range(FIELDS_MAX + 1)) + "}",
            "oversize",
            id="one field more",
        ),
        pytest.param(
            "{" + ",".join(f'"f{n}":"{"x" * 8000}"' for n in range(8)) + "}",
            None,
            id="eight long texts",
        ),
    ],
)
def test_each_bound_lets_its_last_in_and_its_first_out_not(
    line: bytes | str, reason: str | None
) -> None:
    one = intake(Queue(0))
    found = one.check_line(line.encode() if isinstance(line, str) else line)
    assert (found is None, dict(one.refused)) == (
        reason is not None,
        {} if reason is None else {reason: 1},
    )


def test_texts_that_are_too_much_together_are_refused() -> None:
    one = intake(Queue(0))
    texts = {f"f{n}": "x" * 8000 for n in range(9)}
    assert (one.check(texts), dict(one.refused)) == (None, {"oversize": 1})


def test_shapes_beyond_the_bound_are_checked_each_time_and_taken_all_the_same() -> None:
    one = intake(Queue(0))
    for number in range(SHAPES_MAX + 5):
        assert one.check({f"f{number}": 1}) == (NOW_MS, {f"f{number}": 1})
    for number in range(SHAPES_MAX + 5):  # their types are known now
        assert one.check({f"f{number}": 1}) == (NOW_MS, {f"f{number}": 1})
    assert len(one._shapes) == SHAPES_MAX


@pytest.mark.parametrize("count", [BUNDLE_MIN - 1, BUNDLE_MIN])
def test_few_or_many_at_once_are_the_same_readings(count: int) -> None:
    bodies = [{"t": NOW_MS + n, "v": n} for n in range(count)]
    expected = [(NOW_MS + n, {"v": n}) for n in range(count)]
    assert list(intake(Queue(0)).check_all(bodies)) == expected
    assert (
        list(
            intake(Queue(0)).check_lines(
                [b'{"t":%d,"v":%d}' % (NOW_MS + n, n) for n in range(count)]
            )
        )
        == expected
    )


@pytest.mark.parametrize("odd", [b"{", b"[]", b'{"v": NaN', b'{"t": null}'])
def test_one_wrong_line_among_many_costs_itself_alone(odd: bytes) -> None:
    one = intake(Queue(0))
    lines = [b'{"t":%d,"v":1}' % (NOW_MS + n) for n in range(20)]
    found = one.check_lines([*lines[:7], odd, *lines[7:]])
    assert ([t - NOW_MS for t, _ in found], sum(one.refused.values())) == (list(range(20)), 1)
