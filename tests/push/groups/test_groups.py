"""Workers that share a stream: real proxies and Kafka, workers that die, a proxy that is killed."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.log.wanted import is_in_share
from edgewake.cloud.push.groups.groups import KEPT_S, SWEEP_S, Groups
from edgewake.protocol.leases.group_record import Group, encode
from tests.push.builders import ManualClock, MemoryRows, has_slept, random_bytes
from tests.push.service import Readings, Service, asked, back, readings, serving
from tests.services import PATIENCE_S, Kafka, wait_until

pytestmark = pytest.mark.services

DOC = Path(__file__).parents[3] / "docs/groups.md"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("groups")


@pytest.fixture(scope="module")
def proxy(kafka: Kafka, directory: Path) -> Iterator[Service]:
    with serving(
        "push", kafka.bootstrap, directory, name="push-groups", session_timeout_s=3
    ) as service:
        yield service


@pytest.fixture
def push(proxy: Service) -> Service:
    """The proxy, started again where a test before killed it."""
    if not proxy.process.is_running():
        proxy.restart()
    return proxy


@pytest.fixture
def stream(kafka_config: KafkaConfig) -> Readings:
    return readings(kafka_config, f"grp_{uuid.uuid4().hex[:12]}")


async def ask(
    push: Service, method: str, path: str, body: object = None, *, expected: int = 200
) -> Any:
    return await asked(push, method, f"/v1/groups/{path}", body, expected=expected)


async def made(push: Service, stream: Readings, **more: Any) -> str:
    name = f"g{uuid.uuid4().hex[:12]}"
    body = {"streams": [stream.stream], "from": "earliest", **more}
    async with asyncio.timeout(PATIENCE_S):
        while True:  # a new stream is heard of soon
            async with httpx.AsyncClient(base_url=push.url, timeout=PATIENCE_S) as client:
                answer = await client.put(f"/v1/groups/{name}", json=body)
            if answer.status_code == 201:
                return name
            is_early = answer.status_code == 503
            assert is_early or answer.json()["type"].endswith("unknown_stream"), answer.text
            await asyncio.sleep(0.1)


async def take(push: Service, name: str, **words: Any) -> list[dict[str, Any]]:
    found = await ask(push, "POST", f"{name}/take", {"wait_s": 5, **words})
    return list(found["events"])


async def take_so_many(push: Service, name: str, count: int, **words: Any) -> list[dict[str, Any]]:
    """A take gives what is there at the moment: take until so many are held."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            found += await take(push, name, max=count - len(found), **words)
    return found


def numbers(events: list[dict[str, Any]]) -> list[int]:
    return [int(one["event"]["n"]) for one in events]


def tokens(events: list[dict[str, Any]]) -> list[str]:
    return [one["token"] for one in events]


async def test_each_event_is_done_by_one_of_many(push: Service, stream: Readings) -> None:
    stream.add(300)
    name = await made(push, stream)
    seen: list[int] = []

    async def work(most: int) -> None:
        done: list[str] = []
        while len(seen) < 300:
            events = await take(push, name, max=most, wait_s=0.5, ack=done)
            assert all(one["count"] == 1 for one in events)
            seen.extend(numbers(events))
            done = tokens(events)
        if done:
            await ask(push, "POST", f"{name}/ack", {"done": done})

    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(work(most) for most in (1, 7, 30, 100)))
    assert sorted(seen) == list(range(1, 301))
    view = await ask(push, "GET", name)
    assert (view["events"], view["held"]) == (300, 0)
    assert await take(push, name, wait_s=0) == []
    stream.add(1)
    assert numbers(await take(push, name)) == [301]


