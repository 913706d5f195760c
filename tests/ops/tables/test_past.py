"""What happened lately: bounded, newest first, of one thing or of all."""

from __future__ import annotations

from typing import Any

from edgewake.cloud.ops.tables.event_ring import EventRing
from edgewake.cloud.ops.tables.past import FACTS, Noted, Past


def device(name: str, state: str) -> dict[str, Any]:
    return {"kind": "device", "device": name, "state": state, "records": 3, "version": ""}


async def test_what_is_published_is_remembered_with_its_time_and_found_by_name() -> None:
    now = iter(range(10, 99))
    past = Past(lambda: next(now))
    ring = EventRing("boot", past)
    ring.publish(iter([device("a", "online"), device("b", "online")]))
    ring.publish([device("a", "offline"), {"kind": "dead_letter", "device": "a", "offset": 1}])
    found = past.newest(kind="device", name="a", before=None, limit=9)
    assert [(one.at, one.facts) for one in found] == [
        (11, {"state": "offline"}),
        (10, {"state": "online"}),
    ]
    everything = past.newest(kind=None, name=None, before=None, limit=2)
    older = past.newest(kind=None, name=None, before=everything[-1].number, limit=2)
    assert [one.name for one in (*everything, *older)] == ["a", "b", "a"]
    assert past.newest(kind="query", name=None, before=None, limit=9) == []


def test_the_oldest_go_and_numbers_go_on() -> None:
    past = Past(lambda: 1, entries_max=3)
    past.note(device(f"d{i}", "online") for i in range(5))
    found = past.newest(kind=None, name=None, before=None, limit=9)
    assert [(one.number, one.name) for one in found] == [(5, "d4"), (4, "d3"), (3, "d2")]


def test_every_kind_of_event_has_a_name() -> None:
    past = Past(lambda: 1)
    names = {"device": "device", "part": "part", "repair": "id", "erasure": "id"}
    past.note({"kind": kind, names.get(kind, "name"): "x"} for kind in FACTS)
    assert len(past.newest(kind=None, name="x", before=None, limit=99)) == len(FACTS)


def test_those_since_a_time_are_of_one_kind_and_the_newest_first() -> None:
    times = iter([10, 20, 30, 40])
    past = Past(lambda: next(times))
    for number, kind in enumerate(["loss", "loss", "device", "loss"]):
        past.note([{"kind": kind, "device": f"d{number}", "lost": number}])
    assert [one.name for one in past.since(20, "loss")] == ["d3", "d1"]
    assert list(past.since(41, "loss")) == []


def query(state: str, detail: str) -> dict[str, Any]:
    return {"kind": "query", "name": "q", "registered": True, "state": state, "detail": detail}


def test_a_detail_that_comes_and_goes_while_a_state_stays_fills_no_history() -> None:
    past = Past(lambda: 1)
    for detail in ("", "no reading comes", "", "no reading comes"):
        past.note([query("running", detail)])
    past.note([query("failed", "no memory"), query("failed", "no memory at all")])
    past.note([query("running", "")])
    found = past.newest(kind="query", name="q", before=None, limit=9)
    assert [(one.facts["state"], one.facts.get("detail")) for one in reversed(found)] == [
        ("running", None),
        ("failed", "no memory"),
        ("running", None),
    ]


def test_what_another_server_noted_is_not_noted_once_more() -> None:
    written: list[Noted] = []
    past = Past(lambda: 1, write=written.append)
    past.take(1, Noted(at=1, kind="query", name="q", facts={"registered": True, "state": "failed"}))
    past.note([query("failed", "its disk is full")])
    assert written == []
    past.note([query("running", "")])
    assert [one.facts["state"] for one in written] == ["running"]
