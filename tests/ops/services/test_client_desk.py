"""Who reads at an access server is listed, and ended, by a real operations API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from tests.access.world import Server, key_file, open_stream, server
from tests.feeds import DEADLINE_S
from tests.ops.conftest import Writer
from tests.ops.service import Ops
from tests.ops.test_app import declare
from tests.services import Kafka, wait_until

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def access(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("access")
    with server(
        directory, KafkaConfig(bootstrap=kafka.bootstrap), key_file(directory), heartbeat_s=1
    ) as started:
        yield started


async def listed(ops: Ops, stream: str, count: int = 1) -> list[dict[str, Any]]:
    """The clients of a stream, once there are so many."""

    def found() -> list[dict[str, Any]]:
        return ops.client.get("/v1/clients", params={"stream": stream}).json()["items"]

    await asyncio.to_thread(wait_until, lambda: len(found()) == count, f"{count} are listed")
    return found()


async def test_a_client_is_listed_with_what_it_reads_and_is_ended_with_a_reason(
    ops: Ops, access: Server, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream = unique("s")
    declare(writer, stream)
    token = writer.received("dev", stream, 1)
    writer.sequenced("dev", stream, 1, token)
    async with open_stream(access.url, stream, where="device = 'dev'") as opened:
        await opened.until_cursor()
        (client,) = await listed(ops, stream)
        assert client["streams"] == [stream]
        assert client["where"] == "device = 'dev'"
        assert (client["protocol"], client["principal"]) == ("sse", "anonymous")
        assert client["state"] == "live"
        assert client["server"].startswith("access-")
        path = f"/v1/clients/{client['id']}"
        ended = asyncio.create_task(
            asyncio.to_thread(ops.client.delete, path, params={"reason": "we move, come back"})
        )
        (event,) = await opened.take(1, kinds=frozenset({"end"}))
        assert orjson.loads(event.data) == {"reason": "operator", "detail": "we move, come back"}
        async with asyncio.timeout(DEADLINE_S):
            async for _ in opened.events():
                pass
        assert opened.ended
        assert opened.parser.retry_ms == 30_000
        assert (await ended).status_code == 204
    await listed(ops, stream, 0)
    assert (await asyncio.to_thread(ops.client.delete, path)).status_code == 404
    audit = ops.client.get("/v1/audit").json()["items"]
    (said,) = [one for one in audit if one["path"] == path and one["status"] == 204]
    assert (said["holder"], said["detail"]) == ("operator", "told: we move, come back")


async def test_only_the_client_that_is_named_ends(
    ops: Ops, access: Server, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream = unique("s")
    declare(writer, stream)
    token = writer.received("dev", stream, 1)
    writer.sequenced("dev", stream, 1, token)
    async with open_stream(access.url, stream) as one, open_stream(access.url, stream) as other:
        await one.until_cursor()
        await other.until_cursor()
        first, second = await listed(ops, stream, 2)
        assert first["id"] != second["id"]
        await asyncio.to_thread(ops.client.delete, f"/v1/clients/{first['id']}")
        (left,) = await listed(ops, stream)
        assert left["id"] == second["id"]
        ends = [orjson.loads(event.data) for event in await _until_end(one, other)]
        assert ends == [{"reason": "operator", "detail": "an operator ended this stream"}]


async def _until_end(*streams: Any) -> list[Any]:
    """The words of whichever ends first; the others are left as they are."""
    waits = [asyncio.create_task(one.take(1, kinds=frozenset({"end"}))) for one in streams]
    done, left = await asyncio.wait(waits, timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()
    return [event for task in done for event in task.result()]


@pytest.mark.long
async def test_a_server_that_is_killed_has_no_clients_any_more(
    ops: Ops, kafka: Kafka, tmp_path: Path, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream = unique("s")
    declare(writer, stream)
    token = writer.received("dev", stream, 1)
    writer.sequenced("dev", stream, 1, token)
    config = KafkaConfig(bootstrap=kafka.bootstrap)
    with server(tmp_path, config, key_file(tmp_path)) as other:
        async with open_stream(other.url, stream) as opened:
            await opened.until_cursor()
            (client,) = await listed(ops, stream)
            other.process.kill()
            gone = await asyncio.to_thread(ops.client.delete, f"/v1/clients/{client['id']}")
            assert gone.status_code == 503
            assert "is its server there" in gone.json()["detail"]
            await listed(ops, stream, 0)


@pytest.mark.parametrize("name", ["none-such", "a" * 128])
def test_an_unknown_client_is_said(ops: Ops, name: str) -> None:
    answer = ops.client.delete(f"/v1/clients/{name}")
    assert (answer.status_code, answer.json()["type"].split(":")[-1].split("/")[-1]) == (
        404,
        "no_such_client",
    )


def test_an_unknown_lease_is_said(ops: Ops) -> None:
    answer = ops.client.delete("/v1/leases/none-such")
    assert (answer.status_code, answer.json()["type"].split(":")[-1].split("/")[-1]) == (
        404,
        "no_such_lease",
    )


def _code(answer: httpx.Response) -> str:
    """What kind of problem it is."""
    return str(answer.json()["type"]).rpartition(":")[2]
