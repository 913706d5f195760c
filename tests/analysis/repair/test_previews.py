"""A preview fails alone: whatever becomes of one, the next is computed, and who asked for it is
told.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from edgewake.cloud.analysis.repair.previews import STUCK_MAX, TELL_MS, Previews
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol.ops.preview import WAIT_MS, Preview
from tests.services import wait_until

Compute = Callable[[], Iterator[dict[str, Any]]]


@dataclass
class Told:
    """What was written to `ew.previews`, and Spark's jobs that were given up."""

    answers: dict[str, Preview] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)

    def produce(self, _topic: str, value: bytes, key: str) -> None:
        self.answers[key] = Preview.model_validate_json(value)

    def flush(self, _timeout: float) -> int:
        return 0

    @property
    def sparkContext(self) -> Told:  # noqa: N802  (Spark's name)
        return self

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802  (Spark's name)
        self.cancelled.append(group)


@dataclass
class Hand:
    """A clock that is moved by hand."""

    ms: int = 1_790_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000


class Room:
    """Previews, of which a test says what becomes of each."""

    def __init__(self) -> None:
        self.told, self.clock = Told(), Hand()
        self.made: dict[str, Compute] = {}
        self.previews = Previews(
            cast("Any", self.told), KafkaConfig(), cast("Any", self.told), cast("Any", self.clock)
        )
        self.previews.compute = self._compute

    def _compute(self, asked: Preview, _streams: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        return self.made[asked.id]()

    def ask(self, name: str, compute: Compute) -> None:
        self.made[name] = compute
        asked = Preview(id=name, text="", since=0, rows_max=10, asked_at=self.clock.now_ms())
        self.previews.on_row(name, asked.model_dump_json().encode())

    def answer(self, name: str) -> Preview:
        def is_told() -> bool:
            self.previews.turn({})
            return name in self.told.answers

        wait_until(is_told, f"{name} is answered")
        return self.told.answers[name]


@pytest.fixture
def room() -> Room:
    return Room()


def good() -> Iterator[dict[str, Any]]:
    yield {"n": 1}


@pytest.mark.parametrize(
    "error",
    [MemoryError("Java heap space"), RecursionError("too deep"), ValueError("no"), OSError("gone")],
)
def test_one_that_fails_says_why_and_the_next_is_computed(room: Room, error: Exception) -> None:
    def fails() -> Iterator[dict[str, Any]]:
        raise error

    room.ask("1", fails)
    room.ask("2", good)
    assert str(error) in room.answer("1").error
    assert room.answer("2").rows == ('{"n":1}',)


def test_one_that_nobody_foresaw_is_answered_too(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def fails() -> Iterator[dict[str, Any]]:
        raise AttributeError("a fault of ours")

    room.ask("1", fails)
    room.ask("2", good)
    assert "log says why" in room.answer("1").error
    assert room.answer("2").rows == ('{"n":1}',)


def test_one_that_never_ends_is_given_up_before_who_asked_is_gone_and_the_next_is_computed(
    room: Room,
) -> None:
    """A JVM without memory may never answer: every preview after it was 503."""
    ended = threading.Event()

    def hangs() -> Iterator[dict[str, Any]]:
        ended.wait()
        yield {"n": "late"}

    try:
        room.ask("1", hangs)
        room.previews.turn({})
        room.clock.ms += WAIT_MS - TELL_MS - 1
        room.ask("2", good)
        room.previews.turn({})
        assert room.told.answers == {}, "one at a time"
        room.clock.ms += 1
        assert "not computed within 55 s" in room.answer("1").error
        assert room.answer("2").rows == ('{"n":1}',)
        wait_until(lambda: room.told.cancelled == ["preview-1"], "Spark is told to end it")
    finally:
        ended.set()
    wait_until(lambda: all(thread.name != "preview" for thread in threading.enumerate()), "it ends")
    assert room.told.answers["1"].error, "what it gives later is told nobody"


def test_when_too_many_hang_the_next_is_refused_at_once_until_one_has_ended(room: Room) -> None:
    ended = threading.Event()

    def hangs() -> Iterator[dict[str, Any]]:
        ended.wait()
        yield from ()

    try:
        for i in range(STUCK_MAX):
            room.ask(f"{i}", hangs)
            room.previews.turn({})
            room.clock.ms += WAIT_MS
            assert room.answer(f"{i}").error
        room.ask("next", good)
        assert "did not end yet" in room.answer("next").error
    finally:
        ended.set()
    wait_until(
        lambda: all(thread.name != "preview" for thread in threading.enumerate()), "they end"
    )
    room.ask("then", good)
    assert room.answer("then").rows == ('{"n":1}',)
    assert WAIT_MS > TELL_MS
