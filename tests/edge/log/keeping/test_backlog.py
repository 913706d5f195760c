"""What waits in a log for the cloud."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgewake.edge.log.keeping.work import Work
from tests.edge.helpers import reading
from tests.edge.log.bare_log import BareLog, Cloud, drained, with_two_streams


@pytest.fixture
def log(tmp_path: Path) -> Iterator[BareLog]:
    found = with_two_streams(tmp_path / "log")
    yield found
    found.close()


def test_what_is_in_frames_and_what_waits_for_one_is_counted(log: BareLog) -> None:
    assert log.store.backlog() == (14, 5)


def test_what_the_cloud_has_waits_no_more(log: BareLog) -> None:
    drained(log, Cloud())
    assert log.store.backlog() == (0, 0)
    log.put({"speed": [reading(14)]})
    log.store.apply(Work(sending=True))
    assert log.store.backlog() == (1, 1)
