"""Every event, in order, from an exact cursor, by webhook: real proxies, Kafka and receivers; a
proxy is killed at the worst moments.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from standardwebhooks.webhooks import Webhook

from edgewake.cloud.calls.sealing import Endpoint, Sealer
from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.log.request import RequestError
from edgewake.cloud.push.deliveries.courier import Services
from edgewake.cloud.push.deliveries.deliveries import KEPT_S, SWEEP_S, Deliveries, owner_of
from edgewake.cloud.push.leases import lease_rights
from edgewake.cloud.push.leases.lease_writer import NotOwner
from edgewake.cloud.push.metrics import Metrics
from edgewake.cloud.push.proxy import Standby
from edgewake.cloud.rights.config import ANYBODY_CONFIG
from edgewake.cloud.rights.names import Names
from edgewake.cloud.rights.principal import Action, Grant, Principal, Proof
from edgewake.cloud.rights.rights import Rights
from edgewake.protocol import topics
from edgewake.protocol.leases.delivery import DeliveryRequest
from edgewake.protocol.leases.delivery_record import Delivery, DeliveryState, Letter, encode
from edgewake.protocol.leases.lease_record import partition_of
from edgewake.protocol.ops.named_set import NamedSet
from edgewake.protocol.ops.proof import Kind
from tests.push.builders import ManualClock, MemoryRows, has_slept, random_bytes, sealer
from tests.push.libraries.test_libraries import LANGUAGES, Call
from tests.push.receiver import Received, Receiver, receiving
from tests.push.service import Readings, Service, asked, back, readings, serving
from tests.services import PATIENCE_S, Kafka, wait_until

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("deliveries")


@pytest.fixture(scope="module")
def proxy(kafka: Kafka, directory: Path) -> Iterator[Service]:
    with serving(
        "push", kafka.bootstrap, directory, allow_hosts=["127.0.0.1"], session_timeout_s=3
    ) as service:
        yield service
        forget_all(_running(service))


@pytest.fixture
def push(proxy: Service) -> Service:
    """The proxy, started again where a test before killed it, without what tests before made."""
    forget_all(_running(proxy))
    return proxy


def _running(proxy: Service) -> Service:
    if not proxy.process.is_running():
        proxy.process._env = None
        proxy.restart()
    return proxy


def forget_all(push: Service) -> None:
    with httpx.Client(base_url=push.url, timeout=PATIENCE_S) as client:
        while (answer := client.get("/v1/deliveries")).status_code == 503:
            time.sleep(0.1)  # it is taking over
        for one in answer.raise_for_status().json()["deliveries"]:
            client.delete(f"/v1/deliveries/{one['name']}").raise_for_status()


@pytest.fixture
def stream(kafka_config: KafkaConfig) -> Readings:
    return readings(kafka_config, f"dlv_{uuid.uuid4().hex[:12]}")


def new_name() -> str:
    return f"d{uuid.uuid4().hex[:12]}"


async def ask(
    push: Service, method: str, path: str, body: object = None, *, expected: int = 200
) -> Any:
    return await asked(push, method, f"/v1/deliveries{path}", body, expected=expected)


async def made(push: Service, stream: Readings, url: str, **more: Any) -> tuple[str, str]:
    """A new delivery: its name and secret."""
    name = new_name()
    body = {"streams": [stream.stream], "url": url, "from": "earliest", "wait_s": 0.1, **more}
    async with asyncio.timeout(PATIENCE_S):
        while True:  # a new stream or set is heard of soon
            async with httpx.AsyncClient(base_url=push.url, timeout=PATIENCE_S) as client:
                answer = await client.put(f"/v1/deliveries/{name}", json=body)
            if answer.status_code == 201:
                return name, answer.json()["secret"]
            is_early = answer.status_code == 503 or "no set is named" in answer.text
            assert is_early or answer.json()["type"].endswith("unknown_stream"), answer.text
            await asyncio.sleep(0.1)


def numbers(calls: list[Received]) -> list[int]:
    return [
        int(event["n"])
        for call in calls
        for event in json.loads(call.body)["events"]
        if "n" in event
    ]


def once(calls: list[Received]) -> list[Received]:
    """As a receiver keeps them that drops what it had by `webhook-id`."""
    return list({call.id: call for call in calls}.values())


async def until(receiver: Receiver, count: int) -> list[int]:
    """Wait until so many different events came."""
    async with asyncio.timeout(PATIENCE_S):
        while len(set(numbers(receiver.calls))) < count:
            await asyncio.sleep(0.02)
    return numbers(receiver.calls)


def in_order(calls: list[Received]) -> bool:
    """Is the order that of each device?"""
    of: dict[str, list[int]] = {}
    for call in calls:
        for event in json.loads(call.body)["events"]:
            of.setdefault(event["device"], []).append(event["seq"])
    return all(found == sorted(found) for found in of.values())


async def test_a_delivery_keeps_to_its_pace_and_leaves_none_out(
    push: Service, stream: Readings
) -> None:
    stream.add(30)
    async with receiving() as receiver:
        name, _ = await made(push, stream, receiver.url, max_rate=10)
        began_s = time.monotonic()
        await until(receiver, 30)
        assert time.monotonic() - began_s > 1.5
        assert sorted(numbers(receiver.calls)) == list(range(1, 31))
        assert in_order(receiver.calls)
        assert max(len(json.loads(call.body)["events"]) for call in receiver.calls) <= 10
        assert (await ask(push, "GET", f"/{name}"))["max_rate"] == 10


async def test_every_event_comes_once_in_order_and_signed(push: Service, stream: Readings) -> None:
    stream.add(100)
    async with receiving() as receiver:
        name, secret = await made(push, stream, receiver.url, events_max=30)
        await until(receiver, 100)
        stream.add(100, per_frame=10)
        await until(receiver, 200)
        assert sorted(numbers(receiver.calls)) == list(range(1, 201))
        assert in_order(receiver.calls)
        for place, call in enumerate(receiver.calls, 1):
            body = call.verified(secret)
            told = (body["type"], body["delivery"], body["batch"])
            assert told == ("edgewake.events", name, place)
            assert len(body["events"]) <= 30
        async with asyncio.timeout(PATIENCE_S):
            while (view := await ask(push, "GET", f"/{name}"))["events"] < 200:
                await asyncio.sleep(0.05)
        assert view["state"] == "active"
        assert view["letters"] == view["failures"] == 0
        assert view["batches"] == len(receiver.calls)
        for name in ("JavaScript", "Java"):
            calls = [Call.of(call, secret) for call in receiver.calls]
            assert await asyncio.to_thread(LANGUAGES[name], calls) == [True] * len(calls), name
        # A cursor of a body is one for all: another delivery goes on behind it.
        body = json.loads(receiver.calls[-2].body)
        async with receiving() as other:
            await made(push, stream, other.url, **{"from": None, "after": body["cursor"]})
            rest = len(json.loads(receiver.calls[-1].body)["events"])
            await until(other, rest)
            assert numbers(other.calls) == numbers(receiver.calls[-1:])


async def test_a_filter_and_columns(push: Service, stream: Readings) -> None:
    stream.add(30)
    async with receiving() as receiver:
        await made(
            push, stream, receiver.url, where="n > 10 AND n <= 20", select="device, n * 2 AS n"
        )
        await until(receiver, 10)
        assert sorted(numbers(receiver.calls)) == [2 * n for n in range(11, 21)]
        event = json.loads(receiver.calls[0].body)["events"][0]
        assert set(event) == {"device", "n"}


@pytest.mark.parametrize(
    "point", ["deliveries.called", pytest.param("deliveries.begun", marks=pytest.mark.long)]
)
async def test_a_proxy_that_is_killed_loses_and_reorders_nothing(
    push: Service, stream: Readings, point: str
) -> None:
    """Killed when the endpoint has the batch and nobody wrote so; and before it was called."""
    stream.add(60)
    async with receiving() as receiver:
        # It waits: what is to be killed is the proxy that has this delivery in hand.
        receiver.answer = lambda n: (503, {})
        await made(push, stream, receiver.url, events_max=20)
        await receiver.got(1)
        push.process.kill()
        receiver.calls.clear()
        receiver.answer = lambda n: (204, {})
        push.process._env = {**os.environ, "EDGEWAKE_FAILPOINT": f"{point}:2"}
        push.process.start()
        await asyncio.to_thread(
            wait_until, lambda: not push.process.is_running(), "it dies", timeout_s=PATIENCE_S
        )
        before = list(receiver.calls)
        assert len(before) == (2 if point == "deliveries.called" else 1)
        push.process._env = None
        await back(push)
        await until(receiver, 60)
        again = receiver.calls[len(before)]
        raw, kept = numbers(receiver.calls), numbers(once(receiver.calls))
        assert sorted(kept) == list(range(1, 61))
        assert in_order(once(receiver.calls))
        if point == "deliveries.called":
            # The control: without the receiver's memory of ids the batch was there twice.
            assert len(raw) == 80
            assert again.id == before[-1].id
            assert sorted(numbers([again])) == sorted(numbers(before[-1:]))
        else:
            assert len(raw) == 60


def keep_set(config: KafkaConfig, name: str, members: tuple[str, ...] | None) -> None:
    """A named set as operations keep it; None: it is removed."""
    row = None
    if members is not None:
        found = NamedSet(name=name, members=members, version=1, changed_at=0, changed_by="a test")
        row = found.model_dump_json().encode()
    producer = clients.producer(config, "test-sets")
    producer.produce(topics.SETS, key=name, value=row)
    assert producer.flush(PATIENCE_S) == 0


ALL_DEVICES = ("dev-0", "dev-1", "dev-2")


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "before", "after"),
    [
        pytest.param(6, ("dev-1", "dev-2"), ALL_DEVICES, id="grown"),
        pytest.param(6, ("dev-1", "dev-2"), ("dev-1",), id="shrunk"),
        pytest.param(1500, ("dev-1",), ALL_DEVICES, id="grown beyond a batch"),
    ],
)
async def test_a_set_that_changes_while_the_proxy_is_dead_loses_no_event(
    push: Service,
    stream: Readings,
    kafka_config: KafkaConfig,
    count: int,
    before: tuple[str, ...],
    after: tuple[str, ...],
) -> None:
    """The endpoint has the batch in hand and nobody wrote so; then other events are of its range.

    The receiver drops what it had by `webhook-id`.
    """

    def wanted(devices: tuple[str, ...]) -> list[int]:
        return [n for n in range(1, count + 1) if f"dev-{n % 3}" in devices]

    named = f"set_{uuid.uuid4().hex[:12]}"
    keep_set(kafka_config, named, before)
    stream.add(count)
    async with receiving() as receiver:
        receiver.answer = lambda n: (503, {})
        await made(
            push, stream, receiver.url, where=f"device IN SET('{named}')", events_max=500, wait_s=2
        )
        await receiver.got(1)
        push.process.kill()
        receiver.calls.clear()
        receiver.answer = lambda n: (204, {})
        push.process._env = {**os.environ, "EDGEWAKE_FAILPOINT": "deliveries.called:1"}
        push.process.start()
        await asyncio.to_thread(
            wait_until, lambda: not push.process.is_running(), "it dies", timeout_s=PATIENCE_S
        )
        (first,) = receiver.calls
        assert sorted(numbers([first])) == wanted(before)
        keep_set(kafka_config, named, after)
        push.process._env = None
        await back(push)
        stream.add(3)  # behind all, so that it is seen when it has gone on
        last = max(n for n in range(count + 1, count + 4) if f"dev-{n % 3}" in after)
        async with asyncio.timeout(PATIENCE_S):
            while last not in numbers(receiver.calls):
                await asyncio.sleep(0.02)
        held: dict[str, list[int]] = {}
        for call in receiver.calls:
            found = sorted(numbers([call]))
            assert held.setdefault(call.id, found) == found, "an id names what it holds"
            assert len(found) <= 500
        kept = {n for found in held.values() for n in found}
        assert kept.issuperset(wanted(after))
        assert kept.issuperset(wanted(before))
    keep_set(kafka_config, named, None)


async def test_one_that_ended_is_forgotten_after_a_month_with_its_letters() -> None:
    clock, rows = ManualClock(), MemoryRows()
    sealed = sealer()
    deliveries = Deliveries(
        Services(
            None,  # type: ignore[arg-type]  # nothing is read
            None,  # type: ignore[arg-type]  # and nobody called
            sealed,
            Rights(ANYBODY_CONFIG, clock),
            clock,
            random.Random(1),
            Metrics(CollectorRegistry()),
            proof_s=1,
        ),
        random_bytes=random_bytes,
        client_share=1,
    )
    ended = [
        Delivery(
            id=id_,
            owner="o",
            name=id_,
            streams=("s",),
            cursor="c",
            endpoint_host="example.org",
            sealed=sealed.seal(id_, Endpoint("https://example.org", "whsec_x", "")),
            state=DeliveryState.ENDED,
            created_at=0,
            changed_at=clock.now_ms() + round(later_s * 1000),
        )
        for id_, later_s in (("ab", 0), ("cd", 2 * SWEEP_S))
    ]
    letter = Letter("ab", 1, "{}", "c", "refused", 0)
    rows.kept |= {row.key: encode(row) for row in ended} | {letter.key: encode(letter)}
    deliveries.partition_owned(0, dict(rows.kept), rows)
    running = asyncio.create_task(deliveries.run())
    try:
        await has_slept(clock)
        clock.advance(KEPT_S)
        await has_slept(clock)
        assert len(rows.kept) == 3, "on its last day"
        clock.advance(SWEEP_S)
        await has_slept(clock)
        assert list(rows.kept) == ["delivery|cd"]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.long
async def test_what_is_asked_for_once_more_keeps_its_batch_and_what_differs_does_not(
    push: Service, stream: Readings
) -> None:
    """A receiver drops what it had by `webhook-id`: the same id must be the same events, and other
    events must have another id.
    """
    stream.add(6)
    async with receiving() as receiver:
        receiver.answer = lambda n: (503, {})
        name, _ = await made(push, stream, receiver.url)
        body = {"streams": [stream.stream], "url": receiver.url, "wait_s": 0.1}

        async def more_calls(body: dict[str, Any] | None = None) -> list[Received]:
            """Of before and after it is asked for once more, and then called."""
            count = len(receiver.calls)
            if body is not None:
                await ask(push, "PUT", f"/{name}", body)
            await receiver.got(count + 1)
            return receiver.calls[count:]

        (first, *_) = await more_calls()
        (again, *_) = await more_calls(body)
        assert (again.id, again.body) == (first.id, first.body), "the same once more"
        (after, *_) = await more_calls(body | {"events_max": 3, "kind": "webhook"})
        assert (after.id, after.body) == (first.id, first.body), "and what changes no event"
        await ask(push, "PUT", f"/{name}", body | {"where": "n > 2"})
        async with asyncio.timeout(PATIENCE_S):
            while (other := receiver.calls[-1]).id == first.id:
                await asyncio.sleep(0.01)
        assert min(numbers([other])) > 2
        receiver.answer = lambda n: (204, {})
        await ask(push, "POST", f"/{name}/enable")
        async with asyncio.timeout(PATIENCE_S):
            while (view := await ask(push, "GET", f"/{name}"))["events"] < 5:
                await asyncio.sleep(0.1)
        taken = once(receiver.calls)
        assert (view["events"], view["failures"]) == (5, 0), "and that the filter changed"
        assert sorted(numbers([call for call in taken if call.id != first.id])) == [3, 4, 5, 6]


async def test_410_ends_it_and_its_owner_enables_it_where_it_stood(
    push: Service, stream: Readings
) -> None:
    stream.add(10)
    async with receiving() as receiver:
        receiver.answer = lambda n: (410, {})
        name, _ = await made(push, stream, receiver.url)
        await receiver.got(1)
        async with asyncio.timeout(PATIENCE_S):
            while (view := await ask(push, "GET", f"/{name}"))["state"] != "ended":
                await asyncio.sleep(0.05)
        assert "410" in view["why"]
        stream.add(10)
        receiver.answer = lambda n: (204, {})
        push.process.kill()
        await back(push)
        assert (await ask(push, "GET", f"/{name}"))["state"] == "ended"
        assert len(receiver.calls) == 1
        await ask(push, "POST", f"/{name}/enable")
        await until(receiver, 20)
        assert receiver.calls[1].id == receiver.calls[0].id
        assert sorted(numbers(receiver.calls[1:])) == list(range(1, 21))


@pytest.mark.parametrize("kind", ["webhook", "push_service"])
async def test_404_is_as_the_endpoints_kind_says(
    push: Service, stream: Readings, kind: str
) -> None:
    stream.add(3)
    async with receiving() as receiver:
        receiver.answer = lambda n: (404, {}) if n == 0 else (204, {})
        name, _ = await made(push, stream, receiver.url, kind=kind)
        await receiver.got(1 if kind == "push_service" else 2)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                view = await ask(push, "GET", f"/{name}")
                if view["state"] == "ended" or view["events"] == 3:
                    break
                await asyncio.sleep(0.05)
        assert view["state"] == ("ended" if kind == "push_service" else "active")


async def test_an_event_that_is_refused_is_a_letter_and_holds_up_no_other(
    push: Service, stream: Readings
) -> None:
    async with receiving() as receiver:

        def answer(n: int) -> tuple[int, dict[str, str]]:
            is_bad = 13 in numbers([receiver.calls[n]])
            return (422 if is_bad else 204, {})

        receiver.answer = answer
        stream.add(40)
        name, secret = await made(push, stream, receiver.url, events_max=40)
        async with asyncio.timeout(PATIENCE_S):
            while (view := await ask(push, "GET", f"/{name}"))["events"] < 39:
                await asyncio.sleep(0.05)
        assert view["letters"] == 1
        push.process.kill()
        await back(push)
        (letter,) = (await ask(push, "GET", f"/{name}/letters"))["letters"]
        assert letter["event"]["n"] == 13
        assert "422" in letter["error"]
        path = f"/{name}/letters/{letter['number']}"
        found = await ask(push, "POST", f"{path}/replay")
        assert found["taken"] is False
        assert (await ask(push, "GET", f"/{name}/letters"))["letters"][0]["tries"] == 1
        receiver.answer = lambda n: (204, {})
        assert (await ask(push, "POST", f"{path}/replay"))["taken"] is True
        # After the kill the last batch may come once more, also after the replay.
        replays = [call for call in receiver.calls if "replayed" in call.verified(secret)]
        assert [numbers([call]) for call in replays] == [[13], [13]]
        assert (await ask(push, "GET", f"/{name}/letters"))["letters"] == []
        await ask(push, "POST", f"{path}/replay", expected=404)


async def test_a_receiver_that_hangs_or_is_dead_keeps_no_other_waiting(
    push: Service, stream: Readings
) -> None:
    async with receiving() as hanging, receiving() as good:
        hanging.answer = lambda n: None
        await made(push, stream, hanging.url)
        await made(push, stream, "http://127.0.0.1:1/nobody")
        await made(push, stream, good.url)
        for number in range(1, 6):
            stream.add(20)
            await until(good, 20 * number)
        assert len(hanging.calls) == 1


async def test_two_secrets_sign_while_one_is_exchanged_and_headers_stay(
    push: Service, stream: Readings
) -> None:
    async with receiving() as receiver:
        name, old = await made(push, stream, receiver.url)
        new = (await ask(push, "POST", f"/{name}/secret", {"keep_old_s": 3600}))["secret"]
        again = {"streams": [stream.stream], "url": receiver.url}
        same = {"secret": new}
        until_ms = (await ask(push, "GET", f"/{name}"))["old_secret_until"]
        for method, path, body in (("POST", "/secret", same), ("PUT", "", again | same)):
            found = await ask(push, method, f"/{name}{path}", body)
            assert found["old_secret_until"] == until_ms, "said again it takes no other's place"
        stream.add(1)
        (call, *_) = await receiver.got(1)
        for secret in (old, new):
            Webhook(secret).verify(call.body, call.headers)
        own = {"headers": {"Authorization": "Bearer capability"}}
        for body in (again | own, again):  # left out they stay, and no answer shows them
            assert "capability" not in json.dumps(await ask(push, "PUT", f"/{name}", body))
        assert "capability" not in json.dumps(await ask(push, "GET", ""))
        newest = (await ask(push, "POST", f"/{name}/secret", {"keep_old_s": 0}))["secret"]
        assert await ask(push, "POST", f"/{name}/test") == {"taken": True, "error": None}
        call = receiver.calls[-1]
        assert call.headers["authorization"] == "Bearer capability"
        assert call.verified(newest)["type"] == "edgewake.test"
        for secret in (old, new):
            with pytest.raises(Exception, match="signature"):
                Webhook(secret).verify(call.body, call.headers)


async def test_what_cannot_be_delivered_is_refused(push: Service, stream: Readings) -> None:
    stream.add(1)
    async with receiving() as receiver:
        name, _ = await made(push, stream, receiver.url)
        good = {"streams": [stream.stream], "url": receiver.url}
        for wrong, code in (
            ({"url": "https://10.0.0.1/"}, "endpoint_refused"),
            ({"streams": ["no_such_stream_at_all"]}, "unknown_stream"),
            ({"where": "n >"}, "filter"),
            ({"after": "v2.x"}, "cursor_"),
            ({"from": "yesterday"}, "from"),
            ({"secret": "hunter2"}, "secret"),
            ({"headers": {"webhook-id": "x"}}, "endpoint_refused"),
        ):
            found = await ask(push, "PUT", f"/{name}", good | wrong, expected=422)
            assert found["type"].rpartition(":")[2].startswith(code), found
        await ask(push, "GET", f"/{new_name()}", expected=404)
        listed = (await ask(push, "GET", ""))["deliveries"]
        assert name in [one["name"] for one in listed]
        await ask(push, "DELETE", f"/{name}", expected=204)
        await ask(push, "GET", f"/{name}", expected=404)


@pytest.mark.long
async def test_of_two_proxies_one_delivers_and_the_other_goes_on_after_it_died(
    kafka: Kafka, directory: Path, push: Service, stream: Readings
) -> None:
    common = {"allow_hosts": ["127.0.0.1"], "session_timeout_s": 3}
    async with receiving() as receiver:
        name, _ = await made(push, stream, receiver.url, events_max=5)
        with serving("push", kafka.bootstrap, directory, name="push-other", **common) as second:
            stream.add(50)
            await until(receiver, 50)
            assert len(numbers(receiver.calls)) == 50
            for one in (push, second):  # either knows, whoever has it
                assert (await ask(one, "GET", f"/{name}"))["name"] == name
                async with httpx.AsyncClient(base_url=one.url) as client:
                    taken = await client.put(
                        f"/v1/deliveries/{name}",
                        json={"streams": [stream.stream], "url": receiver.url},
                        headers={"If-None-Match": "*"},
                    )
                assert taken.status_code == 412, "whichever is asked"
            push.process.kill()
            stream.add(50)
            await until(receiver, 100)
            assert sorted(numbers(once(receiver.calls))) == list(range(1, 101))
            assert in_order(once(receiver.calls))
            second.process.kill()


@pytest.mark.long
async def test_from_moves_no_delivery_that_is_there_and_after_does(
    push: Service, stream: Readings
) -> None:
    """A file is applied again, or a form is filled with a name that is taken."""
    stream.add(3)
    async with receiving() as receiver:
        name, _ = await made(push, stream, receiver.url)
        await until(receiver, 3)
        behind = json.loads(receiver.calls[0].body)["cursor"]
        receiver.answer = lambda n: (503, {})
        stream.add(3)
        await receiver.got(len(receiver.calls) + 1)
        body = {"streams": [stream.stream], "url": receiver.url, "wait_s": 0.1}
        await ask(push, "PUT", f"/{name}", body | {"from": "latest"})  # what waits is not passed by
        receiver.answer = lambda n: (204, {})
        await ask(push, "PUT", f"/{name}", body | {"from": "earliest"})  # nor what was, sent again
        await until(receiver, 6)
        stream.add(1)
        await until(receiver, 7)
        taken = once(receiver.calls)
        assert sorted(numbers(taken)) == list(range(1, 8))
        await ask(push, "PUT", f"/{name}", body | {"after": behind})
        async with asyncio.timeout(PATIENCE_S):
            while len(numbers(once(receiver.calls))) <= len(numbers(taken)):
                await asyncio.sleep(0.02)


@pytest.mark.long
async def test_one_that_must_be_new_changes_none(push: Service, stream: Readings) -> None:
    stream.add(1)
    async with receiving() as receiver, httpx.AsyncClient(base_url=push.url) as client:
        secret = f"whsec_{base64.b64encode(b'k' * 24).decode()}"
        name, _ = await made(push, stream, receiver.url, secret=secret)
        body = {"streams": [stream.stream], "url": receiver.url, "where": "n > 5"}

        async def put(name: str, tag: str = "*", **more: str) -> httpx.Response:
            headers = {"If-None-Match": tag}
            return await client.put(f"/v1/deliveries/{name}", json=body | more, headers=headers)

        for more in ({}, {"secret": secret.replace("a", "b", 1)}):
            refused = await put(name, **more)
            assert refused.status_code == 412, refused.text
            assert name in refused.json()["detail"]
        assert (await ask(push, "GET", f"/{name}"))["where"] is None
        again = await put(name, secret=secret)  # its answer was lost
        assert (again.status_code, again.json()["secret"]) == (200, None)
        assert (await put(new_name())).status_code == 201
        assert (await put(new_name(), tag='"1"')).status_code == 422


WIDE = Principal("anna", (Grant(frozenset(Action), Names.of(["s"])),), Proof(Kind.KEY, b"1"))


def ended_delivery(seals: Sealer) -> Delivery:
    """One of WIDE that ended."""
    return Delivery(
        id="ab",
        owner=owner_of(WIDE, ""),
        name="mine",
        streams=("s",),
        cursor="c",
        endpoint_host="127.0.0.1",
        sealed=seals.seal("ab", Endpoint("http://127.0.0.1", "whsec_x", "")),
        right=lease_rights.right_of(WIDE, ("s",), Action.READ),
        state=DeliveryState.ENDED,
        created_at=0,
        changed_at=0,
    )


def deliveries_of(looks: Any, seals: Sealer, clock: ManualClock) -> Deliveries:
    """A proxy's deliveries whose hub and caller are `looks`."""
    return Deliveries(
        Services(
            looks,
            looks,
            seals,
            Rights(ANYBODY_CONFIG, clock),
            clock,
            random.Random(1),
            Metrics(CollectorRegistry()),
            proof_s=1,
        ),
        random_bytes=random_bytes,
        client_share=1,
    )