@pytest.mark.long
async def test_a_group_is_of_some_devices_or_a_share_of_them(
    push: Service, stream: Readings
) -> None:
    stream.add(30)
    share = [n for n in range(3) if is_in_share({"device": f"dev-{n}"}, ("device",), 0.5)]
    assert share == [2]
    name = await made(push, stream, sample=0.5)
    assert {n % 3 for n in numbers(await take_so_many(push, name, 10))} == {2}
    assert await take(push, name, wait_s=0) == []
    name = await made(push, stream, devices=["dev-1"])
    assert {n % 3 for n in numbers(await take_so_many(push, name, 10))} == {1}
    assert await take(push, name, wait_s=0) == []
    body = {"streams": [stream.stream], "from": "earliest"}
    assert (await ask(push, "PUT", name, body | {"devices": ["dev-1"]}))["devices"] == ["dev-1"]
    await ask(push, "PUT", name, body, expected=409)  # of all devices it is another one
    await ask(push, "PUT", name, body | {"per": "n"}, expected=422)


async def test_a_worker_that_dies_loses_nothing_and_says_nothing_twice(
    push: Service, stream: Readings
) -> None:
    stream.add(10)
    name = await made(push, stream)
    dead = await take_so_many(push, name, 4, hold_s=3)
    alive = await take_so_many(push, name, 6)
    assert not set(numbers(dead)) & set(numbers(alive))
    assert (await ask(push, "POST", f"{name}/ack", {"done": tokens(alive)}))["done"] == 6
    assert await take(push, name, wait_s=0) == []  # the control: they are held still
    again = await take_so_many(push, name, 4, wait_s=10)
    assert sorted(numbers(again)) == sorted(numbers(dead))
    assert {one["count"] for one in again} == {2}
    late = await ask(push, "POST", f"{name}/ack", {"done": tokens(dead)[:1]})
    assert late["done"] == 1  # it was slow and not dead: its work counts
    assert (await ask(push, "POST", f"{name}/ack", {"done": tokens(again)}))["done"] == 3
    assert (await ask(push, "GET", name))["events"] == 10


@pytest.mark.long
async def test_what_is_given_back_is_anothers_at_once_or_later(
    push: Service, stream: Readings
) -> None:
    stream.add(2)
    name = await made(push, stream)
    one, two = await take_so_many(push, name, 2)
    body = {"release": [one["token"]]}
    assert (await ask(push, "POST", f"{name}/ack", body))["released"] == 1
    (again,) = await take(push, name, max=2)
    assert (again["event"], again["count"]) == (one["event"], 2)
    assert (await ask(push, "POST", f"{name}/ack", body))["released"] == 0  # no longer its own
    await ask(push, "POST", f"{name}/ack", {"release": [two["token"]], "after_s": 1})
    assert await take(push, name, max=2, wait_s=0) == []
    assert numbers(await take(push, name, max=2)) == [two["event"]["n"]]


async def test_a_kill_keeps_what_is_done_what_is_held_and_the_counts(
    push: Service, stream: Readings
) -> None:
    stream.add(20)
    name = await made(push, stream)
    first = await take_so_many(push, name, 8, hold_s=3600)
    short = await take_so_many(push, name, 4, hold_s=5)
    await ask(push, "POST", f"{name}/ack", {"done": tokens(first)[2:6]})
    push.process.kill()
    await back(push)
    rest = await take(push, name, max=100, hold_s=3600)
    kept = set(numbers(first)) | set(numbers(short))
    assert not kept & set(numbers(rest)) or set(numbers(rest)) & kept <= set(numbers(short))
    assert (await ask(push, "POST", f"{name}/ack", {"done": tokens(first)}))["done"] == 4
    found = rest
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < 12:
            found = found + await take(push, name, max=100, wait_s=5, hold_s=3600)
    assert sorted(numbers(found)) == sorted(set(range(1, 21)) - set(numbers(first)))
    assert {one["event"]["n"] for one in found if one["count"] == 2} == {
        one["event"]["n"] for one in short
    }
    await ask(push, "POST", f"{name}/ack", {"done": tokens(found)})
    assert (await ask(push, "GET", name))["events"] == 20


@pytest.mark.long
async def test_who_hangs_up_while_it_waits_is_given_nothing(
    push: Service, stream: Readings
) -> None:
    name = await made(push, stream)
    async with httpx.AsyncClient(base_url=push.url) as client:
        with pytest.raises(httpx.TimeoutException):
            await client.post(f"/v1/groups/{name}/take", json={"wait_s": 15}, timeout=2)
    async with asyncio.timeout(PATIENCE_S):
        while (await ask(push, "GET", name))["waiting"]:
            await asyncio.sleep(0.05)
    stream.add(1)
    assert [one["count"] for one in await take(push, name)] == [1]


