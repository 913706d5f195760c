"""Rows that two servers change at the same moment, over a log that is a list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass

import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.ops.services.board_desk import BoardDesk
from edgewake.cloud.ops.services.named_desk import NamedDesk
from edgewake.cloud.ops.tables.table_writer import Line, TableWriter
from edgewake.cloud.ops.tables.tables import Change, OpsTables
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.ops.board import Board, BoardText
from edgewake.protocol.ops.named_set import SetText

Log = list[Change]


class Writer(TableWriter):
    """Writes to the list."""

    def __init__(self, log: Log, tables: OpsTables) -> None:
        super().__init__(KafkaConfig(bootstrap="127.0.0.1:1"), tables, SystemClock())
        self._log = log

    def _produce(self, topic: str, key: str, value: bytes | None) -> int:
        offset = len(self._log)
        self._log.append(Change(topic, key, value, offset=offset))
        return offset


@dataclass(frozen=True)
class Server:
    tables: OpsTables
    boards: BoardDesk
    named: NamedDesk


@contextmanager
def made(log: Log) -> Iterator[Server]:
    tables, clock = OpsTables(), SystemClock()
    writer = Writer(log, tables)
    yield Server(tables, BoardDesk(writer, tables, clock), NamedDesk(writer, tables, clock))
    writer.close()


async def follow(log: Log, tables: OpsTables) -> None:
    """What is written is read a moment later, so both servers begin with the same version."""
    read = 0
    while True:
        await asyncio.sleep(0.02)
        for change in log[read:]:
            tables.apply(change, now=1)
            read += 1


@asynccontextmanager
async def servers(log: Log) -> AsyncIterator[tuple[Server, Server]]:
    with made(log) as first, made(log) as second:
        tasks = [asyncio.create_task(follow(log, one.tables)) for one in (first, second)]
        try:
            yield first, second
            await asyncio.sleep(0.1)
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


def last(log: Log) -> dict[str, bytes | None]:
    """What compaction leaves."""
    return {change.key: change.value for change in log}


async def test_of_two_servers_that_change_one_version_the_second_is_refused() -> None:
    log: Log = []
    async with servers(log) as (first, second):
        for version in range(6):
            answers = await asyncio.gather(
                first.boards.put("b", BoardText(title=f"a{version}"), version=version, by="ann"),
                second.boards.put("b", BoardText(title=f"b{version}"), version=version, by="ben"),
                return_exceptions=True,
            )
            (kept,) = [one for one in answers if isinstance(one, Board)]
            (refused,) = [one for one in answers if isinstance(one, Problem)]
            assert (refused.status, refused.code) == (409, "changed_meanwhile")
            assert f"changed by {kept.changed_by}" in refused.detail
            await asyncio.sleep(0.05)
            assert first.boards.get("b") == second.boards.get("b") == kept
            assert last(log) == {"b": kept.model_dump_json().encode()}


async def test_two_servers_that_change_any_version_have_their_way_one_after_the_other() -> None:
    log: Log = []
    async with servers(log) as (first, second):
        made = await asyncio.gather(
            first.boards.put("b", BoardText(title="one"), version=None, by="ann"),
            second.boards.put("b", BoardText(title="two"), version=None, by="ben"),
            first.boards.put("b", BoardText(title="three"), version=None, by="cid"),
        )
        assert sorted(one.version for one in made) == [1, 2, 3]


async def test_members_that_are_added_at_the_same_moment_are_all_in_the_set() -> None:
    log: Log = []
    async with servers(log) as (first, second):
        await first.named.put_set("s", SetText(members=("a",)), version=0, by="ann")
        await asyncio.sleep(0.05)
        await asyncio.gather(
            first.named.change_set("s", ["b"], [], by="ann"),
            first.named.change_set("s", ["c"], ["a"], by="ann"),
            second.named.change_set("s", ["d"], [], by="ben"),
        )
        await asyncio.sleep(0.05)
        assert set(first.named.named_set("s").members) == {"b", "c", "d"}
        assert first.named.named_set("s") == second.named.named_set("s")


def row(version: int, by: str) -> bytes:
    return f'{{"version":{version},"changed_by":"{by}"}}'.encode()


OWN = row(4, "own")


@pytest.mark.parametrize(
    ("records", "is_accepted", "overwritten"),
    [
        ([OWN], True, None),
        ([row(4, "ann"), OWN], False, row(4, "ann")),
        ([OWN, row(4, "ann")], True, OWN),
        ([OWN, row(5, "ann")], True, None),
        ([row(4, "ann"), row(5, "ben"), OWN], False, row(5, "ben")),
        # Another one puts ann's back, and knows nothing yet of who went on from it.
        ([row(4, "ann"), OWN, row(5, "ben"), row(4, "ann")], False, row(5, "ben")),
        ([row(4, "ann"), OWN, row(4, "ann")], False, None),
        ([row(3, "old"), OWN], True, None),  # read once more
        ([None, OWN], True, None),
        ([row(4, "ann"), None, OWN], True, None),
        ([b"[]", OWN], True, None),
    ],
)
def test_the_first_record_made_of_a_version_stands(
    records: list[bytes | None], is_accepted: bool, overwritten: bytes | None
) -> None:
    line = Line(OWN, 3)
    for record in records:
        line.put(record)
    assert (line.is_accepted, line.overwritten) == (is_accepted, overwritten)


def test_of_two_that_make_the_same_name_the_first_one_does() -> None:
    line = Line(row(1, "own"), 0)
    line.put(row(1, "ann"))
    line.put(row(1, "own"))
    assert (line.is_accepted, line.overwritten) == (False, row(1, "ann"))
