"""The latest of each device and of each group, as values."""

from __future__ import annotations

from typing import Any

import orjson

from edgewake.cloud.access.latest.latest import Latest
from edgewake.cloud.log.decode import DATA, WATERMARK, Event


def reading(device: str, seq: int | None, value: float, *, epoch: int | None = 1) -> Event:
    fields = {"device": device, "epoch": epoch, "seq": seq, "value": value}
    return Event(DATA, fields, orjson.dumps(fields))


def result(group: str, window: int, revision: int, **more: Any) -> Event:
    fields = {"window_start": window, "device": group, "revision": revision} | more
    return Event(DATA, fields, orjson.dumps(fields))


def taken(latest: Latest, *events: Event, is_older: bool = False) -> list[dict[str, Any]]:
    for event in events:
        latest.take(event, is_older=is_older)
    return [orjson.loads(entry.data) for entry in latest.entries()]


def test_of_a_device_counts_the_highest_number_and_not_what_came_late() -> None:
    rows = taken(
        Latest(None),
        reading("a", 5, 0.5),
        reading("a", 3, 0.3),
        reading("b", 1, 1.0),
        reading("b", 1, 1.1, epoch=2),
    )
    assert [(row["device"], row["value"]) for row in rows] == [("a", 0.5), ("b", 1.1)]


def by(gateway: str, epoch: int, seq: int, t: int) -> Event:
    fields = {"device": "meter", "epoch": epoch, "seq": seq, "t": t, "value": t}
    fields |= {"via": gateway} if gateway else {}
    return Event(DATA, fields, orjson.dumps(fields))


def test_of_a_thing_that_moved_counts_the_later_time_whatever_its_gateways_number() -> None:
    """Each gateway has epochs of its own: those of the one that started later are higher."""
    moved = (by("gw-new", 900, 7, 1_000), by("gw-old", 3, 1, 2_000))
    kept = by("gw-new", 900, 8, 1_500)
    again = (by("gw-old", 3, 3, 2_500), by("gw-old", 3, 2, 2_600))
    latest = Latest(None)
    assert taken(latest, *moved)[0]["value"] == 2_000
    assert taken(latest, kept)[0]["value"] == 2_000, "what the first one had kept comes late"
    assert taken(latest, *again)[0]["value"] == 2_500, "by one gateway the numbers count"
    assert taken(latest, by("", 5, 1, 3_000))[0]["value"] == 3_000, "now it sends by itself"
    backwards = Latest(None)
    rows = taken(backwards, kept, moved[1], moved[0], is_older=True)
    assert rows[0]["value"] == 2_000, "read backwards it is the same"


def test_of_a_plain_device_counts_what_came_last() -> None:
    assert taken(Latest(None), reading("a", None, 1.0), reading("a", None, 2.0))[0]["value"] == 2.0


def test_of_a_group_counts_the_newest_window_and_its_last_revision() -> None:
    rows = taken(
        Latest(("device",)), result("a", 10, 1), result("a", 10, 2), result("a", 0, 3),
        result("b", 0, 3),
        Event(WATERMARK, {"watermark": 9}, b"{}"), result("b", 0, 4, withdrawn=True),
    )  # fmt: skip
    assert [(row["device"], row["window_start"], row["revision"]) for row in rows] == [("a", 10, 2)]


def test_a_row_whose_window_the_watermark_has_passed_says_that_it_is_final() -> None:
    latest = Latest(("device",))
    row = {"text": '"final":false', "window_end": 10, "final": False}
    assert [
        one["final"]
        for one in taken(
            latest, result("a", 0, 1, **row), Event(WATERMARK, {"watermark": 9}, b"{}")
        )
    ] == [False]
    (found,) = taken(
        latest, Event(WATERMARK, {"watermark": 10}, b"{}"), Event(WATERMARK, {}, b"{}")
    )
    assert (found["final"], found["text"]) == (True, '"final":false')
    assert [
        one["final"] for one in taken(latest, result("a", 10, 2, window_end=20, final=False))
    ] == [False]
    assert (
        "final"
        not in taken(
            Latest(None), Event(WATERMARK, {"watermark": 10}, b"{}"), reading("a", 1, 1.0)
        )[0]
    )


def test_a_silent_row_is_kept_and_past_the_bound_the_row_silent_longest_goes() -> None:
    latest = Latest(None, bytes_max=900)
    rows = taken(latest, *(reading(device, 1, 1.0) for device in "abc"))
    assert [row["device"] for row in rows] == ["a", "b", "c"]
    rows = taken(latest, reading("a", 2, 1.0), reading("d", 1, 1.0))
    assert ([row["device"] for row in rows], latest.left_out) == (["c", "a", "d"], 1)


def test_what_is_read_later_and_is_older_counts_where_nothing_newer_is_known() -> None:
    latest = Latest(None)
    taken(latest, reading("a", 5, 0.5), reading("plain", None, 0.9))
    older = [
        reading("a", 3, 0.3),
        reading("plain", None, 0.1),
        reading("b", 1, 1.0),
        reading("b", 2, 2.0),
        reading("quiet", None, 7.0),
    ]
    rows = taken(latest, *older, reading("quiet", None, 8.0), is_older=True)
    assert {row["device"]: row["value"] for row in rows} == {
        "a": 0.5,
        "plain": 0.9,
        "b": 2.0,
        "quiet": 8.0,
    }
    assert taken(latest, reading("quiet", None, 9.0))[-1]["value"] == 9.0
    assert {row["value"] for row in taken(latest, reading("quiet", None, 6.0), is_older=True)} == {
        0.5,
        0.9,
        2.0,
        9.0,
    }


def test_a_row_that_was_withdrawn_does_not_come_back_from_the_past() -> None:
    latest = Latest(("device",))
    taken(latest, result("a", 10, 5, withdrawn=True))
    assert taken(latest, result("a", 10, 4), is_older=True) == []
    assert latest.left_out == 0
