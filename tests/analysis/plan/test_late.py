"""Late readings sorted out of a batch: each closed window of each query, counted as a naive oracle
counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from edgewake.cloud.analysis.plan import late
from edgewake.cloud.analysis.plan.late import EXAMPLES_MAX, WINDOWS_MAX, LateWindow, late_windows
from edgewake.cloud.queries.query_file import parse
from edgewake.protocol.frames import frame, record
from edgewake.protocol.frames.field_type import FieldType
from tests.analysis.support import T0, sql

FIELDS = {"load": FieldType.NUMBER, "speed": FieldType.NUMBER}


def frame_of(
    readings: Sequence[tuple[int, float | None, float | None]], device: str = "d1", **more: Any
) -> bytes:
    """A record as Kafka has it."""
    t, speed, load = zip(*readings, strict=True)
    fields = {"speed": list(speed), "load": list(load)} | more
    body = frame.encode(frame.Frame(1, 1, 1, list(t), fields))
    return record.encode(
        device=device,
        stream="s",
        mode=record.Mode.ACK,
        sent_at=None,
        received_at=max(t),
        frame_bytes=body,
    )


def told(found: Sequence[LateWindow]) -> dict[tuple[int, int | None, int | None], int]:
    return {(one.place, one.start, one.end): one.readings for one in found}


def test_each_closed_window_of_each_query_is_counted_with_examples() -> None:
    hopping = parse(sql("s", "count(*) AS n", "window(event_time, '1 minute', '20 seconds')"))
    fast = parse(
        sql(
            "s",
            "device, count(*) AS n",
            "window(event_time, '10 seconds'), device",
            where="WHERE speed > 5",
        )
    )
    both = parse(
        sql(
            "s UNPIVOT (value FOR metric IN (speed, load))",
            "metric, count(*) AS n",
            "window(event_time, '1 minute'), metric",
        )
    )
    unasked = parse(sql("s", "count(*) AS n", "window(event_time, '1 minute')"))
    readings = [
        (T0 + i * 3_000, float(i % 10) if i % 7 else None, None if i % 3 else 1.0)
        for i in range(60)
    ]
    closed = [T0 + 80_000, T0 + 60_000, T0 + 120_000, None]

    found = late_windows([frame_of(readings)], [hopping, fast, both, unasked], FIELDS, closed)

    expected: Counter[tuple[int, int, int]] = Counter()
    passes = [
        lambda _: True,
        lambda r: r[1] is not None and r[1] > 5,
        lambda r: r[1] is not None or r[2] is not None,
    ]
    for place, query in enumerate((hopping, fast, both)):
        for reading in filter(passes[place], readings):
            for start in range(T0 - 60_000, T0 + 180_000, query.window.slide_ms):
                end = start + query.window.size_ms
                if start <= reading[0] < end <= (closed[place] or 0):
                    expected[place, start, end] += 1
    assert told(found) == expected
    first = next(one for one in found if (one.place, one.start) == (1, T0 + 10_000))
    assert sorted(orjson.loads(one)["t"] for one in first.examples) == sorted(
        t
        for t, speed, _ in readings
        if T0 + 10_000 <= t < T0 + 20_000 and speed is not None and speed > 5
    )


def test_ten_thousand_old_readings_are_counted_in_bounded_rows() -> None:
    """Each in a window of its own: the oldest windows are told one by one, the rest as a number."""
    query = parse(sql("s", "count(*) AS n", "window(event_time, '1 second')"))
    old = frame_of([(T0 + i * 1_000, 1.0, None) for i in range(10_000)])
    found = late_windows([old], [query], FIELDS, [T0 + 20_000_000])
    assert len(found) == WINDOWS_MAX + 1
    assert found[0] == LateWindow(
        0, T0, T0 + 1_000, 1, (orjson.dumps({"device": "d1", "t": T0, "speed": 1.0}).decode(),)
    )
    assert found[-1] == LateWindow(0, None, None, 10_000 - WINDOWS_MAX)
    many = late_windows(
        [old],
        [parse(sql("s", "count(*) AS n", "window(event_time, '1 hour')"))],
        FIELDS,
        [T0 + 20_000_000],
    )
    assert sum(one.readings for one in many) == 10_000
    assert {len(one.examples) for one in many} == {EXAMPLES_MAX}


def test_what_is_no_reading_and_what_is_not_old_is_left_out() -> None:
    minute = parse(sql("s", "count(*) AS n", "window(event_time, '1 minute')"))
    longer = frame_of([(T0, 1, None), (T0 + 1, None, 2.0)], speed=[1, "fast", 3.0])
    gap = record.encode(
        device="d", stream="s", mode=record.Mode.ACK, sent_at=None, received_at=T0,
        frame_bytes=frame.encode(frame.Frame(1, 2, 1, (), {}, frame.Gap("quota", 3), 1)),
    )  # fmt: skip
    values = [
        b"no record",
        None,
        gap,
        longer,
        frame_of([(T0 + 60_000, 1.0, None)]),
        record.with_clocks(longer, shift=60_000, kept_at=T0),
    ]
    (found,) = late_windows(values, [minute], FIELDS, [T0 + 60_000])
    assert [orjson.loads(one) for one in found.examples] == [
        {"device": "d1", "t": T0, "speed": 1.0},
        {"device": "d1", "t": T0 + 1, "load": 2.0},
    ]
    assert b'"speed":1.0' in found.examples[0].encode(), "a number is a double"
    assert (
        late_windows([longer], [minute], FIELDS, [None])
        == late_windows([longer], [], FIELDS, [])
        == []
    )


def test_a_large_batch_is_pruned_on_the_way_and_queries_of_the_same_windows_agree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The oldest windows are the same ones, and the rest is as many."""
    queries = [parse(sql("s", "count(*) AS n", "window(event_time, '1 second')")) for _ in range(2)]
    values = [
        frame_of([(T0 + (i * 701 + j * 37) % 2_500 * 1_000, 1.0, None) for j in range(9)])
        for i in range(200)
    ]
    closed = [T0 + 20_000_000] * 2
    whole = late_windows(values, queries, FIELDS, closed)
    monkeypatch.setattr(late, "READINGS_AT_ONCE", 7)
    assert late_windows(values, queries, FIELDS, closed) == whole
    assert len(whole) == WINDOWS_MAX + 2
    assert [sum(one.readings for one in whole if one.place == place) for place in range(2)] == [
        1_800,
        1_800,
    ]
