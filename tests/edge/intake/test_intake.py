"""The border: what is refused, and that everything else goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.intake.intake import Intake, LossReason
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.log.event_log import LogBusyError
from edgewake.edge.log.tables.codec import Reading
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.errors import Rejected
from edgewake.protocol.frames.event_time import TimeRule
from edgewake.protocol.frames.field_values import is_nothing
from edgewake.protocol.frames.frame import READING_BYTES_MAX, TIME_MS_MAX, from_plain, reading_of

NOW_MS = 1_790_000_000_000
TEXTS = st.text(st.characters(exclude_categories=()) | st.sampled_from("\x00\ud800x"))
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS


class Memory:
    """A sink that is full when told."""

    def __init__(self, *, full: int = 0) -> None:
        self.readings: list[Reading] = []
        self.full = full
        self.lost: Counter[LossReason] = Counter()

    async def room(self, *, promised: bool = False) -> None:
        self.full -= 1

    def offer(self, readings: Sequence[Reading], position: tuple[str, str] | None) -> None:
        self.put(readings, position, {})

    async def kept(self) -> None:
        pass

    async def durable(self) -> None:
        pass

    def lose(self, count: int, reason: LossReason) -> None:
        self.lost[reason] += count

    def lose_these(self, readings: Sequence[Reading], reason: LossReason) -> None:
        self.lose(len(readings), reason)

    def put(
        self, readings: Sequence[Reading], position: tuple[str, str] | None, lost: Mapping[str, int]
    ) -> None:
        if self.full:
            raise LogBusyError
        self.readings += readings


def intake(sink: Memory | None = None, policy: Policy = Policy.BLOCK) -> Intake:
    return Intake("test", sink or Memory(), policy, FakeClock(NOW_MS))


def nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"v": NaN,}', "json"),
        (b'{"v": infinity}', "json"),
        (b"{", "json"),
        (b'{"v": "\xff"}', "json"),
        (b"[1]", "shape"),
        (b"{}", "shape"),
        (b'{"t": 1790000000000}', "shape"),
        (nested(9), "shape"),
        (nested(1000), "shape"),
        (b'{"v": "\\u0000"}', "encoding"),
        (b'{"v": "' + b"x" * 9000 + b'"}', "oversize"),
        (b'{"v": "' + b"x" * READING_BYTES_MAX + b'"}', "oversize"),
        (b"{" + b",".join(b'"f%d":1' % n for n in range(300)) + b"}", "oversize"),
    ],
)
def test_a_wrong_line_is_refused_with_its_reason_and_counted(line: bytes, reason: str) -> None:
    sink = Memory()
    one = intake(sink)
    assert one.check_line(line) is None
    assert one.refused == {reason: 1}
    assert sink.lost == {LossReason.REFUSED: 1}
    assert one.check_line(b'{"v": 1}') == (NOW_MS, {"v": 1})


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 2**64, -(2**63) - 1, object(), {1, 2}, "\ud800"]
)
def test_a_value_that_json_cannot_carry_is_refused(value: object) -> None:
    one = intake()
    assert one.check({"v": value}) is None
    assert one.check({"v": 1.5, "ok": True, "none": None, "text": "x"}) is not None


@pytest.mark.parametrize(
    "line",
    [
        b'{"t":5,"v":1}',
        b'{"t":-1.5,"v":1}',
        b'{"t":4102444800001,"v":1}',
        b'{"t":1790000000,"v":1}',
        b'{"t":"x","v":1}',
        b'{"a-b":1,"mode":2}',
        b'{"a-b":1,"a_b":2}',
        b'{"v":{"x":1,"y":[1,2]}}',
        b'{"a":"x","b":null,"c":true}',
        b'{"v":1e300}',
    ],
)
def test_what_is_taken_is_what_the_bridge_would_read(line: bytes) -> None:
    found = intake().check_line(line)
    frame = from_plain(line, received_at=NOW_MS)
    assert found == (frame.t[0], {name: column[0] for name, column in frame.fields.items()})


@pytest.mark.parametrize("line", [b'{"v": NaN', b'{"t":1790000000000}', nested(9)])
def test_what_is_refused_is_what_the_bridge_would_refuse(line: bytes) -> None:
    assert intake().check_line(line) is None
    with pytest.raises(Rejected):
        from_plain(line, received_at=NOW_MS)


@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "t", "c d"]),
        st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
        min_size=1,
    )
)
def test_the_short_way_for_flat_values_takes_what_the_rules_take(body: dict[str, Any]) -> None:
    try:
        t, fields = reading_of(body, now_ms=NOW_MS)
    except Rejected:
        assert intake().check(body) is None
        return
    known = {name: None if is_nothing(value) else value for name, value in fields.items()}
    assert intake().check(body) == (t, known)


def test_a_temperature_called_t_is_a_field_and_its_reading_of_now() -> None:
    """It became a time in 1970, and was out of all windows."""
    one = intake()
    assert one.check({"t": 21, "h": 48}) == (NOW_MS, {"h": 48, "t_": 21})
    assert one.check_line(b'{"t": 21.5, "h": 48}') == (NOW_MS, {"h": 48, "t_": 21.5})
    many = one.check_all([{"t": n, "h": 48} for n in range(20)])
    assert [reading[1]["t_"] for reading in many] == list(range(20))
    assert (one.remarks, one.refused) == ({"no time in t": 22}, {})
    assert one.counts()["names"] == {"t_": "t"}


def test_a_missing_time_is_now() -> None:
    assert intake().check({"v": 1}) == (NOW_MS, {"v": 1})
    assert intake().check({"v": {"w": 1}}) == (NOW_MS, {"v_w": 1})


async def test_a_blocking_source_waits_for_room() -> None:
    sink = Memory(full=3)
    one = intake(sink)
    await one.put([(1, {"v": 1})])
    assert (one.taken, one.dropped, len(sink.readings)) == (1, 0, 1)


async def test_a_dropping_source_counts_what_it_drops() -> None:
    sink = Memory(full=1)
    one = intake(sink, Policy.DROP_NEWEST)
    await one.put([(1, {"v": 1}), (2, {"v": 2})])
    assert (one.taken, one.dropped, sink.lost) == (0, 2, {LossReason.QUEUE_FULL: 2})


@pytest.mark.parametrize(("now_ms", "t"), [(TIME_MS_MAX + 1, TIME_MS_MAX), (-5, 0)])
def test_a_clock_that_is_far_off_does_not_stop_the_device(now_ms: int, t: int) -> None:
    one = Intake("test", Memory(), Policy.BLOCK, FakeClock(now_ms))
    assert one.check({"v": 1}) == (t, {"v": 1})
    assert one.check({"v": {"w": 1}}) == (t, {"v_w": 1})


def test_seconds_are_converted_and_said_however_many_come_at_once() -> None:
    sink = Memory()
    one = intake(sink)
    found = one.check_all([{"t": 1_790_000_000 + n, "v": n} for n in range(20)])
    assert [t for t, _ in found] == [1000 * (1_790_000_000 + n) for n in range(20)]
    assert (one.remarks, one.refused) == ({"t in s": 20}, {})
    assert one.check({"t": 1_790_000_000_000, "v": 1}) == (1_790_000_000_000, {"v": 1})
    assert one.remarks == {"t in s": 20}


@pytest.mark.parametrize("count", [1, 20])
def test_whole_numbers_that_sql_rounds_are_taken_and_said_however_many_come(count: int) -> None:
    """2^53 + 1 and 2^63 + 1 are none that a double can hold; 2^60 is one."""
    one = intake(Memory())
    bodies = [{"id": 2**53 + 1, "n": 2**60, "v": 1e17, "big": 2**63 + 1}] * count
    assert [fields for _, fields in one.check_all(bodies)] == bodies
    assert one.remarks == {
        f"whole numbers beyond 2^53 in {name}: SQL rounds them": count for name in ("id", "big")
    }
    assert one.check({"id": 7, "n": 2**53}) == (NOW_MS, {"id": 7, "n": 2**53})
    assert sum(one.remarks.values()) == 2 * count


def test_a_named_field_is_the_time_in_whichever_way_readings_come() -> None:
    rule = TimeRule("tst", "s")
    one = Intake("test", Memory(), Policy.BLOCK, FakeClock(NOW_MS), time=rule)
    many = Intake("test", Memory(), Policy.BLOCK, FakeClock(NOW_MS), time=rule)
    bodies: list[dict[str, Any]] = [{"tst": 1_790_000_000 + n, "v": n} for n in range(20)]
    bodies[7] = {"v": 7}
    lines = [orjson.dumps(body) for body in bodies]
    alone = [one.check_line(line) for line in lines]
    assert list(many.check_lines(lines)) == alone
    assert [reading[0] for reading in alone if reading][6:9] == [
        1_790_000_006_000,
        NOW_MS,
        1_790_000_008_000,
    ]
    assert one.remarks == many.remarks == {"no time in tst": 1}
