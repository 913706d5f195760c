"""A message that the log lost after it was confirmed comes again, and is taken then."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import orjson

from edgewake.edge.downlink.inbox import INBOX, SUCCESS, WAITING_MAX, Done, Inbox
from edgewake.edge.downlink.kept import Kept
from edgewake.edge.log.tables.schema import LOG_NAME
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.downlink.downlink import Answer, AnswerState, DownKind
from tests.edge.helpers import opened
from tests.services import PATIENCE_S


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


def command(number: int) -> bytes:
    return orjson.dumps({"id": f"c{number}", "name": "echo"})


def lose_all(directory: Path) -> None:
    """The disk lost what came."""
    with closing(sqlite3.connect(directory / LOG_NAME, timeout=PATIENCE_S)) as db, db:
        found = db.execute(
            "DELETE FROM batches WHERE stream = (SELECT id FROM streams WHERE name = ?)", (INBOX,)
        )
        assert found.rowcount > 0


async def test_what_was_lost_is_taken_when_it_comes_again_and_takes_no_room_for_ever(
    tmp_path: Path,
) -> None:
    done: list[str] = []

    async def do(kept: Kept) -> Done:
        done.append(kept.id)
        return Done(Answer(id=kept.id, kind=DownKind.COMMAND, state=AnswerState.DONE, detail=""))

    with opened(tmp_path, local=frozenset({INBOX})) as events:
        inbox = Inbox(events, SystemClock(), boot="boot")
        consumer = await inbox.open()
        told: list[int] = []
        for number in range(WAITING_MAX):
            inbox.take("command", command(number), 3600, told.append)
        await until(lambda: len(told) == WAITING_MAX)
        assert set(told) == {SUCCESS}
        lose_all(tmp_path)
        for tail in consumer._tails.values():
            tail.clear()  # what memory holds of them, too
        running = asyncio.create_task(inbox.run(lambda _kept, _was_begun: None, do))
        await until(lambda: inbox.counts["lost"] == WAITING_MAX)
        for number in range(WAITING_MAX, WAITING_MAX // 2, -1):
            inbox.take("command", command(number), 3600, told.append)
        await until(lambda: len(done) == WAITING_MAX // 2)
        assert done == [f"c{number}" for number in range(WAITING_MAX, WAITING_MAX // 2, -1)]
        assert set(told) == {SUCCESS}
        running.cancel()
        await asyncio.wait({running})
