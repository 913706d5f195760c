"""A client reads, sleeps, is woken and goes on: access server, proxy, Kafka and receiver are real,
and the proxy is killed.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from confluent_kafka import TopicPartition

from edgewake.cloud.kafka import clients, metadata
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.offsets import watermarks
from edgewake.cloud.kafka.table_reader import TableReader
from edgewake.protocol import topics
from edgewake.protocol.leases import lease_record
from tests.push.receiver import receiving
from tests.push.service import Reader, Readings, Service, readings, serving
from tests.services import PATIENCE_S, Kafka, wait_until

DOC: Final = (Path(__file__).parents[2] / "docs" / "push.md").read_text()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("push")


@pytest.fixture(scope="module")
def access(kafka: Kafka, directory: Path) -> Iterator[Service]:
    with serving("access", kafka.bootstrap, directory) as service:
        yield service


@pytest.fixture(scope="module")
def proxy(kafka: Kafka, directory: Path) -> Iterator[Service]:
    with serving(
        "push", kafka.bootstrap, directory, allow_hosts=["127.0.0.1"], session_timeout_s=3
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
    return readings(kafka_config, f"push_{uuid.uuid4().hex[:12]}")


def lease_body(client: Reader, url: str, **more: Any) -> dict[str, Any]:
    subscription = {
        "streams": [client.stream],
        **({"where": more.pop("where")} if "where" in more else {}),
    }
    wake = {"min_interval_s": 0.5, **more.pop("wake", {})}
    return {
        "subscription": subscription,
        "cursor": client.cursor,
        "endpoint": {"url": url},
        "wake": wake,
        **more,
    }


async def sleep_with(push: Service, body: dict[str, Any]) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
        response = await client.post(f"{push.url}/v1/leases", json=body)
    assert response.status_code == 201, response.text
    return response.json()


async def answer_about(push: Service, lease: dict[str, Any], method: str = "GET") -> httpx.Response:
    """What the proxy says of the lease, once it has its partition.

    A proxy that was just started does not have all leases yet, and says 503 of those.
    """
    headers = {"Authorization": f"Bearer {lease['token']}"}
    async with asyncio.timeout(PATIENCE_S), httpx.AsyncClient(timeout=PATIENCE_S) as client:
        while True:
            url = f"{push.url}/v1/leases/{lease['id']}"
            answer = await client.request(method, url, headers=headers)
            if answer.status_code != 503:
                return answer
            await asyncio.sleep(0.05)


async def seen(
    push: Service, lease: dict[str, Any], is_so: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Wait until the lease looks so; how it looks."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found: dict[str, Any] = (await answer_about(push, lease)).json()
            if is_so(found):
                return found
            await asyncio.sleep(0.05)


async def wake_up(push: Service, lease: dict[str, Any]) -> None:
    response = await answer_about(push, lease, "DELETE")
    assert response.status_code == 204, response.text


async def test_a_client_that_slept_is_woken_and_sees_every_event_once(
    access: Service, push: Service, stream: Readings
) -> None:
    client = Reader(access.url, stream.stream)
    stream.add(5)
    await client.read(until=5, start="earliest")
    async with receiving() as receiver:
        lease = await sleep_with(push, lease_body(client, receiver.url))
        assert receiver.connections == 0
        stream.add(3)
        (call, *_) = await receiver.got(1)
        body = call.verified(lease["secret"])
        assert (body["lease"], body["cursor"], body["streams"]) == (
            lease["id"],
            client.cursor,
            [stream.stream],
        )
        assert 1 <= body["count"] <= 3
        await wake_up(push, lease)
    stream.add(2)
    await client.read(until=10)
    assert (sorted(client.seen), client.gaps) == (list(range(1, 11)), [])


async def test_the_program_of_the_page_is_woken_reads_and_sleeps_again(
    access: Service, push: Service, stream: Readings, tmp_path: Path
) -> None:
    """It is stopped, too, and goes on with the same lease."""
    text = DOC.partition("```python\n# woken.py\n")[2].partition("```")[0]
    for written, meant in (
        ("http://127.0.0.1:8700", access.url),
        ("http://127.0.0.1:8703", push.url),
        ("vehicle_position", stream.stream),
        ("min_events=10, max_wait_s=60", "min_events=2, min_interval_s=0"),
    ):
        assert written in text
        text = text.replace(written, meant)
    (tmp_path / "woken.py").write_text(text)
    await Reader(access.url, stream.stream).stand()  # a new stream is heard of soon
    leases: set[str] = set()

    def state() -> dict[str, Any]:
        path = tmp_path / "lease.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def shown() -> list[int]:
        found = re.findall(r"'n': ([\d.]+)", (tmp_path / "out").read_text())
        return [int(float(n)) for n in found]

    def sleeps_behind(count: int) -> bool:
        place = tmp_path / "cursor.txt"
        is_told = place.exists() and state().get("cursor") == place.read_text()
        return is_told and len(shown()) >= count

    for run in range(2):
        with (tmp_path / "out").open("a") as out, (tmp_path / "err").open("a") as errors:
            program = await asyncio.create_subprocess_exec(
                sys.executable, "woken.py", cwd=tmp_path, stdout=out, stderr=errors
            )
            try:
                async with asyncio.timeout(PATIENCE_S):
                    for count in (4 * run, 4 * run + 2, 4 * run + 4):
                        while not sleeps_behind(count):
                            assert program.returncode is None, (tmp_path / "err").read_text()
                            await asyncio.sleep(0.05)
                        if count < 4 * run + 4:
                            stream.add(2)
                leases.add(state()["id"])
            finally:
                program.kill()
                await program.wait()
    assert sorted(shown()) == [*range(1, 9)], "each once"
    assert len(leases) == 1


COMMAND: Final = re.search(r"^edgewake (sleep .*)$", DOC, re.MULTILINE)
EDGEWAKE: Final = (sys.executable, "-m", "edgewake.deploy.cli")


async def slept(directory: Path, words: list[str], *servers: Service) -> asyncio.subprocess.Process:
    """`edgewake sleep`, begun; its output is added to files."""
    options = [
        word
        for name, server in zip(("--server", "--proxy"), servers, strict=False)
        for word in (name, server.url)
    ]
    with (directory / "out").open("a") as out, (directory / "err").open("a") as errors:
        return await asyncio.create_subprocess_exec(
            *EDGEWAKE, *words, *options, cwd=directory, stdout=out, stderr=errors
        )


@pytest.mark.long
async def test_the_command_of_the_page_reads_sleeps_and_goes_on_with_the_same_lease(
    access: Service, push: Service, stream: Readings, tmp_path: Path
) -> None:
    """It is stopped, too."""
    assert COMMAND is not None
    text = COMMAND[1].replace("vehicle_position", stream.stream)
    words = text.replace("--min-events 10 --max-wait 60", "--min-events 2 --min-interval 0").split()
    await Reader(access.url, stream.stream).stand()  # a new stream is heard of soon
    kept, leases = tmp_path / "place.txt.lease", set()

    def shown() -> list[int]:
        lines = (tmp_path / "out").read_text().splitlines()
        return [int(json.loads(line)["n"]) for line in lines]

    def sleeps_behind(count: int) -> bool:
        place = tmp_path / "place.txt"
        found = json.loads(kept.read_bytes() or b"{}") if kept.exists() else {}
        is_told = place.exists() and found.get("cursor") == place.read_text().strip()
        return is_told and len(shown()) >= count

    for run in range(2):
        running = await slept(tmp_path, words, access, push)
        try:
            async with asyncio.timeout(PATIENCE_S):
                for count in (4 * run, 4 * run + 2, 4 * run + 4):
                    while not sleeps_behind(count):
                        assert running.returncode is None, (tmp_path / "err").read_text()
                        await asyncio.sleep(0.05)
                    if count < 4 * run + 4:
                        stream.add(2)
            leases.add(json.loads(kept.read_text())["id"])
            running.terminate()
            assert await running.wait() == 0
        finally:
            if running.returncode is None:
                running.kill()
    assert sorted(shown()) == [*range(1, 9)], "each once"
    assert len(leases) == 1
    said = (tmp_path / "err").read_text()
    assert "edgewake sleep: asleep" in said
    assert "edgewake sleep: woken: 2 events wait" in said
    assert "Traceback" not in said


def leases_of(push: Service) -> float:
    found = re.search(
        r"^edgewake_push_leases (\S+)", httpx.get(f"{push.url}/metrics").text, re.MULTILINE
    )
    assert found is not None
    return float(found[1])


@pytest.mark.long
async def test_the_command_ends_once_something_was_read_and_leaves_no_lease_then(
    access: Service, push: Service, stream: Readings, tmp_path: Path
) -> None:
    await Reader(access.url, stream.stream).stand()
    before = leases_of(push)
    running = await slept(tmp_path, ["sleep", stream.stream, "--once"], access, push)
    async with asyncio.timeout(PATIENCE_S):
        while leases_of(push) == before:
            await asyncio.sleep(0.05)
        stream.add(1)
        assert await running.wait() == 0
        assert json.loads((tmp_path / "out").read_text())["n"] == 1
        absent = await slept(tmp_path, ["sleep", f"{stream.stream}x"], access, push)
        assert await absent.wait() == 1
    assert "edgewake sleep: no stream or query is named" in (tmp_path / "err").read_text()
    assert leases_of(push) == before


async def test_a_proxy_that_is_killed_while_a_client_sleeps_wakes_it_after_its_restart(
    access: Service, push: Service, stream: Readings
) -> None:
    client = Reader(access.url, stream.stream)
    stream.add(2)
    await client.read(until=2, start="earliest")
    async with receiving() as receiver:
        lease = await sleep_with(push, lease_body(client, receiver.url))
        push.process.kill()
        stream.add(4)
        push.restart()
        (call, *_) = await receiver.got(1)
        assert call.verified(lease["secret"])["count"] == 4
        await wake_up(push, lease)
    await client.read(until=6)
    assert (sorted(client.seen), client.gaps) == (list(range(1, 7)), [])


@pytest.mark.long
async def test_a_proxy_that_is_killed_during_its_call_repeats_it_with_the_same_id_and_body(
    access: Service, push: Service, stream: Readings
) -> None:
    client = Reader(access.url, stream.stream)
    await client.stand()
    async with receiving() as receiver:
        receiver.answer = lambda n: None if n == 0 else (204, {})
        lease = await sleep_with(push, lease_body(client, receiver.url))
        stream.add(1)
        await receiver.got(1)
        push.process.kill()
        stream.add(3)
        push.restart()
        first, again = await receiver.got(2)
        assert (again.id, again.body) == (first.id, first.body)
        assert again.verified(lease["secret"])["count"] == 1
        await seen(
            push, lease, lambda found: found["state"] == "notified" and found["unseen_count"] == 4
        )
        assert len(receiver.calls) == 2  # the client was woken once for all of it
        await wake_up(push, lease)


@pytest.mark.long
async def test_without_the_durable_lease_nobody_is_woken_after_the_kill(
    access: Service, push: Service, stream: Readings, kafka_config: KafkaConfig
) -> None:
    """The control: the same story with the lease taken out of Kafka must fail, else the test above
    proves nothing.
    """
    client = Reader(access.url, stream.stream)
    await client.stand()
    async with receiving() as receiver:
        lease = await sleep_with(push, lease_body(client, receiver.url))
        other = await sleep_with(push, lease_body(client, receiver.url))
        push.process.kill()
        producer = clients.producer(kafka_config, "control")
        producer.produce(
            topics.LEASES,
            key=lease["id"],
            value=None,
            partition=lease_record.partition_of(lease["id"]),
        )
        assert producer.flush(10) == 0
        stream.add(4)
        push.restart()
        await seen(push, other, lambda found: found["state"] == "notified")
        assert {call.verified(other["secret"])["lease"] for call in receiver.calls} == {other["id"]}
        assert (await answer_about(push, lease)).status_code == 404
        await wake_up(push, other)


@pytest.mark.long
async def test_a_second_proxy_takes_over_from_one_that_is_killed(
    access: Service, push: Service, stream: Readings, kafka: Kafka, directory: Path
) -> None:
    client = Reader(access.url, stream.stream)
    await client.stand()
    async with receiving() as receiver:
        lease = await sleep_with(push, lease_body(client, receiver.url))
        other = directory / "second"
        other.mkdir(exist_ok=True)
        (other / "cursor.keys").write_text((directory / "cursor.keys").read_text())
        push.process.kill()
        with serving(
            "push", kafka.bootstrap, other, allow_hosts=["127.0.0.1"], session_timeout_s=3
        ) as second:
            stream.add(2)
            (call, *_) = await receiver.got(1)
            assert call.verified(lease["secret"])["lease"] == lease["id"]
            await seen(second, lease, lambda found: found["unseen_count"] == 2)
            await wake_up(second, lease)


async def test_a_client_that_reads_a_page_with_its_lease_and_sleeps_at_once_is_woken(
    access: Service, push: Service, stream: Readings
) -> None:
    """The news that it reads comes by Kafka, when it sleeps already, and was believed."""
    client = Reader(access.url, stream.stream)
    await client.stand()
    async with receiving() as receiver, httpx.AsyncClient(timeout=PATIENCE_S) as http:
        lease = await sleep_with(push, lease_body(client, receiver.url))
        stream.add(1)
        await receiver.got(1)
        page = await http.get(
            f"{access.url}/v1/streams/{stream.stream}/events",
            params={"after": client.cursor, "wait": 60},
            headers={"Edgewake-Lease": f"{lease['id']}.{lease['token']}"},
        )
        cursor = page.json()["cursor"]
        changed = await http.patch(
            f"{push.url}/v1/leases/{lease['id']}",
            json={"cursor": cursor},
            headers={"Authorization": f"Bearer {lease['token']}"},
        )
        assert changed.status_code == 200, changed.text
        stream.add(1)
        calls = await receiver.got(2)
        body = calls[1].verified(lease["secret"])
        assert (body["cursor"], body["count"]) == (cursor, 1)
        await wake_up(push, lease)


@pytest.mark.long
async def test_a_client_that_reads_with_its_lease_is_not_woken_meanwhile(
    access: Service, push: Service, stream: Readings
) -> None:
    client = Reader(access.url, stream.stream)
    await client.stand()
    async with receiving() as receiver:
        lease = await sleep_with(push, lease_body(client, receiver.url))
        stream.add(1)
        await receiver.got(1)
        await seen(push, lease, lambda found: found["state"] == "notified")
        client.lease = f"{lease['id']}.{lease['token']}"
        before = client.cursor
        async with client.reading():
            found = await seen(push, lease, lambda found: found["state"] == "paused")
            assert (found["cursor"], found["unanswered"], found["unseen_count"]) == (before, 0, 0)
            stream.add(4)
        async with httpx.AsyncClient(
            timeout=PATIENCE_S, headers={"Authorization": f"Bearer {lease['token']}"}
        ) as http:
            answer = await http.patch(
                f"{push.url}/v1/leases/{lease['id']}", json={"cursor": before}
            )
        assert (answer.status_code, answer.json()["state"]) == (200, "waiting")
        assert (await receiver.got(2))[1].verified(lease["secret"])["again"] == 0
        await wake_up(push, lease)


async def test_a_request_repeated_with_its_key_makes_one_lease(
    access: Service, push: Service, stream: Readings
) -> None:
    client = Reader(access.url, stream.stream)
    await client.stand()
    body, key = lease_body(client, "http://127.0.0.1:9/hook"), {"Idempotency-Key": uuid.uuid4().hex}
    async with httpx.AsyncClient(timeout=PATIENCE_S, base_url=push.url) as http:
        first, again = [await http.post("/v1/leases", json=body, headers=key) for _ in range(2)]
        assert (first.status_code, again.status_code) == (201, 200)
        assert [
            (one.json()["id"], one.json()["token"], one.json()["secret"]) for one in (first, again)
        ] == [(first.json()["id"], first.json()["token"], first.json()["secret"])] * 2
        other = await http.post("/v1/leases", json=body | {"ttl_s": 100}, headers=key)
        assert (other.status_code, other.json()["title"]) == (409, "idempotency key")
        assert (
            await http.post("/v1/leases", json=body, headers={"Idempotency-Key": "short"})
        ).status_code == 422
        await wake_up(push, first.json())


async def test_only_events_that_the_filter_wants_wake(
    access: Service, push: Service, stream: Readings
) -> None:
    client = Reader(access.url, stream.stream)
    async with (
        httpx.AsyncClient(timeout=PATIENCE_S) as http,
        http.stream(
            "GET", f"{access.url}/v1/streams/{stream.stream}/events", params={"where": "n > 3"}
        ) as response,
    ):
        async for line in response.aiter_lines():
            if line.startswith("id: "):
                client.cursor = line.removeprefix("id: ")
                break
    async with receiving() as receiver:
        lease = await sleep_with(push, lease_body(client, receiver.url, where="n > 3"))
        stream.add(3)
        await asyncio.sleep(0.5)  # not a wait for something: nothing may come
        assert receiver.connections == 0
        stream.add(2)
        calls = await receiver.got(1)
        assert calls[0].verified(lease["secret"])["events"][0]["n"] > 3
        await wake_up(push, lease)


async def test_a_client_far_behind_is_told_how_much_waits(
    access: Service, push: Service, stream: Readings
) -> None:
    client = Reader(access.url, stream.stream)
    await client.stand()
    stream.add(6000, per_frame=10)
    async with receiving() as receiver:
        lease = await sleep_with(push, lease_body(client, receiver.url))
        (call, *_) = await receiver.got(1)
        body = call.verified(lease["secret"])
        assert (body["count"], body["capped"]) == (6000, False)
        assert len(call.body) <= 3072
        await wake_up(push, lease)


@pytest.mark.long
async def test_a_range_that_is_gone_is_told_by_the_wake_up(
    access: Service, push: Service, stream: Readings, kafka_config: KafkaConfig
) -> None:
    client = Reader(access.url, stream.stream)
    await client.stand()
    stream.add(30)
    _delete_before_end(kafka_config, topics.stream_topic(stream.stream))
    async with receiving() as receiver:
        lease = await sleep_with(push, lease_body(client, receiver.url, wake={"min_events": 100}))
        (call, *_) = await receiver.got(1)
        assert call.verified(lease["secret"])["gap"] is True
        await wake_up(push, lease)


def _delete_before_end(config: KafkaConfig, topic: str) -> None:
    admin = clients.admin(config)
    reader = clients.consumer(config, "test-delete")
    try:
        places = [TopicPartition(topic, p) for p in range(metadata.partition_count(admin, topic))]
        for place in places:
            place.offset = watermarks(reader, topic, place.partition)[1]
    finally:
        reader.close()
    for future in admin.delete_records(places).values():
        future.result()


# What is refused


@pytest.mark.parametrize(
    ("change", "title"),
    [
        ({"cursor": "garbage"}, "cursor garbage"),
        ({"cursor": "v9." + "A" * 80}, "cursor unverifiable"),
        ({"cursor": "v1." + "A" * 80}, "cursor unverifiable"),
        ({"endpoint": {"url": "http://10.0.0.1/hook"}}, "endpoint refused"),
        ({"endpoint": {"url": "https://169.254.169.254/latest"}}, "endpoint refused"),
        ({"endpoint": {"url": "https://user:pw@example.com/"}}, "endpoint refused"),
        ({"endpoint": {"url": "http://127.0.0.1:9/x", "secret": "whsec_short"}}, "secret"),
        ({"ttl_s": 1}, "invalid"),
        ({"wake": {"min_events": 0}}, "invalid"),
        ({"more": 1}, "invalid"),
        ({"subscription": {"streams": []}}, "invalid"),
        ({"subscription": {"streams": ["no_such_stream_at_all"]}}, "unknown stream"),
        ({"where": "n >"}, "filter"),
    ],
)
async def test_what_cannot_be_granted_is_refused_with_its_reason(
    access: Service, push: Service, stream: Readings, change: dict[str, Any], title: str
) -> None:
    client = Reader(access.url, stream.stream)
    await client.stand()
    body = lease_body(client, "http://127.0.0.1:9/hook")
    if "where" in change:
        body["subscription"]["where"] = change["where"]
    else:
        body |= change
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
        response = await http.post(f"{push.url}/v1/leases", json=body)
    assert (response.status_code, response.headers["content-type"]) == (
        422,
        "application/problem+json",
    ), response.text
    assert response.json()["title"] == title, response.text


async def test_a_cursor_fits_its_own_streams_with_any_filter(
    access: Service, push: Service, stream: Readings, kafka_config: KafkaConfig
) -> None:
    client = Reader(access.url, stream.stream)
    await client.stand()
    other = readings(kafka_config, f"{stream.stream}_other")
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
        body = lease_body(client, "http://127.0.0.1:9/hook", where="n > 3")
        assert (await http.post(f"{push.url}/v1/leases", json=body)).status_code == 201
        refused = await http.post(
            f"{push.url}/v1/leases", json=body | {"subscription": {"streams": [other.stream]}}
        )
    assert (refused.status_code, refused.json()["title"]) == (422, "cursor subscription")


async def test_a_lease_is_looked_at_and_ended_with_its_token_only(
    access: Service, push: Service, stream: Readings, kafka_config: KafkaConfig
) -> None:
    client = Reader(access.url, stream.stream)
    await client.stand()
    lease = await sleep_with(push, lease_body(client, "http://127.0.0.1:9/hook"))
    address = f"{push.url}/v1/leases/{lease['id']}"
    assert httpx.get(address).status_code == 401
    assert httpx.get(address, headers={"Authorization": "Bearer wrong"}).status_code == 404
    found = httpx.get(address, headers={"Authorization": f"Bearer {lease['token']}"}).json()
    assert "secret" not in found
    assert "token" not in found
    assert found["cursor"] == client.cursor
    stored = _stored(kafka_config, lease["id"])
    assert not any(
        secret.encode() in stored for secret in (lease["token"], lease["secret"], "/hook")
    )
    await wake_up(push, lease)
    assert (
        httpx.get(address, headers={"Authorization": f"Bearer {lease['token']}"}).status_code == 404
    )


def _stored(config: KafkaConfig, lease_id: str) -> bytes:
    """The lease's record in Kafka."""
    rows: dict[str, bytes | None] = {}
    partition = lease_record.partition_of(lease_id)
    table = TableReader(
        config, "test-leases", {topics.LEASES: rows.__setitem__}, partition=partition
    )
    try:
        table.read_all()
    finally:
        table.close()
    return rows[lease_id] or b""


async def test_metrics_and_health_are_there(push: Service) -> None:
    assert httpx.get(f"{push.url}/healthz").status_code == 200
    text = httpx.get(f"{push.url}/metrics").text
    for name in (
        "edgewake_push_leases",
        "edgewake_push_wakes_total",
        "edgewake_push_partitions 8.0",
    ):
        assert name in text


def test_a_stranger_s_host_name_is_refused(push: Service) -> None:
    assert httpx.get(f"{push.url}/healthz", headers={"Host": "evil.example"}).status_code == 421


def test_the_proxy_stops_when_asked(kafka: Kafka, tmp_path: Path) -> None:
    with serving("push", kafka.bootstrap, tmp_path) as service:
        assert service.process.stop() == 0
    wait_until(lambda: not service.process.is_running(), "it is gone")
