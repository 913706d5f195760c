"""Named sets in the filters of deliveries, groups, leases, of the latest rows and of copies: what
changes in a set is followed, and what stays in it comes once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.access.wanted.conftest import Keeper
from tests.access.world import Server
from tests.feeds import Feed, unique
from tests.push.receiver import receiving
from tests.push.service import Service, serving
from tests.services import PATIENCE_S, Kafka

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def push_directory(cursor_key: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where its cursors are signed as those of the access servers."""
    directory = tmp_path_factory.mktemp("sets_elsewhere")
    (directory / "cursor.keys").write_text(cursor_key.read_text())
    return directory


@pytest.fixture(scope="module")
def push(kafka: Kafka, push_directory: Path) -> Iterator[Service]:
    with serving(
        "push", kafka.bootstrap, push_directory, name="push-sets", allow_hosts=["127.0.0.1"]
    ) as service:
        yield service


@dataclass
class Told:
    """What somebody was told of: (device, n), as often as it came."""

    rows: list[tuple[str, int]] = field(default_factory=list)

    def of(self, device: str) -> list[int]:
        return [n for name, n in self.rows if name == device]


def within(name: str) -> str:
    return f"device IN SET('{name}') AND n > 0"


async def once_known(put: Callable[[], Any]) -> httpx.Response:
    """The answer, once the proxy knows the stream and the set."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answer: httpx.Response = await put()
            if answer.status_code in (200, 201):
                return answer
            assert answer.status_code in (422, 503), answer.text
            await asyncio.sleep(0.1)


@asynccontextmanager
async def delivered(push: Service, feed: Feed, where: str) -> AsyncIterator[Told]:
    told, path = Told(), f"/v1/deliveries/{unique('d')}"
    async with receiving() as receiver, httpx.AsyncClient(base_url=push.url) as http:
        body = {"streams": [feed.name], "where": where, "url": receiver.url, "from": "earliest"}
        await once_known(lambda: http.put(path, json=body, timeout=PATIENCE_S))

        async def watch() -> None:
            count = 0
            while True:
                for call in receiver.calls[count:]:
                    count += 1
                    events = json.loads(call.body)["events"]
                    told.rows += [(one["device"], int(one["n"])) for one in events if "n" in one]
                await asyncio.sleep(0.02)

        watching = asyncio.create_task(watch())
        try:
            yield told
        finally:
            watching.cancel()
            await http.delete(path, timeout=PATIENCE_S)


@asynccontextmanager
async def shared(push: Service, feed: Feed, where: str) -> AsyncIterator[Told]:
    told, path = Told(), f"/v1/groups/{unique('g')}"
    async with httpx.AsyncClient(base_url=push.url, timeout=PATIENCE_S) as http:
        body = {"streams": [feed.name], "where": where, "from": "earliest"}
        await once_known(lambda: http.put(path, json=body))

        async def watch() -> None:
            done: list[str] = []
            while True:
                words = {"wait_s": 1, "max": 100, "ack": done}
                answer = await http.post(f"{path}/take", json=words)
                if answer.status_code != 200:  # it is being opened
                    await asyncio.sleep(0.1)
                    continue
                events = answer.json()["events"]
                done = [one["token"] for one in events]
                told.rows += [(one["event"]["device"], int(one["event"]["n"])) for one in events]

        watching = asyncio.create_task(watch())
        try:
            yield told
        finally:
            watching.cancel()
            await asyncio.wait({watching})
            await http.delete(path)


@pytest.mark.parametrize("way", [delivered, shared])
async def test_a_set_is_followed_by_deliveries_and_groups(
    keeper: Keeper,
    push: Service,
    new_feed: Callable[..., Feed],
    way: Callable[..., Any],
) -> None:
    """Who comes into a set comes from then on, who leaves it no more, who stays is told of once; a
    set that is removed lets nothing pass, and ends nobody.
    """
    feed, north = new_feed(partitions=2), unique("north")
    feed.send("a")
    keeper.keep("set", north, members=["a", "b"])
    async with way(push, feed, within(north)) as told:
        for device in ("b", "c"):
            feed.send(device)
        await until(lambda: told.of("a") == [1] and told.of("b") == [1], told)
        assert keeper.run("set", "add", north, "c").returncode == 0
        assert keeper.run("set", "remove", north, "b").returncode == 0
        sent = 1
        async with asyncio.timeout(PATIENCE_S):
            while True:  # until who left is told of no more, and who came is
                sent += 1
                for device in ("b", "a", "c"):
                    feed.send(device)
                await until(lambda: sent in told.of("a"), told)  # noqa: B023
                with suppress(TimeoutError):
                    async with asyncio.timeout(2):  # it may come a little behind the others
                        while sent not in told.of("c"):
                            await asyncio.sleep(0.05)
                if told.of("c")[-1:] == [sent] and sent not in told.of("b"):
                    break
        assert told.of("a") == list(range(1, sent + 1))
        assert told.of("c") == list(range(told.of("c")[0], sent + 1))
        assert told.of("b") == list(range(1, len(told.of("b")) + 1))
        assert keeper.run("set", "delete", north).returncode == 0
        async with asyncio.timeout(PATIENCE_S):
            while told.of("a")[-1] == sent:
                sent += 1
                feed.send("a")
                await asyncio.sleep(0.5)
        left_out = sent
        keeper.keep("set", north, members=["a"])
        async with asyncio.timeout(PATIENCE_S):
            while told.of("a")[-1] <= left_out:
                sent += 1
                feed.send("a")
                await asyncio.sleep(0.2)
        assert len(set(told.rows)) == len(told.rows)


async def until(is_so: Callable[[], bool], told: Told) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"told: {told.rows}") from None


async def test_a_lease_counts_what_is_in_a_set_as_it_is_then(
    keeper: Keeper, access_a: Server, push: Service, new_feed: Callable[..., Feed]
) -> None:
    feed, north = new_feed(partitions=2), unique("north")
    feed.send("a")
    keeper.keep("set", north, members=["a"])
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
        page = f"{access_a.url}/v1/streams/{feed.name}/events?from=earliest&limit=9"
        cursor = (await once_known(lambda: http.get(page))).json()["cursor"]
        subscription = {"streams": [feed.name], "where": within(north)}
        body = {
            "subscription": subscription,
            "cursor": cursor,
            "endpoint": {"url": "http://127.0.0.1:9/hook"},
            "wake": {"min_events": 1000},
        }
        leases = f"{push.url}/v1/leases"
        lease = (await once_known(lambda: http.post(leases, json=body))).json()
        headers = {"Authorization": f"Bearer {lease['token']}"}

        async def unseen() -> int:
            answer = await http.get(f"{leases}/{lease['id']}", headers=headers)
            return int(answer.json()["unseen_count"])

        async def reaches(count: int) -> None:
            async with asyncio.timeout(PATIENCE_S):
                while await unseen() < count:
                    await asyncio.sleep(0.05)

        for device in ("b", "c", "b", "a", "a"):
            feed.send(device)
        await reaches(2)
        assert await unseen() == 2
        keeper.keep("set", north, members=["b"])
        tries = 0
        async with asyncio.timeout(PATIENCE_S):
            while await unseen() < 7:
                tries += 1
                feed.send("b")
                await asyncio.sleep(0.1)
        before, sent = await unseen(), 10
        for _ in range(sent):
            feed.send("a")
        feed.send("b", 3)
        await reaches(before + 3)
        assert await unseen() <= before + 3 + tries, "who left is counted no more"
        told = {"where": "device IN SET('no_such_set')"}
        wrong = await http.post(leases, json=body | {"subscription": subscription | told})
        assert (wrong.status_code, "no set is named" in wrong.text) == (422, True)


async def test_the_latest_and_a_copy_follow_a_set(
    keeper: Keeper, access_a: Server, new_feed: Callable[..., Feed]
) -> None:
    """Who comes or goes changes no row: a copy is told all rows anew, also while it waits."""
    feed, north = new_feed(partitions=2), unique("north")
    for device in ("a", "b", "c"):
        feed.send(device)
    keeper.keep("set", north, members=["a", "b"])
    words: dict[str, Any] = {"where": within(north)}
    async with httpx.AsyncClient(base_url=access_a.url, timeout=PATIENCE_S) as http:

        async def latest() -> set[str]:
            path = f"/v1/latest/{feed.name}"
            answer = await once_known(lambda: http.get(path, params=words))
            return {row["device"] for row in answer.json()["rows"]}

        async def sync(**more: Any) -> dict[str, Any]:
            path = f"/v1/sync/{feed.name}"
            answer = await once_known(lambda: http.get(path, params=words | more))
            return dict(answer.json())

        assert await latest() == {"a", "b"}
        found = await sync()
        assert (found["kind"], {one["key"] for one in found["rows"]}) == ("snapshot", {"a", "b"})
        again = await sync(after=found["cursor"])
        assert (again["kind"], again["changes"]) == ("changes", [])
        waiting = asyncio.create_task(sync(after=again["cursor"], wait=60))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        keeper.keep("set", north, members=["b", "c"])
        async with asyncio.timeout(30):
            told = await waiting
        assert (told["kind"], {one["key"] for one in told["rows"]}) == ("snapshot", {"b", "c"})
        assert await latest() == {"b", "c"}
        for device in ("a", "c"):
            feed.send(device)
        change = await sync(after=told["cursor"], wait=30)
        assert (change["kind"], [one["key"] for one in change["changes"]]) == ("changes", ["c"])
        late = await sync(after=found["cursor"])
        assert (late["kind"], {one["key"] for one in late["rows"]}) == ("snapshot", {"b", "c"})
        for path in (f"/v1/latest/{feed.name}", f"/v1/sync/{feed.name}"):
            wrong = await http.get(path, params={"where": "device IN SET('no_such_set')"})
            assert (wrong.status_code, "no set is named" in wrong.text) == (422, True)
