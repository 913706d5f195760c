"""Who waits at a group while its key's line changes: real routes over a stream in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from edgewake.cloud.client_share import Clients
from edgewake.cloud.push.deliveries.deliveries import owner_of
from edgewake.cloud.push.groups import routes
from edgewake.cloud.push.groups.groups import Groups
from edgewake.cloud.rights.config import GrantConfig, RightsConfig, RoleConfig
from edgewake.cloud.rights.guard import Guard
from edgewake.cloud.rights.reader_door import ReaderDoor
from edgewake.cloud.rights.rights import Rights
from edgewake.cloud.rights.tickets import Tickets
from edgewake.cloud.web.app import application
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.leases.lease_record import partition_of
from tests.log.memory_hub import MemoryHub, left_empty, until
from tests.push.builders import MemoryRows, random_bytes

KEY = "0123456789abcdef"
CARS = RoleConfig(
    grants=(GrantConfig(actions=("read", "wake"), streams=("s",), devices=("$device",)),)
)


@dataclass
class Waiting:
    """A worker that waits at a group for what comes, by a key with two cars."""

    memory: MemoryHub
    rights: Rights
    file: Path
    answer: asyncio.Task[httpx.Response]

    def change(self, line: str) -> None:
        """Give the key another line, or none."""
        self.file.write_text(line)
        self.rights.look()


@pytest.fixture
async def waiting(tmp_path: Path) -> AsyncIterator[Waiting]:
    file, clock = tmp_path / "readers.keys", SystemClock()
    file.write_text(f"worker cars {KEY} car-1 car-2\n")
    rights = Rights(RightsConfig(roles={"cars": CARS}, key_file=file), clock)
    async with left_empty(MemoryHub()) as memory:
        groups = Groups(memory.hub, clock, random_bytes=random_bytes, client_share=1)
        owner = owner_of(await rights.principal(KEY.encode()), "")
        groups.partition_owned(partition_of(owner), {}, MemoryRows())
        clients = Clients()
        app = application("groups", description="")
        app.add_middleware(
            Guard,
            rights=rights,
            door=ReaderDoor(rights, clock),
            clients=clients,
            tickets=Tickets(clock, lambda: ""),
            open_paths=(),
        )
        routes.add_to(app, groups, clients, rights)
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app),
            base_url="http://push",
            headers={"Authorization": f"Bearer {KEY}"},
        ) as client:
            made = await client.put("/v1/groups/g", json={"streams": ["s"], "from": "earliest"})
            assert made.status_code == 201, made.text
            answer = asyncio.create_task(client.post("/v1/groups/g/take", json={"wait_s": 10}))
            await until(lambda: len(memory.hub.views))
            yield Waiting(memory, rights, file, answer)
            answer.cancel()
            await asyncio.wait({answer})
            groups.partition_lost(partition_of(owner))
            await groups._tasks.cancel()


async def test_who_is_given_more_waits_on(waiting: Waiting) -> None:
    """It was told 401 and that its key is revoked, which it was not."""
    waiting.change(f"worker cars {KEY} car-1 car-2 car-3\n")
    await asyncio.wait({waiting.answer}, timeout=1.2)  # it has looked at its right meanwhile
    assert not waiting.answer.done(), waiting.answer.result().text
    waiting.memory.send({"device": "car-1"}, {"device": "car-3"})
    taken = (await waiting.answer).json()["events"]
    assert [one["event"]["device"] for one in taken] == ["car-1"], "the group shows what it did"


@pytest.mark.parametrize(
    ("line", "status", "title"),
    [("", 401, "key revoked"), (f"worker cars {KEY} car-1\n", 409, "group differs")],
)
async def test_who_sees_less_is_told_so_and_given_nothing(
    waiting: Waiting, line: str, status: int, title: str
) -> None:
    waiting.change(line)
    answer = await waiting.answer
    assert (answer.status_code, answer.json()["title"]) == (status, title)
