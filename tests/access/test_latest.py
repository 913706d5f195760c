"""The latest of each device and of each group, as values."""

from __future__ import annotations

from typing import Any

import orjson

from edgewake.cloud.access.latest import Latest
from edgewake.cloud.log.decode import DATA, WATERMARK, Event


def reading(device: str, seq: int | None, value: float, *, epoch: int | None = 1) -> Event:
    fields = {"device": device, "epoch": epoch, "seq": seq, "value": value}
    return Event(DATA, fields, orjson.dumps(fields))


def result(group: str, window: int, revision: int, **more: Any) -> Event:
    fields = {"window_start": window, "device": group, "revision": revision} | more
    return Event(DATA, fields, orjson.dumps(fields))


def taken(latest: Latest, *events: Event, now_s: float = 0.0) -> list[dict[str, Any]]:
    for event in events:
        latest.take(event, now_s)
    return [orjson.loads(row) for row in latest.rows(now_s)]


def test_of_a_device_counts_the_highest_number_and_not_what_came_late() -> None:
    rows = taken(Latest(None, ttl_s=60), reading("a", 5, 0.5), reading("a", 3, 0.3), reading("b", 1, 1.0), reading("b", 1, 1.1, epoch=2))
    assert [(row["device"], row["value"]) for row in rows] == [("a", 0.5), ("b", 1.1)]


def test_of_a_plain_device_counts_what_came_last() -> None:
    assert taken(Latest(None, ttl_s=60), reading("a", None, 1.0), reading("a", None, 2.0))[0]["value"] == 2.0


def test_of_a_group_counts_the_newest_window_and_its_last_revision() -> None:
    rows = taken(
        Latest(("device",), ttl_s=60), result("a", 10, 1), result("a", 10, 2), result("a", 0, 3), result("b", 0, 3),
        Event(WATERMARK, {"watermark": 9}, b"{}"), result("b", 0, 4, withdrawn=True),
    )  # fmt: skip
    assert [(row["device"], row["window_start"], row["revision"]) for row in rows] == [("a", 10, 2)]


def test_a_row_whose_window_the_watermark_has_passed_says_that_it_is_final() -> None:
    latest = Latest(("device",), ttl_s=60)
    row = {"text": '"final":false', "window_end": 10, "final": False}
    assert [one["final"] for one in taken(latest, result("a", 0, 1, **row), Event(WATERMARK, {"watermark": 9}, b"{}"))] == [False]
    (found,) = taken(latest, Event(WATERMARK, {"watermark": 10}, b"{}"), Event(WATERMARK, {}, b"{}"))
    assert (found["final"], found["text"]) == (True, '"final":false')
    assert [one["final"] for one in taken(latest, result("a", 10, 2, window_end=20, final=False))] == [False]
    assert "final" not in taken(Latest(None, ttl_s=60), Event(WATERMARK, {"watermark": 10}, b"{}"), reading("a", 1, 1.0))[0]


def test_what_nothing_is_heard_of_is_forgotten_and_too_many_are_counted() -> None:
    latest = Latest(None, ttl_s=60, rows_max=2)
    assert len(taken(latest, reading("a", 1, 1.0), reading("b", 1, 1.0), now_s=0.0)) == 2
    assert [row["device"] for row in taken(latest, reading("b", 2, 1.0), now_s=61.0)] == ["b"]
    assert [row["device"] for row in taken(latest, reading("c", 1, 1.0), reading("d", 1, 1.0), now_s=62.0)] == ["c", "d"]
    assert latest.left_out == 1