async def test_a_letter_that_is_set_aside_while_others_ask_for_a_change_refuses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It went on while the change was looked at: the letter was shown to who may not see it."""
    rows, seals = MemoryRows(), sealer()
    narrow = replace(WIDE, grants=(replace(WIDE.grants[0], devices=Names.of(["car-7"])),))
    row = ended_delivery(seals)

    class Looks:
        """A hub and a caller that say yes, after the delivery went on meanwhile."""

        async def check(self, *_: object) -> str:
            (courier,) = deliveries._all()
            courier.letters[1] = Letter("ab", 1, '{"device":"car-8"}', "c", "refused", 0)
            return "127.0.0.1"

        check_filters = check

    deliveries = deliveries_of(Looks(), seals, ManualClock())
    deliveries.partition_owned(partition_of(row.owner), {row.key: encode(row)}, rows)
    (courier,) = deliveries._all()
    asked = DeliveryRequest.model_validate({"streams": ["s"], "url": "http://127.0.0.1"})

    async def begins(*_: object, **__: object) -> str:
        return "c"

    monkeypatch.setattr("edgewake.cloud.push.deliveries.deliveries.begin", begins)
    for change in (
        lambda: deliveries.enable("mine", narrow, ""),
        lambda: deliveries.put("mine", asked, narrow, ""),
    ):
        courier.letters.clear()
        with pytest.raises(RequestError, match="dead letters"):
            await change()
        assert courier.delivery == row
        assert not courier._is_stopping, "it goes on as it was"


async def test_a_delivery_whose_partition_moves_while_it_is_changed_is_delivered_here_no_more() -> (
    None
):
    seals = sealer()
    row = ended_delivery(seals)
    number = partition_of(row.owner)

    class Looks:
        """A hub that says yes."""

        async def check(self, *_: object) -> str:
            return "127.0.0.1"

        check_filters = check

    class MovedRows(MemoryRows):
        """Rows that go to another proxy at the first write."""

        async def put_row(self, key: str, value: bytes | None) -> None:
            deliveries.partition_lost(number)
            raise NotOwner("another has it")

    deliveries = deliveries_of(Looks(), seals, ManualClock())
    deliveries.partition_owned(number, {row.key: encode(row)}, MovedRows())
    (courier,) = deliveries._all()
    with pytest.raises(Standby):
        await deliveries.enable("mine", WIDE, "")
    assert courier._is_stopping