async def test_what_cannot_be_is_refused(push: Service, stream: Readings) -> None:
    name = await made(push, stream)
    same = {"streams": [stream.stream], "from": "latest"}
    assert (await ask(push, "PUT", name, same))["name"] == name
    other = await ask(push, "PUT", name, same | {"where": "n > 1"}, expected=409)
    assert other["type"].endswith("group_differs")
    await ask(push, "PUT", f"{name}x", {"streams": ["no_such_one"]}, expected=422)
    await ask(push, "POST", f"{name}x/take", {}, expected=404)
    await ask(push, "POST", f"{name}/take", {"max": 101}, expected=422)
    found = await ask(push, "POST", f"{name}/ack", {"done": ["x", "0.0.1.0.1"]})
    assert found["done"] == 0
    await ask(push, "DELETE", name, expected=204)
    await ask(push, "GET", name, expected=404)


def program(name: str) -> str:
    """A block of code of the page that begins with its name."""
    pattern = rf"```\w+\n((?:#|//) {re.escape(name)}\n.*?)```"
    (block,) = re.findall(pattern, DOC.read_text(), re.DOTALL)
    return block


@pytest.mark.parametrize(
    "name",
    ["work.py", *(pytest.param(f"work.{kind}", marks=pytest.mark.long) for kind in ("mjs", "sh"))],
)
async def test_the_programs_of_the_page_share_a_stream(
    push: Service, stream: Readings, tmp_path: Path, name: str
) -> None:
    stream.add(20)
    group = await made(push, stream)
    code = program(name).replace("http://127.0.0.1:8703", push.url)
    code = code.replace("vehicle_position", stream.stream).replace("bookings", group)
    file = tmp_path / name
    file.write_text(code)
    words = {"py": [sys.executable], "mjs": ["node"], "sh": ["sh"]}[name.partition(".")[2]]
    if name == "work.sh":
        done = await asyncio.to_thread(
            subprocess.run, [*words, str(file)], cwd=tmp_path, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert '"count":1' in done.stdout
        assert (await ask(push, "GET", group))["events"] == 1
        return
    outputs = [tmp_path / f"{n}.txt" for n in range(2)]
    running = []
    for output in outputs:
        with output.open("w") as out:
            running.append(subprocess.Popen([*words, str(file)], stdout=out, env=dict(os.environ)))

    def lines() -> list[str]:
        return [line for out in outputs for line in out.read_text().splitlines()]

    try:
        await asyncio.to_thread(wait_until, lambda: len(lines()) == 20, "twenty are done")
    finally:
        for one in running:
            one.kill()
            one.wait()
    found = [float(re.findall(r"['\"]n['\"]: ?([\d.]+)", line)[0]) for line in lines()]
    assert sorted(found) == [float(n) for n in range(1, 21)]


async def test_a_group_that_nobody_asks_for_is_forgotten_after_a_month() -> None:
    clock, rows = ManualClock(), MemoryRows()
    groups = Groups(
        None,  # type: ignore[arg-type]  # nothing is read
        clock,
        random_bytes=random_bytes,
        client_share=1,
    )
    later = {"ab": clock.now_ms(), "cd": clock.now_ms() + round(2 * SWEEP_S * 1000)}
    for id_, used_at in later.items():
        group = Group(
            id=id_, owner="o", name=id_, streams=("s",), cursor="c", created_at=0, used_at=used_at
        )
        rows.kept[group.key] = encode(group)
    groups.partition_owned(0, dict(rows.kept), rows)
    running = asyncio.create_task(groups.run())
    try:
        await has_slept(clock)
        clock.advance(KEPT_S)
        await has_slept(clock)
        assert len(rows.kept) == 2, "on its last day"
        clock.advance(SWEEP_S)
        await has_slept(clock)
        assert list(rows.kept) == ["group|cd"]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
