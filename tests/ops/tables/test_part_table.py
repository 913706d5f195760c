"""Who tells of a part, and when it counts as silent, or is forgotten."""

from __future__ import annotations

from typing import Any

from edgewake.cloud.ops.tables.part_table import FORGOTTEN_MS, OLD_MS, PartTable
from edgewake.protocol.ops.part_status import SILENT_MS, SUPERVISOR

NOW = 1_790_000_000_000


class Told:
    """A table, and the words that it hears."""

    def __init__(self) -> None:
        self.parts = PartTable()

    def own(self, part: str, host: str = "a", *, at: int = NOW, **more: Any) -> list[str]:
        """A part's word about itself, heard when it is said; the states of its events."""
        now = more.pop("now", at)
        word = {"device": part, "part": part, "host": host, "state": "ready", "pid": 1, **more}
        events = self.parts.put({"received_at": at, **word}, now=now)
        return [one["state"] for one in events]

    def supervisor(self, part: str, *, at: int = NOW, **more: Any) -> None:
        word = {"device": SUPERVISOR, "part": part, "state": "ready", "received_at": at, **more}
        list(self.parts.put(word, now=at))

    def look(self, at: int) -> list[tuple[str, str]]:
        return [(one["part"], one["state"]) for one in self.parts.look(now=at)]

    @property
    def states(self) -> dict[str, str]:
        return {name: one.state for name, one in self.parts.items()}


def test_a_part_that_says_nothing_for_a_while_is_silent_once_and_back_with_its_next_word() -> None:
    told = Told()
    assert told.own("bridge-1") == ["ready"]
    assert told.own("bridge-1", at=NOW + 5_000) == []
    assert told.look(NOW + 5_000 + SILENT_MS) == []
    assert told.look(NOW + 5_001 + SILENT_MS) == [("bridge-1", "silent")]
    assert told.look(NOW + 60_000) == []
    assert told.own("bridge-1", at=NOW + 70_000, pid=2) == ["ready"]


def test_the_supervisors_word_wins_and_no_part_stands_twice() -> None:
    told = Told()
    told.own("bridge-1", state="not ready")
    told.supervisor("bridge-1")
    told.own("bridge-1", state="not ready")
    assert (told.states, told.parts["bridge-1"].host) == ({"bridge-1": "ready"}, None)
    told.look(NOW + 10_001)
    assert told.states == {"bridge-1": "unknown"}
    told.own("bridge-1", at=NOW + 12_000)
    assert (told.states, told.parts["bridge-1"].host) == ({"bridge-1": "ready"}, "a")


def test_parts_of_one_name_on_two_machines_are_two() -> None:
    told = Told()
    for at in (NOW, NOW + 5_000):
        told.own("access-1", "a", at=at)
        told.own("access-1", "b", at=at)
    assert told.states == {"access-1": "ready", "access-1@b": "ready"}
    told.own("access-1", "b", at=NOW + 30_000)
    assert told.look(NOW + 30_000) == [("access-1", "silent")]
    told.own("access-1", "b", at=NOW + 35_000)
    assert told.states == {"access-1": "silent", "access-1@b": "ready"}


def test_who_starts_elsewhere_takes_the_place_of_one_that_is_gone() -> None:
    told = Told()
    told.own("access-1", "a", state="stopped")
    told.own("access-1", "b")
    assert (told.states, told.parts["access-1"].host) == ({"access-1": "ready"}, "b")


def test_a_part_that_is_gone_for_a_day_is_forgotten_and_its_like_keeps_its_name() -> None:
    told = Told()
    told.own("access-1", "a")
    told.own("access-1", "b")
    told.look(NOW + SILENT_MS + 1)
    later = NOW + FORGOTTEN_MS + 1
    told.own("access-1", "b", at=later)
    told.look(later)
    told.own("access-1", "b", at=later)
    assert told.states == {"access-1@b": "ready"}


def test_what_was_said_long_ago_is_not_heard_now_and_clocks_may_differ() -> None:
    told = Told()
    told.own("lake", at=NOW - OLD_MS, now=NOW)
    told.own("push-1", at=NOW - OLD_MS + 1, now=NOW)
    assert told.look(NOW) == [("lake", "silent")]
