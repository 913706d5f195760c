"""A copy of the latest rows that is kept up to date: snapshot, then insert, update, delete."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from tests.access.latest.copies import apply
from tests.access.world import Server, server
from tests.feeds import DEADLINE_S, Feed
from tests.services import Kafka, wait_until

DOC = Path(__file__).parents[3] / "docs/sync.md"


# The decisions, without I/O.


# Over HTTP.


@pytest.fixture(scope="module")
def synced(access_directory: Path, kafka: Kafka, cursor_key: Path) -> Iterator[Server]:
    """A server that keeps more copies for one address than by default."""
    config = KafkaConfig(bootstrap=kafka.bootstrap)
    with server(access_directory, config, cursor_key, address_share=1.0) as running:
        yield running


async def ask(running: Server, name: str, **words: Any) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=DEADLINE_S) as client:
        answer = await client.get(f"{running.url}/v1/sync/{name}", params=words)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def until_complete(running: Server, feed: Feed, rows: int, **words: Any) -> dict[str, Any]:
    async with asyncio.timeout(DEADLINE_S):
        while len((found := await ask(running, feed.name, **words))["rows"]) < rows:
            await asyncio.sleep(0.05)
    return found


@pytest.mark.services
@pytest.mark.parametrize("path", ["latest", "sync"])
async def test_who_wants_rows_only_where_there_are_none_is_told_that_there_are(
    synced: Server, feed: Feed, path: str
) -> None:
    """RFC 9110, 13.1.2: a server must look at it, with a tag or without."""
    feed.send("car-1", n=1)
    async with httpx.AsyncClient(base_url=synced.url, timeout=DEADLINE_S) as client:
        sent = ["*", '"x"']
        told = [
            await client.get(f"/v1/{path}/{feed.name}", headers={"If-None-Match": one})
            for one in sent
        ]
        missing = await client.get(f"/v1/{path}/nowhere", headers={"If-None-Match": "*"})
    assert [(one.status_code, bool(one.content)) for one in told] == [(304, False), (200, True)]
    assert missing.status_code == 404


@pytest.mark.services
async def test_a_snapshot_and_exactly_what_changed_behind_it(
    synced: Server, access_b: Server, feed: Feed
) -> None:
    for device in ("car-1", "car-2", "car-3"):
        feed.send(device, n=1)
    found = await until_complete(synced, feed, 3)
    assert (found["kind"], found["changes"]) == ("snapshot", [])
    copy = {one["key"]: one["row"] for one in found["rows"]}
    assert sorted(copy) == ["car-1", "car-2", "car-3"]
    waiting = asyncio.create_task(ask(synced, feed.name, after=found["cursor"], wait=20))
    await asyncio.sleep(0.2)
    feed.send("car-2", n=1)
    changed = await waiting
    assert [one["op"] for one in changed["changes"]] == ["update"]
    feed.send("car-4", n=2)
    async with asyncio.timeout(DEADLINE_S):
        changes: list[dict[str, Any]] = list(changed["changes"])
        cursor = changed["cursor"]
        while not any(one["key"] == "car-4" for one in changes):
            more = await ask(synced, feed.name, after=cursor, wait=5)
            changes, cursor = changes + more["changes"], more["cursor"]
    for one in changes:
        apply(copy, one)
    # Another server says the same of the same cursors.
    whole = await until_complete(access_b, feed, 4)
    assert {one["key"]: one["row"] for one in whole["rows"]} == copy
    assert (await ask(access_b, feed.name, after=cursor))["changes"] == []


@pytest.mark.services
async def test_a_filter_keys_and_pages(synced: Server, feed: Feed) -> None:
    for number in range(1, 8):
        feed.send(f"car-{number}", fields={"n": [number]})
    whole = await until_complete(synced, feed, 7)
    some = await ask(synced, feed.name, where="n >= 5")
    assert sorted(one["key"] for one in some["rows"]) == ["car-5", "car-6", "car-7"]
    one = await ask(synced, feed.name, key="car-3")
    assert [found["key"] for found in one["rows"]] == ["car-3"]
    first = await ask(synced, feed.name, limit=5)
    second = await ask(synced, feed.name, limit=5, page=first["next"])
    assert second["next"] is None
    assert first["rows"] + second["rows"] == sorted(whole["rows"], key=lambda row: row["key"])
    # A row begins to pass: it is inserted; another one's change is not told.
    feed.send("car-1", fields={"n": [9]})
    feed.send("car-2", fields={"n": [1]})
    async with asyncio.timeout(DEADLINE_S):
        changed: list[dict[str, Any]] = []
        cursor = some["cursor"]
        while not changed:
            found = await ask(synced, feed.name, where="n >= 5", after=cursor, wait=2)
            changed, cursor = found["changes"], found["cursor"]
    assert [(one["op"], one["key"]) for one in changed] == [("insert", "car-1")]


@pytest.mark.services
async def test_a_cursor_that_says_nothing_here_gives_a_snapshot_and_garbage_an_error(
    synced: Server, feed: Feed, new_feed: Any
) -> None:
    other = new_feed()
    feed.send("car-1", n=1)
    other.send("car-2", n=1)
    mine = await until_complete(synced, feed, 1)
    await until_complete(synced, other, 1)
    found = await ask(synced, other.name, after=mine["cursor"])
    assert (found["kind"], len(found["rows"])) == ("snapshot", 1)
    async with httpx.AsyncClient(base_url=synced.url, timeout=DEADLINE_S) as client:
        for words, status, code in (
            ({"after": "v2.x"}, 400, "cursor_"),
            ({"after": mine["cursor"], "limit": 5}, 400, "after"),
            ({"where": "n >"}, 422, "filter"),
            ({"wait": 61, "after": mine["cursor"]}, 400, "wait"),
        ):
            answer = await client.get(f"/v1/sync/{feed.name}", params=words)
            assert answer.status_code == status, answer.text
            assert answer.json()["type"].rpartition(":")[2].startswith(code)
        assert (await client.get("/v1/sync/no_such_stream")).status_code == 404


def program(name: str) -> str:
    """A block of code of the page that begins with its name."""
    pattern = rf"```\w+\n((?:#|//) {re.escape(name)}\n.*?)```"
    (block,) = re.findall(pattern, DOC.read_text(), re.DOTALL)
    return block


@pytest.mark.services
@pytest.mark.parametrize(
    "name",
    [
        "keep_copy.py",
        *(pytest.param(f"keep_copy.{kind}", marks=pytest.mark.long) for kind in ("mjs", "sh")),
    ],
)
async def test_the_programs_of_the_page_keep_a_copy(
    synced: Server, feed: Feed, tmp_path: Path, name: str
) -> None:
    feed.send("car-1", n=1)
    feed.send("car-2", n=1)
    await until_complete(synced, feed, 2)
    code = program(name).replace("http://127.0.0.1:8700", synced.url)
    file, output = tmp_path / name, tmp_path / "output.txt"
    file.write_text(code.replace("vehicle_position", feed.name))
    words = {"py": [sys.executable], "mjs": ["node"], "sh": ["sh"]}[name.partition(".")[2]]

    def last() -> dict[str, Any]:
        lines = output.read_text().splitlines()
        return dict(json.loads(lines[-1])) if lines else {}

    if name == "keep_copy.sh":

        async def run() -> dict[str, Any]:
            done = await asyncio.to_thread(
                subprocess.run, [*words, str(file)], cwd=tmp_path, capture_output=True, text=True
            )
            assert (done.returncode, done.stderr) == (0, "")
            return dict(json.loads(done.stdout))

        assert len((await run())["rows"]) == 2
        feed.send("car-3", n=1)
        async with asyncio.timeout(DEADLINE_S):
            while not (found := await run())["changes"]:
                pass
        assert [(one["op"], one["key"]) for one in found["changes"]] == [("insert", "car-3")]
        return
    with output.open("w") as out:
        running = subprocess.Popen([*words, str(file)], stdout=out, env=dict(os.environ))
        try:
            await asyncio.to_thread(wait_until, lambda: len(last()) == 2, "it has two rows")
            feed.send("car-3", n=1)
            await asyncio.to_thread(wait_until, lambda: len(last()) == 3, "and the third")
        finally:
            running.kill()
            running.wait()
