"""Two proxies share the leases; one is killed or frozen, and nobody is forgotten, woken twice for
one thing, or woken after the end.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks.webhooks import Webhook

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol.leases import lease_record
from tests.push.receiver import Receiver, receiving
from tests.push.service import Reader, Readings, Service, readings, serving
from tests.services import PATIENCE_S, Kafka, wait_until

LEASES = 24


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sharing")


@pytest.fixture(scope="module")
def access(kafka: Kafka, directory: Path) -> Iterator[Service]:
    with serving("access", kafka.bootstrap, directory) as service:
        yield service


@pytest.fixture(scope="module")
def both(kafka: Kafka, directory: Path) -> Iterator[tuple[Service, Service]]:
    common = {"allow_hosts": ["127.0.0.1"], "session_timeout_s": 3}
    with (
        serving("push", kafka.bootstrap, directory, name="push-a", **common) as one,
        serving("push", kafka.bootstrap, directory, name="push-b", **common) as two,
    ):
        yield one, two


@pytest.fixture
def proxies(both: tuple[Service, Service]) -> tuple[Service, Service]:
    """Two proxies, each with half of the partitions; started again where a test before killed
    one.
    """
    for proxy in both:
        if not proxy.process.is_running():
            proxy.restart()
    one, two = both
    wait_until(
        lambda: partitions(one) == partitions(two) == lease_record.PARTITIONS // 2, "each has half"
    )
    return both


@pytest.fixture
def stream(kafka_config: KafkaConfig) -> Readings:
    return readings(kafka_config, f"push_{uuid.uuid4().hex[:12]}")


def _knows_better(frozen: Service) -> bool:
    return not frozen.process.is_running() or "is another proxy's now" in frozen.process.output()


def partitions(push: Service) -> int:
    for line in httpx.get(f"{push.url}/metrics").text.splitlines():
        if line.startswith("edgewake_push_partitions "):
            return int(float(line.split()[1]))
    return 0


async def grant(push: Service, client: Reader, receiver: Receiver, **more: Any) -> dict[str, Any]:
    body = {
        "subscription": {"streams": [client.stream]},
        "cursor": client.cursor,
        "endpoint": {"url": receiver.url},
        **more,
    }
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
        answer = await http.post(
            f"{push.url}/v1/leases", json=body, headers={"Idempotency-Key": uuid.uuid4().hex}
        )
    assert answer.status_code == 201, answer.text
    return answer.json()


async def look(push: Service, lease: dict[str, Any]) -> httpx.Response:
    async with httpx.AsyncClient(
        timeout=PATIENCE_S, headers={"Authorization": f"Bearer {lease['token']}"}
    ) as http:
        return await http.get(f"{push.url}/v1/leases/{lease['id']}")


async def end(push: Service, lease: dict[str, Any]) -> None:
    async with httpx.AsyncClient(
        timeout=PATIENCE_S, headers={"Authorization": f"Bearer {lease['token']}"}
    ) as http:
        done = {204}
        for _ in range(60):
            answer = await http.delete(f"{push.url}/v1/leases/{lease['id']}")
            if answer.status_code != 503:
                break
            # The lease may have been ended, although who did so cannot say so any more.
            done.add(404)
            await asyncio.sleep(0.5)
    assert answer.status_code in done, answer.text


async def test_a_relay_is_asked_at_any_proxy(
    access: Service, proxies: tuple[Service, Service], stream: Readings
) -> None:
    """The one that does not have the lease waits at the one that has it."""
    stream.add(1)
    client = Reader(access.url, stream.stream)
    await client.read(until=1, start="earliest")
    body = {
        "subscription": {"streams": [client.stream]},
        "cursor": client.cursor,
        "endpoint": {"type": "relay"},
    }
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
        granted = await http.post(f"{proxies[0].url}/v1/leases", json=body)
        assert granted.status_code == 201, granted.text
        lease = granted.json()
        path, bearer = f"/v1/leases/{lease['id']}/wake", f"Bearer {lease['token']}"

        async def ask(proxy: Service, **query: float) -> httpx.Response:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    answer = await http.get(
                        proxy.url + path, params=query, headers={"Authorization": bearer}
                    )
                    if answer.status_code != 204 or not query:
                        return answer

        for proxy in proxies:
            assert (await ask(proxy)).status_code == 204
        waiting = [asyncio.create_task(ask(proxy, wait=5)) for proxy in proxies]
        stream.add(1)
        answers = await asyncio.gather(*waiting)
        for answer in answers:
            assert Webhook(lease["secret"]).verify(answer.content, dict(answer.headers))
        assert len({answer.headers["webhook-id"] for answer in answers}) == 1
        wrong = await http.get(proxies[1].url + path, headers={"Authorization": "Bearer x"})
        assert wrong.status_code == 404


@pytest.mark.long
async def test_any_proxy_answers_for_any_lease(
    access: Service, proxies: tuple[Service, Service], stream: Readings
) -> None:
    """Keys decide the partition, so of these leases about half belong to the proxy that was not
    asked.
    """
    one, two = proxies
    client = Reader(access.url, stream.stream)
    await client.stand()
    async with receiving() as receiver:
        leases = [await grant(one, client, receiver) for _ in range(8)]
        for lease in leases:
            answers = [await look(proxy, lease) for proxy in proxies]
            assert [answer.status_code for answer in answers] == [200, 200]
            assert answers[0].json() == answers[1].json()
            assert (await look(two, lease | {"token": "wrong"})).status_code == 404
        for lease in leases:
            await end(two, lease)


async def test_the_leases_of_a_proxy_that_is_killed_are_taken_over_and_each_is_woken_once(
    access: Service, proxies: tuple[Service, Service], stream: Readings
) -> None:
    one, two = proxies
    client = Reader(access.url, stream.stream)
    await client.stand()
    async with receiving() as receiver:
        leases = [await grant(one, client, receiver) for _ in range(LEASES)]
        two.process.kill()
        stream.add(1)
        await receiver.got(LEASES)
        wait_until(lambda: partitions(one) == lease_record.PARTITIONS, "the other one has all")
        woken = [
            call.verified(next(x["secret"] for x in leases if x["id"] in call.id))["lease"]
            for call in receiver.calls
        ]
        assert set(woken) == {lease["id"] for lease in leases}
        repeated = {
            call.id
            for call in receiver.calls
            if [other.id for other in receiver.calls].count(call.id) > 1
        }
        # A call whose acceptance was not stored any more comes again, with its id.
        assert len(woken) == LEASES + len(repeated)
        for lease in leases:
            await end(one, lease)


@pytest.mark.long
async def test_a_proxy_that_was_frozen_calls_for_no_lease_that_was_ended_meanwhile(
    access: Service, proxies: tuple[Service, Service], stream: Readings
) -> None:
    """It sleeps in the wait before a second try, and its lease is ended by its successor.

    The control: the same without an end.
    """
    one, two = proxies
    client = Reader(access.url, stream.stream)
    await client.stand()
    async with receiving() as receiver:
        # A second failure would put the third try off by half a minute.
        receiver.answer = lambda n: (503, {}) if n < LEASES else (204, {})
        leases = [await grant(one, client, receiver) for _ in range(LEASES)]
        stream.add(1)
        await receiver.got(LEASES)
        calls_before = len(receiver.calls)
        two.process.freeze()
        try:
            wait_until(lambda: partitions(one) == lease_record.PARTITIONS, "the other one has all")
            ended, kept = leases[: LEASES // 2], leases[LEASES // 2 :]
            for lease in ended:
                await end(one, lease)
            after_end = len(receiver.calls)
        finally:
            two.process.thaw()
        wait_until(
            lambda: (
                not two.process.is_running() or "is another proxy's now" in two.process.output()
            ),
            "it learns of it",
            timeout_s=PATIENCE_S,
        )
        async with asyncio.timeout(PATIENCE_S):
            for lease in kept:
                while (await look(one, lease)).json().get("state") != "notified":
                    await asyncio.sleep(0.1)
        late = [
            call.id
            for call in receiver.calls[after_end:]
            if any(lease["id"] in call.id for lease in ended)
        ]
        assert late == []
        # The control: the leases that were not ended were called on.
        assert len(receiver.calls) > calls_before
        for lease in kept:
            await end(one, lease)
