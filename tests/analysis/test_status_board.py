"""What is published of queries that no lane runs: each state once, and of each registration."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
from confluent_kafka import KafkaError, Producer
from pydantic import ValidationError

from edgewake.cloud.analysis.status_board import DETAIL_CHARS_MAX, StatusBoard
from edgewake.cloud.queries.registry import QueryStatus
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.ops.query import Progress, QueryState

REFUSED = QueryStatus(QueryState.REFUSED, "", "unknown word")


class Topic:
    """What would stand on `ew.progress`."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, Progress | None]] = []
        self.is_away = False
        self._late: list[Callable[[KafkaError, None], None]] = []

    def produce(
        self,
        _: str,
        value: bytes | None,
        key: str | bytes,
        on_delivery: Callable[[KafkaError, None], None],
    ) -> None:
        name = key.decode() if isinstance(key, bytes) else key
        if self.is_away:
            self._late.append(on_delivery)
            return
        self.rows.append((name, None if value is None else Progress.model_validate_json(value)))

    def poll(self, _: float) -> None:
        late, self._late = self._late, []
        for tell in late:
            tell(KafkaError(KafkaError._MSG_TIMED_OUT), None)

    def flush(self, _: float) -> None: ...

    def take(self) -> list[tuple[str, Progress | None]]:
        rows, self.rows = self.rows, []
        return rows


def board() -> tuple[StatusBoard, Topic, FakeClock]:
    topic, clock = Topic(), FakeClock()
    return StatusBoard(cast("Producer", topic), clock), topic, clock


def test_a_state_is_published_once() -> None:
    a_board, topic, clock = board()
    for _ in range(3):
        a_board.publish("q", REFUSED, registered_at=1)
        clock.advance(1)
    ((name, said),) = topic.take()
    assert said is not None
    assert (name, said.registered_at, said.detail) == ("q", 1, "unknown word")


def test_a_query_that_is_registered_again_with_the_same_fault_is_published_again() -> None:
    """What was said before a registration counts for the one before it."""
    a_board, topic, clock = board()
    a_board.publish("q", REFUSED, registered_at=1)
    topic.take()
    clock.advance(60)
    a_board.publish("q", REFUSED, registered_at=clock.now_ms())
    ((_, said),) = topic.take()
    assert said is not None
    assert said.registered_at == said.updated_at == clock.now_ms()


def test_what_kafka_did_not_take_in_all_its_time_is_published_again() -> None:
    a_board, topic, _ = board()
    a_board.publish("gone", REFUSED, registered_at=1)
    a_board.on_progress("gone", topic.take()[0][1].model_dump_json().encode())  # type: ignore[union-attr]
    topic.is_away = True
    for _ in range(2):
        a_board.publish("q", REFUSED, registered_at=1)
        a_board.keep({"q"})
    assert topic.take() == []
    topic.is_away = False
    for _ in range(3):
        a_board.publish("q", REFUSED, registered_at=1)
        a_board.keep({"q"})
    published = topic.take()
    assert [name for name, _ in published] == ["q", "gone"], "each once"
    assert published[1][1] is None


@pytest.mark.parametrize("mark", ["quarantined", "isolated"])
def test_a_mark_that_changes_is_published_with_the_same_state(mark: str) -> None:
    a_board, topic, _ = board()
    a_board.publish("q", REFUSED, registered_at=1)
    a_board.publish("q", REFUSED, registered_at=1, **{mark: True})
    a_board.publish("q", REFUSED, registered_at=1)
    assert [getattr(said, mark) for _, said in topic.take()] == [False, True, False]


def test_a_mark_that_was_published_is_known_after_a_restart_until_it_is_taken_back() -> None:
    a_board, topic, _ = board()
    a_board.publish("q", REFUSED, registered_at=7, quarantined=True, isolated=True)
    a_board.publish("r", REFUSED, registered_at=8)
    after, _, _ = board()
    for name, said in topic.take():
        assert said is not None
        after.on_progress(name, said.model_dump_json().encode())
    assert (after.quarantined, after.isolated) == ({"q@7": "unknown word"}, {"q": "q@7"})
    after.on_progress("q", None)
    assert (after.quarantined, after.isolated) == ({}, {})


def test_the_states_of_queries_that_are_gone_are_removed_once() -> None:
    a_board, topic, _ = board()
    a_board.on_progress("gone", None)
    a_board.publish("q", REFUSED, registered_at=1)
    topic.take()
    a_board.keep({"q"})
    assert topic.take() == [("gone", None)]
    a_board.keep({"q"})
    assert topic.take() == []
    a_board.keep(set())
    assert topic.take() == [("q", None)]


def test_what_a_lane_said_in_between_is_published_over() -> None:
    a_board, topic, _ = board()
    a_board.publish("q", REFUSED, registered_at=1)
    a_board.hand_over(["q", "never published"])
    a_board.publish("q", REFUSED, registered_at=1)
    assert len(topic.take()) == 2


def test_a_long_detail_is_cut() -> None:
    a_board, topic, _ = board()
    a_board.publish("q", QueryStatus(QueryState.FAILED, "m", "ü" * 5000), registered_at=1)
    ((_, said),) = topic.take()
    assert said is not None
    assert said.detail == "ü" * DETAIL_CHARS_MAX


def test_a_row_that_cannot_be_read_says_so_and_its_query_is_known() -> None:
    a_board, topic, _ = board()
    with pytest.raises(ValidationError):
        a_board.on_progress("odd", b"{")
    a_board.keep(set())
    assert topic.take() == [("odd", None)]
