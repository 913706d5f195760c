from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from edgewake.cloud.access.long_lived import FREEZE_AFTER, WALK_AFTER_MIN, Due, LongLived


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    """What a test froze is looked at again."""
    yield
    gc.unfreeze()


class Circle:
    """Is freed by a walk alone."""

    def __init__(self) -> None:
        self.me = self


def test_streams_are_frozen_some_hundreds_at_a_time() -> None:
    streams = LongLived()
    assert streams.due(FREEZE_AFTER - 1, 0) is Due.NOTHING
    assert streams.due(FREEZE_AFTER, 0) is Due.FREEZE
    before = gc.get_freeze_count()
    streams.look(FREEZE_AFTER, 0)
    assert gc.get_freeze_count() > before
    assert streams.due(2 * FREEZE_AFTER - 1, 0) is Due.NOTHING


def test_a_walk_is_due_once_as_many_have_ended_as_are_open() -> None:
    opened = 3 * WALK_AFTER_MIN
    streams = LongLived()
    streams.look(opened, 0)
    assert streams.due(opened, WALK_AFTER_MIN) is Due.NOTHING, "twice as many are open"
    ended = opened // 2
    assert streams.due(opened, ended) is Due.WALK
    streams.look(opened, ended)
    assert streams.due(opened, ended) is Due.NOTHING


def test_a_circle_that_was_frozen_is_freed_by_the_walk() -> None:
    streams = LongLived()
    circle = Circle()
    left = weakref.ref(circle)
    streams.look(FREEZE_AFTER, 0)
    del circle
    gc.collect()
    assert left() is not None, "it is frozen"
    streams.look(WALK_AFTER_MIN, WALK_AFTER_MIN)
    assert left() is None
