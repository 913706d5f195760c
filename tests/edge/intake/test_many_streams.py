"""A source whose maps give several streams: each has names, types and units of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from edgewake.edge.intake import many_streams
from edgewake.edge.intake.field_book import FieldBook
from edgewake.edge.intake.intake import Sink
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.intake.many_streams import ManyStreams
from edgewake.edge.sources.config import kind
from edgewake.edge.things.sink import ThingSink
from edgewake.edge.things.streams import STREAM
from edgewake.protocol.clock import FakeClock
from tests.edge.helpers import Sent, opened
from tests.edge.sources.sink import MemorySink


class Books(dict[str, FieldBook]):
    def of(self, stream: str) -> FieldBook:
        return self.setdefault(stream, FieldBook())


def intake(sink: Sink, books: Books, taken: Collection[str] = ()) -> ManyStreams:
    return ManyStreams(
        "source", sink, Policy.BLOCK, FakeClock(),
        book=books.of("own"), book_name="fields:own",
        book_of=books.of, book_prefix="fields:", taken=taken,
    )  # fmt: skip


def of(stream: str, **fields: Any) -> dict[str, Any]:
    return fields | ({STREAM: stream} if stream else {})


async def test_a_value_of_one_type_in_one_stream_and_of_another_in_another_is_odd_in_none() -> None:
    sink, books = MemorySink(), Books()
    one = intake(sink, books)
    bodies = [of("cpu", x=1), of("mem", x="text"), of("", x=True), of("cpu", x="odd", **{"y-z": 1})]
    assert await one.put(one.check_all(bodies))
    assert [fields for _, fields in sink.readings] == [
        {"x": 1, STREAM: "cpu"},
        {"x": "text", STREAM: "mem"},
        {"x": True},
        {"x": None, "x_odd": "odd", "y_z": 1, STREAM: "cpu"},
    ]
    one.note_units({"x": "%"}, "cpu")
    one.note_units({"x": "MB"}, "mem")
    units = {stream: book.said()["x"]["unit"] for stream, book in books.items() if book.said()}
    assert units == {"cpu": "%", "mem": "MB"}
    counts = one.counts()
    assert (counts["taken"], counts["remarks"]) == (4, {"odd in x": 1})
    assert counts["names"] == {"cpu.y_z": "y-z"}
    kept = {position[0] for _, position in sink.commits if position is not None}
    assert kept == {"fields:own", "fields:cpu", "fields:mem"}, "over a restart"


@pytest.mark.parametrize("said", [["x"], {"a": 1}, "+/#", "", 7, None])
def test_what_a_sender_says_in_place_of_a_map_is_refused(said: Any) -> None:
    one = intake(MemorySink(), Books())
    assert list(one.check_all([{STREAM: said, "v": 1}, of("cpu", v=2)])) == one.check_all(
        [of("cpu", v=2)]
    )


async def test_streams_are_bounded_and_those_of_others_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(many_streams, "STREAMS_MAX", 2)
    sink = MemorySink()
    one = intake(sink, Books(), taken=("alarms",))
    names = ["a", "b", "c", "alarms", "a", "part_status"]
    assert await one.put(one.check_all([of(name, x=1) for name in names]))
    assert [fields[STREAM] for _, fields in sink.readings] == ["a", "b", "a"]
    assert one.refused == {"quota": 1, "name": 2}
    assert sink.lost == {"refused": 3}


@pytest.mark.parametrize("has_devices", [False, True])
def test_what_a_message_brought_is_in_its_streams_with_the_place_of_the_source(
    tmp_path: Path, has_devices: bool
) -> None:
    sent = Sent()
    with opened(tmp_path, sent=sent) as events:
        into = ThingSink(events, "own", device="gw", things_max=2, has_devices=has_devices)
        one = intake(into, Books())
        bodies = [
            of("cpu", n=1, thing="a"), of("mem", n=2, thing="a"), of("", n=3), of("cpu", n=4),
            of("cpu", n=5, thing="b"),
        ]  # fmt: skip
        assert asyncio.run(one.put(one.check_all(bodies), position=("source", "7")))
        asyncio.run(into.durable())
        assert events.position("source") == "7"
        events.start_sending()
        sent.until(4 if has_devices else 3)
    found: dict[str, list[object]] = {}
    for out in sent:
        found.setdefault(out.key.stream, []).extend(Sent([out]).ns())
    if has_devices:  # the third one of a thing is beyond things_max
        assert found == {"cpu/of/a": [1], "mem/of/a": [2], "own": [3], "cpu": [4]}
    else:
        assert found == {"cpu": [1, 4, 5], "mem": [2], "own": [3]}


def test_a_full_log_takes_nothing_of_it() -> None:
    sink = MemorySink()
    sink.is_full = True
    one = intake(sink, Books())
    assert not one.offer(one.check_all([of("cpu", n=1), of("", n=2)]))
    sink.is_full = False
    assert one.offer(one.check_all([of("cpu", n=1), of("", n=2)]))
    assert sink.values("n") == [1, 2]


@pytest.mark.parametrize(
    ("type_", "keys", "why"),
    [
        ("mqtt_subscribe", {"topic": "a/#"}, "expected `maps`"),
        ("mqtt_subscribe", {"presets": ["tasmota"], "lane": "urgent"}, "lane normal"),
        ("mqtt_subscribe", {"presets": ["tasmota"], "mode": "one_way"}, "lane normal"),
        ("http_intake", {"port": 1}, "expected `presets`"),
        ("http_intake", {"port": 1, "presets": ["influx"], "send": False}, "lane normal"),
    ],
)
def test_what_cannot_be_for_several_streams_is_refused(
    type_: str, keys: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        kind(type_).checked({"type": type_, "stream": "any", "streams": "all", **keys})


def test_a_preset_needs_no_stream_of_its_own() -> None:
    keys = {"type": "mqtt_subscribe", "stream": "any", "presets": ["tasmota"]}
    assert kind("mqtt_subscribe").checked({**keys, "streams": "all"}).has_streams
    with pytest.raises(ValueError, match="no map gives the stream 'any'"):
        kind("mqtt_subscribe").checked(keys)
