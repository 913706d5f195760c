"""The directory of a log: no mode leaves a log behind that holds readings."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.edge.log.event_log import Commit
from edgewake.edge.log.mode import LogMode
from edgewake.edge.log.tables.schema import LOG_NAME
from edgewake.protocol.errors import LocalError
from tests.edge.helpers import Sent, opened, put
from tests.edge.log.test_mode import config
from tests.services import wait_until


def test_a_log_that_holds_readings_is_never_left_behind(tmp_path: Path) -> None:
    sent = Sent()
    with opened(tmp_path, config=config(LogMode.HML)) as events:
        put(events, range(1, 6))
    with (
        pytest.raises(LocalError, match="readings wait for the cloud"),
        opened(tmp_path, config=config(LogMode.NONE)),
    ):
        pass
    with opened(tmp_path, sent=sent, config=config(LogMode.HML)) as events:
        events.start_sending()
        sent.until(1)
        sent.acknowledge(events)
        wait_until(lambda: not events.status().backlog_readings, "acknowledged")
        events.append(Commit({}, {"tail": "5"}))
        put(events, range(6, 7))
        wait_until(
            lambda: sent.acknowledge(events) or not events.status().backlog_readings, "acknowledged"
        )
    with opened(tmp_path, config=config(LogMode.NONE)) as events:
        assert events.position("tail") == "5", "a source does not read again what it has read"
    assert not (tmp_path / LOG_NAME).exists()
    with opened(tmp_path, config=config(LogMode.HML)) as events:
        put(events, range(7, 8))
