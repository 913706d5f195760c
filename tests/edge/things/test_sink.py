"""Things at the gateway: a stream of the log for each, together with the place of their source."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.event_log import EventLog, LogBusyError
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.things.sink import TOO_MANY, ThingSink
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.frames.frame import FIELDS_MAX
from tests.edge.helpers import Sent, frame_of, opened, reading

PLACE = ("source", "7")


def sink(events: EventLog, things_max: int = 10) -> ThingSink:
    return ThingSink(events, "power", device="gw", things_max=things_max)


def of(thing: object, n: int) -> Reading:
    return reading(n, thing=thing)


def by_stream(sent: Sent) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for out in sent:
        found.setdefault(out.key.stream, []).extend(Sent([out]).ns())
    return found


def test_each_thing_has_its_own_numbers_and_the_gateway_too(tmp_path: Path) -> None:
    sent = Sent()
    with opened(tmp_path, sent=sent) as events:
        into = sink(events)
        into.put([of("a", 1), of("b", 2), of("a", 3), reading(4), of("gw", 5)], PLACE, {})
        asyncio.run(into.durable())
        assert events.position("source") == "7"
        events.start_sending()
        frames = sent.until(3)
    assert by_stream(sent) == {"power/of/a": [1, 3], "power/of/b": [2], "power": [4, 5]}
    assert {frame.seq for frame in frames} == {1}, "each begins with one"
    assert all("thing" not in frame.fields for frame in frames if len(frame.t) < 2)


def test_names_are_made_legal_and_what_is_no_name_is_the_gateways(tmp_path: Path) -> None:
    sent = Sent()
    with opened(tmp_path, sent=sent) as events:
        into = sink(events)
        odd = ["hall/lamp", 17, 2.5, True, None, ""]
        into.put([of(thing, n) for n, thing in enumerate(odd)], None, {})
        asyncio.run(into.durable())
        events.start_sending()
        sent.until(4)
    assert by_stream(sent) == {
        "power/of/hall.lamp": [0],
        "power/of/17": [1],
        "power/of/2.5": [2],
        "power": [3, 4, 5],
    }


def test_things_beyond_the_bound_are_a_gap_of_the_gateway_and_known_ones_go_on(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as events:
        into = sink(events, things_max=2)
        into.put([of("a", 1), of("b", 2)], None, {})
        asyncio.run(into.durable())
    sent = Sent()
    with opened(tmp_path, sent=sent) as events:  # known after a restart, too
        into = sink(events, things_max=2)
        into.put([of("a", 3), of("c", 4), of("c", 5)], PLACE, {"refused": 1})
        asyncio.run(into.durable())
        events.start_sending()
        frames = sent.until(4)
        assert events.position("source") == "7"
    assert by_stream(sent) == {"power/of/a": [1, 3], "power/of/b": [2], "power": []}
    lost = {(frame.gap.reason, frame.gap.count) for frame in frames if frame.gap is not None}
    assert lost == {(TOO_MANY, 2), ("refused", 1)}


def test_without_room_nothing_is_left_of_any_thing(tmp_path: Path) -> None:
    config = LogConfig(queue_readings_max=5, linger_ms=1000, reserve_bytes=0)
    with opened(tmp_path, config=config) as events:
        into = sink(events)
        into.put([of("a", n) for n in range(5)], None, {})
        with pytest.raises(LogBusyError):
            into.put([of("b", 7), of("a", 8)], PLACE, {})
        assert events.position("source") is None
        asyncio.run(into.durable())
        assert events.streams() == {"power/of/a"}
        into.put([of("b", 7), of("a", 8)], PLACE, {})
        asyncio.run(into.durable())
        assert events.position("source") == "7"
        assert events.streams() == {"power/of/a", "power/of/b"}


def lost_of(events: EventLog, sent: Sent, streams: int) -> dict[str, list[tuple[str, int]]]:
    """Gaps by stream."""
    events.start_sending()
    sent.until(streams)
    return {
        out.key.stream: [(gap.reason, gap.count) for gap in [frame_of(out).gap] if gap is not None]
        for out in sent
    }


def test_what_the_intake_loses_of_a_thing_is_a_gap_of_the_thing(tmp_path: Path) -> None:
    sent = Sent()
    with opened(tmp_path, sent=sent) as events:
        into = Intake("test", sink(events), Policy.BLOCK, SystemClock())
        far_too_many = {f"f{n}": n for n in range(FIELDS_MAX + 1)}
        assert into.check({"thing": "hall", **far_too_many}) is None
        for _ in range(2):
            assert into.check_item(orjson.dumps({"thing": "bath", **far_too_many})) is None
        assert into.check_item(b"no object at all") is None
        assert into.check_item({"thing": 10**310, "n": 1}) is None, "no float is so large"
        found = lost_of(events, sent, 3)
    assert found == {
        "power/of/hall": [("refused", 1)],
        "power/of/bath": [("refused", 2)],
        "power": [("refused", 2)],
    }


def test_what_a_full_queue_costs_is_each_things_own(tmp_path: Path) -> None:
    sent = Sent()
    with opened(tmp_path, sent=sent) as events:
        into = sink(events, things_max=2)
        into.lose_these([of("hall", 1), of("bath", 2), of("bath", 3), of("third", 4)], "full")
        found = lost_of(events, sent, 3)
    assert found == {
        "power/of/hall": [("full", 1)],
        "power/of/bath": [("full", 2)],
        "power": [(TOO_MANY, 1)],
    }
