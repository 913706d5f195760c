"""Readings on their way to a commit: every step of a device's life, against a model that adds
up.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from edgewake.edge.intake.columnwise import bundle_of
from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.tables.bundle import Pile
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.log.writing.queue import Queues, size_of
from tests.examples import examples

STREAMS = {"urgent": Lane.URGENT, "fast": Lane.NORMAL, "slow": Lane.BULK}
READINGS_MAX, BYTES_MAX, OWN_BYTES = 30, 20_000, 5_000
"""Of each queue, of all together, and of the stream `slow`."""

NOW_MS = 1_790_000_000_000


class AQueue(RuleBasedStateMachine):
    """Several sources, one writer."""

    def __init__(self) -> None:
        super().__init__()
        self.queues = Queues(readings_max=READINGS_MAX, bytes_max=BYTES_MAX)
        for stream, lane in STREAMS.items():
            self.queues.of(stream, lane)
        self.queues.of("slow", Lane.BULK).bytes_max = OWN_BYTES
        self.waiting: dict[str, list[Reading]] = {stream: [] for stream in STREAMS}
        self.taken: dict[str, Any] = {}
        self.accepted = dict.fromkeys(STREAMS, 0)
        self.number = 0

    def some(self, count: int, text: int) -> list[Reading]:
        found = [
            (NOW_MS + self.number + place, {"n": self.number + place, "text": "x" * text})
            for place in range(count)
        ]
        self.number += count
        return found

    def put(self, stream: str, readings: Any, whole: list[Reading]) -> None:
        """As the log does: what has no room is not added at all."""
        queue = self.queues.of(stream, STREAMS[stream])
        if self.queues.has_room(queue):
            self.queues.add(queue, readings)
            self.waiting[stream] += whole

    @rule(
        stream=st.sampled_from(sorted(STREAMS)),
        count=st.integers(1, 12),
        text=st.sampled_from([0, 10, 1000]),
    )
    def one_by_one(self, stream: str, count: int, text: int) -> None:
        readings = self.some(count, text)
        self.put(stream, readings, readings)

    @rule(
        stream=st.sampled_from(sorted(STREAMS)),
        count=st.integers(1, 12),
        text=st.sampled_from([0, 10, 1000]),
    )
    def by_columns(self, stream: str, count: int, text: int) -> None:
        readings = self.some(count, text)
        bundle = bundle_of([{"t": t, **fields} for t, fields in readings], ("t", "n", "text"), 0)
        assert bundle is not None
        self.put(stream, bundle, readings)

    @rule(stream=st.sampled_from(sorted(STREAMS)), count=st.integers(2, 8))
    def piled_up(self, stream: str, count: int) -> None:
        first, second = self.some(count, 5), self.some(count, 5)
        bundle = bundle_of([{"t": t, **fields} for t, fields in second], ("t", "n", "text"), 0)
        assert bundle is not None
        self.put(stream, Pile([first, bundle]), [*first, *second])

    @precondition(lambda self: not self.taken)
    @rule()
    def take(self) -> None:
        self.taken = self.queues.take()
        assert {stream: list(of) for stream, of in self.taken.items()} == {
            stream: of for stream, of in self.waiting.items() if of
        }
        self.waiting = {stream: [] for stream in STREAMS}

    @precondition(lambda self: self.taken)
    @rule()
    def commit(self) -> None:
        for stream, of in self.taken.items():
            self.accepted[stream] += len(of)
        self.queues.accepted(self.taken)
        self.taken = {}

    @rule(
        stream=st.sampled_from(sorted(STREAMS)),
        count=st.integers(1, 5),
        reason=st.sampled_from(["queue_full", "refused"]),
    )
    def lose(self, stream: str, count: int, reason: str) -> None:
        lost = self.queues.of(stream, STREAMS[stream]).lost
        lost[reason] = lost.get(reason, 0) + count

    @rule()
    def say_losses(self) -> None:
        before, said = self.queues.losses(), self.queues.take_losses()
        summed: dict[str, int] = {}
        for of in said.values():
            for reason, count in of.items():
                summed[reason] = summed.get(reason, 0) + count
        assert (summed, self.queues.losses()) == (before, {})

    @rule(stopped=st.sets(st.sampled_from(list(Lane))))
    def stop_lanes(self, stopped: set[Lane]) -> None:
        self.queues.stopped = frozenset(stopped)
        assert not any(
            self.queues.has_room(self.queues.of(stream, lane))
            for stream, lane in STREAMS.items()
            if lane in stopped
        )

    @invariant()
    def adds_up(self) -> None:
        queues = {stream: self.queues.of(stream, lane) for stream, lane in STREAMS.items()}
        assert {stream: queue.count for stream, queue in queues.items()} == {
            stream: len(of) for stream, of in self.waiting.items()
        }
        assert self.queues.size == sum(queue.size for queue in queues.values()) >= 0
        for stream, queue in queues.items():
            on_its_way = len(self.waiting[stream]) + len(self.taken.get(stream, ()))
            assert queue.accepted == self.accepted[stream] == queue.appended - on_its_way
            assert (queue.size == 0) == (on_its_way == 0)
        assert set(self.queues.waiting_streams) == {
            stream for stream, of in self.waiting.items() if of
        }
        assert self.queues.longest == max(map(len, self.waiting.values()))

    @invariant()
    def one_call_at_most_is_beyond_the_bounds(self) -> None:
        call = 16 * size_of(self.some(1, 1000)[0])
        assert self.queues.size <= BYTES_MAX + call
        assert self.queues.of("slow", Lane.BULK).size <= OWN_BYTES + call
        assert self.queues.longest <= READINGS_MAX + 16


TestAQueue = AQueue.TestCase
TestAQueue.settings = settings(max_examples=examples(60), stateful_step_count=30)


def test_one_that_floods_leaves_half_of_the_rest_to_each_other() -> None:
    queues = Queues(readings_max=10_000, bytes_max=BYTES_MAX)
    flood, quiet = queues.of("flood", Lane.NORMAL), queues.of("quiet", Lane.NORMAL)
    while queues.has_room(flood):
        queues.add(flood, [(1, {"text": "x" * 100})])
    assert BYTES_MAX / 2 <= flood.size <= BYTES_MAX / 2 + 1000
    assert queues.has_room(quiet)
