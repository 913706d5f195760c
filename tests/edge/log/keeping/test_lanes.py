"""What lanes mean for the log: who waits for whose commit, and who goes first at the quota."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.tables.schema import LOG_NAME
from edgewake.edge.uplink.config import UplinkConfig
from tests.edge.helpers import Sent, opened, put, reading
from tests.services import PATIENCE_S


def test_an_urgent_reading_does_not_wait_for_those_that_linger(tmp_path: Path) -> None:
    """The normal ones would wait for a minute: an urgent one takes them along."""
    sent = Sent()
    config = LogConfig(reserve_bytes=0, linger_ms=60_000.0)
    with opened(tmp_path, sent=sent, config=config, lanes={"alarm": Lane.URGENT}) as events:
        events.start_sending()
        put(events, range(1, 31), stream="alarm")
        put(events, range(31, 61), stream="alarm")  # so many that company is to be expected
        normal = events.stream("speed")
        ticket = normal.append(reading(1))
        assert not normal.wait_accepted(ticket, timeout_s=0.3), "it was to linger"
        put(events, range(100, 101), stream="alarm")
        assert normal.wait_accepted(ticket, timeout_s=PATIENCE_S)


def test_at_the_quota_the_lowest_lane_goes_first(tmp_path: Path) -> None:
    config = LogConfig(linger_ms=0, linger_bulk_ms=0, reserve_bytes=0, quota_bytes=1 << 20)
    lanes = {"bulk": Lane.BULK, "alarm": Lane.URGENT}
    with opened(
        tmp_path, config=config, uplink=UplinkConfig(inflight_bytes_max=1 << 18), lanes=lanes
    ) as events:
        for stream, count in (("alarm", 300), ("bulk", 300), ("speed", 700)):
            log = events.stream(stream)
            assert log.wait_accepted(
                log.append_all(reading(n, text="x" * 1000) for n in range(count)),
                timeout_s=PATIENCE_S,
            )
        assert events.status().lost == {"quota": 300}
    with closing(sqlite3.connect(tmp_path / LOG_NAME)) as db:
        gaps = db.execute(
            "SELECT name, count FROM gaps JOIN streams ON gaps.stream = streams.id"
        ).fetchall()
    assert gaps == [("bulk", 300)]


async def test_a_question_that_nobody_waits_for_any_more_harms_nobody(tmp_path: Path) -> None:
    """It is asked while the writer is busy with another one, and withdrawn before its turn."""
    busy, go_on = threading.Event(), threading.Event()

    def first(_: object) -> None:
        busy.set()
        assert go_on.wait(PATIENCE_S)

    with opened(tmp_path) as events:
        answer = events._writer.ask(first)
        await asyncio.to_thread(busy.wait, 20)
        withdrawn = asyncio.create_task(events.ask_status())
        await asyncio.sleep(0)
        withdrawn.cancel()
        await asyncio.wait({withdrawn})
        assert withdrawn.cancelled(), "the fault did not fire"
        go_on.set()
        await asyncio.wrap_future(answer)
        put(events, range(1, 3))
        assert (await events.ask_status()).backlog_readings == 2
