"""The latest of each device and of each group, as values."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from edgewake.cloud.access.bounded.rows import ROWS_A_TURN, Choice, Entry, Picker, choice
from edgewake.cloud.access.latest.latest import Latest
from edgewake.cloud.access.latest.latest_stores import _told
from edgewake.cloud.log.decode import DATA, WATERMARK, Decoder, Event, Record
from edgewake.cloud.log.filters.filter import compile_where
from edgewake.cloud.log.subscription import published
from edgewake.cloud.log.wanted import is_in_share
from edgewake.cloud.rights.names import Names
from edgewake.cloud.rights.scope import Part, Scope
from edgewake.protocol.frames import record
from edgewake.protocol.frames.frame import Frame, encode
from edgewake.protocol.frames.record import Mode
from edgewake.protocol.ops.publication import Publication
from tests.access.latest.copies import rows_of


def reading(device: str, seq: int | None, value: float, *, epoch: int | None = 1) -> Event:
    fields = {"device": device, "epoch": epoch, "seq": seq, "value": value}
    return Event(DATA, fields, orjson.dumps(fields))


def result(group: str, window: int, revision: int, **more: Any) -> Event:
    fields = {"window_start": window, "device": group, "revision": revision} | more
    return Event(DATA, fields, orjson.dumps(fields))


def taken(latest: Latest, *events: Event, is_older: bool = False) -> list[dict[str, Any]]:
    for event in events:
        latest.take(event, is_older=is_older)
    return [orjson.loads(entry.data) for entry in rows_of(latest)]


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
    latest = Latest(None, bytes_max=2100)
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


CARS = 5 * ROWS_A_TURN
"""Rows of five turns."""


def fleet() -> Latest:
    latest = Latest(None)
    latest.changes.begin([(0, 0)])
    for number in range(CARS):
        latest.take(reading(f"car-{number:04}", 1, 1.0), (0, (number + 1, 0)))
    return latest


def seeing(*devices: str) -> Scope:
    return Scope((Part(Names.of(devices), None),))


def test_who_sees_one_device_costs_one_look_up_however_many_there_are() -> None:
    latest = fleet()
    for scope, keys in (
        (seeing("car-0007", "car-none"), None),
        (seeing("car-0007", "car-0008"), frozenset({"car-0007", "car-0009"})),
    ):
        assert [[one.key for one in piece] for piece in latest.pieces(scope, keys)] == [
            ["car-0007"]
        ]
    changed = latest.changed_since([(0, 0)], seeing("car-0007"))
    assert [[one.key for one in piece] for piece in changed] == [["car-0007"]]


def test_a_turn_is_so_many_rows_that_are_looked_at_whoever_sees_them() -> None:
    """Rows that were not seen counted for nothing: 100,000 were passed in one turn."""
    latest = fleet()
    assert [len(piece) for piece in latest.pieces(seeing("car-*7"))] == [ROWS_A_TURN // 10] * 5
    assert [len(piece) for piece in latest.pieces(seeing("bus-*"))] == [0] * 5
    assert [len(piece) for piece in latest.changed_since([(CARS - 1, 0)])] == [0, 0, 0, 0, 1]


def test_a_page_has_the_rows_behind_a_key_in_their_order_and_looks_at_no_others() -> None:
    latest = Latest(None)
    for number in range(CARS):
        latest.take(reading(f"car-{number * 7 % CARS:04}", 1, 1.0))
    behind = [f"car-{number:04}" for number in range(100, CARS)]
    looked_at = latest.in_order(after="car-0099")
    pieces = [next(looked_at)]
    latest.take(reading("car-0100x", 1, 1.0))  # it comes behind what was looked at
    assert pieces[0][-1].key == behind[ROWS_A_TURN - 1]
    pieces += looked_at
    assert max(map(len, pieces)) == ROWS_A_TURN
    assert [entry.key for piece in pieces for entry in piece] == behind
    (chosen,) = latest.in_order(None, frozenset({"car-0200", "car-0050", "none"}), after="car-0099")
    assert [entry.key for entry in chosen] == ["car-0200"]


def test_a_row_takes_the_memory_that_is_counted_for_it() -> None:
    """orjson keeps 4 KB with each answer: 100,000 rows took 440 MB, and were counted as 28."""
    latest = Latest(None)
    events = 20_000
    before = memory()
    for number in range(events):
        frame = Frame(1, 1, number, [1_700_000_000_000 + number], {"speed_kmh": [51.2]})
        value = record.encode(
            device=f"car-{number}",
            stream="s",
            mode=Mode.ACK,
            sent_at=1,
            received_at=1,
            frame_bytes=encode(frame),
        )
        found = Record(number, 1, value, is_result=False)
        for event in Decoder(0).events(found):
            latest.take(event, (0, (number, 0)))
    assert len(latest) == events
    assert memory() - before < 1.5 * latest.bytes


def memory() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("asked", [Choice(), Choice(limit=10)])
async def test_others_have_their_turns_while_rows_are_passed_that_nobody_sees(
    asked: Choice,
) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    scope = seeing("bus-*")
    beside = asyncio.create_task(others())
    pieces = fleet().in_order(scope) if asked.is_by_key else fleet().pieces(scope)
    picker = Picker(asked, scope, is_result=False)
    told = b"".join([part async for part in _told({"a": 1}, picker, pieces, has_next=False)])
    beside.cancel()
    assert told == b'{"a":1,"rows":[]}'
    assert turns >= 5


def test_numbers_that_cannot_be_compared_do_not_count() -> None:
    """The reading of another program ended the store of its stream."""
    odd = Event(DATA, {"device": "a", "epoch": "x", "seq": 1}, b'{"device":"a","value":0.6}')
    rows = taken(Latest(None), reading("a", 5, 0.5), odd, reading("a", 3, 0.3))
    assert [row["value"] for row in rows] == [0.3], "the last to arrive counts"


HARBOUR = Publication(
    name="harbour",
    streams=("s",),
    where="secret = 'x'",
    fields=("n",),
    version=1,
    changed_at=0,
    changed_by="a test",
)


def picked(asked: Choice, scope: Scope | None = None) -> list[dict[str, Any]]:
    """Of three rows."""
    rows = [
        Entry(device, orjson.dumps({"device": device, "n": n, "secret": secret}))
        for device, n, secret in (("a", 1, "x"), ("b", 2, "y"), ("c", 3, "x"))
    ]
    picker = Picker(asked, scope, is_result=False)
    return [orjson.loads(row) for row in picker.take_all(rows)]


def test_a_publication_chooses_rows_by_what_it_hides_and_its_reader_by_what_it_shows() -> None:
    through = published(HARBOUR, None)
    shown = [{"device": "a", "n": 1}, {"device": "c", "n": 3}]
    assert picked(Choice(published=through)) == shown
    assert picked(Choice(published=through, where=compile_where("n > 1"))) == shown[1:]
    assert picked(Choice(published=through, where=compile_where("secret = 'x'"))) == []
    assert (
        picked(Choice(published=through), Scope((Part(Names.of(["a", "b"]), None),))) == shown[:1]
    )
    assert len(picked(Choice())) == 3, "the control"


def test_a_share_of_rows_is_that_of_a_stream() -> None:
    for share in (0.2, 0.5, 0.8):
        expected = [one for one in "abc" if is_in_share({"device": one}, ("device",), share)]
        assert [row["device"] for row in picked(Choice(sample=share))] == expected


@pytest.mark.parametrize("key", ["[" * 5000, "[" * 500 + "]" * 500, '{"a":' * 5000, "9" * 5000])
def test_a_key_that_is_nested_too_deep_is_a_key_of_nothing(key: str) -> None:
    """It was a fault of the server's own, 500, with a page of its log."""
    assert key in (choice([key], None, None, None).keys or ())
