"""What is refused because it would cost too much, by a real proxy: the filter, one filter too many,
one lease too many.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.push.app import SIGNATURE
from tests.push.service import Reader, Readings, Service, readings, serving
from tests.services import PATIENCE_S, STAYS, Kafka, run_kafka

SCANNED_MAX = 40
AT_ONCE = 50
"""More than the bound: the very first who ask, on streams that nobody followed before, are counted
together, too."""
LEASES_MAX = SCANNED_MAX + 2


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """One of our own: leases of other tests would count."""
    with run_kafka(tmp_path_factory.mktemp("limits-kafka"), *STAYS) as node:
        yield node


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("limits")


@pytest.fixture(scope="module")
def access(kafka: Kafka, directory: Path) -> Iterator[Service]:
    with serving("access", kafka.bootstrap, directory) as service:
        yield service


@pytest.fixture(scope="module")
def push(kafka: Kafka, directory: Path) -> Iterator[Service]:
    bounds = {"leases_max": LEASES_MAX, "scanned_filters_max": SCANNED_MAX, "address_share": 1}
    with serving(
        "push", kafka.bootstrap, directory, allow_hosts=["127.0.0.1"], **bounds
    ) as service:
        yield service


class Asking:
    """Asks for leases on one stream that wake nobody, and ends those that were granted."""

    def __init__(self, http: httpx.AsyncClient, client: Reader) -> None:
        self.http = http
        self._client = client
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self.granted: list[dict[str, Any]] = []

    async def ask(self, where: str) -> httpx.Response:
        subscription = {"streams": [self._client.stream], "where": where}
        body = {
            "subscription": subscription,
            "cursor": self._client.cursor,
            "endpoint": {"url": "http://127.0.0.1:9/hook"},
        }
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        async with self._at_once, asyncio.timeout(PATIENCE_S):
            while (
                answer := await self.http.post("/v1/leases", json=body, headers=headers)
            ).status_code == 503:
                print(f"asked again: {answer.text}")
                await asyncio.sleep(float(answer.headers.get("Retry-After", 1)))
        if answer.status_code == 201:
            self.granted.append(answer.json())
        return answer

    async def end(self, lease: dict[str, Any]) -> None:
        async with self._at_once:
            answer = await self.http.delete(
                f"/v1/leases/{lease['id']}", headers={"Authorization": f"Bearer {lease['token']}"}
            )
        assert answer.status_code == 204, answer.text


@pytest.fixture
def stream(kafka_config: KafkaConfig) -> Readings:
    return readings(kafka_config, f"limits_{uuid.uuid4().hex[:12]}")


@pytest.fixture
async def asking(access: Service, push: Service, stream: Readings) -> AsyncIterator[Asking]:
    client = Reader(access.url, stream.stream)
    await client.stand()
    async with httpx.AsyncClient(timeout=PATIENCE_S, base_url=push.url) as http:
        asking = Asking(http, client)
        yield asking
        await asyncio.gather(*map(asking.end, asking.granted))


NESTED = "n"
for _ in range(8):
    NESTED = f"({NESTED} IN (1, 2, 3, 4, 5))"
"""Each level evaluated once per item would cost five times the one below: a fifth of a second an
event."""
EVENTS = 2000


@pytest.mark.long
async def test_a_filter_that_costs_too_much_is_refused_and_one_that_only_looks_so_holds_nobody_up(
    asking: Asking, stream: Readings
) -> None:
    refused = await asking.ask(
        " OR ".join(f"street LIKE '%_a_b_c_d_e_f_g_h%{n}'" for n in range(5))
    )
    assert (refused.status_code, refused.json()["title"]) == (422, "filter"), refused.text
    assert "costs 13624 steps an event at worst, expected at most 10000" in refused.json()["detail"]
    granted = await asking.ask(f"{NESTED} IS NULL")
    assert granted.status_code == 201, granted.text
    stream.add(EVENTS, per_frame=10)
    headers = {"Authorization": f"Bearer {granted.json()['token']}"}
    async with asyncio.timeout(PATIENCE_S):
        while (await asking.http.get(f"/v1/leases/{granted.json()['id']}", headers=headers)).json()[
            "unseen_count"
        ] < EVENTS:
            await asyncio.sleep(0.05)


async def test_bounds_hold_for_who_asks_at_the_same_time_and_are_told(asking: Asking) -> None:
    scanned = await asyncio.gather(
        *(asking.ask(f"n > {1000 + k}") for k in range(SCANNED_MAX + AT_ONCE))
    )
    statuses = [answer.status_code for answer in scanned]
    assert (statuses.count(201), statuses.count(429)) == (SCANNED_MAX, AT_ONCE), (
        "asked for at the same time, they count all the same"
    )
    titles = {answer.json()["title"] for answer in scanned if answer.status_code == 429}
    assert titles <= {"too many filters", "too many leases"}, (
        "those that are being granted count as leases, too"
    )
    one_too_many = await asking.ask("n > 999")
    assert (one_too_many.status_code, one_too_many.json()["title"]) == (429, "too many filters")
    assert int(one_too_many.headers["Retry-After"]) > 0

    assert [(await asking.ask(f"device = 'd{k}'")).status_code for k in range(2)] == [201, 201], (
        "filters that an index finds are no burden"
    )
    full = await asking.ask("device = 'd3'")
    assert (full.status_code, full.json()["title"]) == (429, "too many leases")
    assert int(full.headers["Retry-After"]) > 0


@pytest.mark.long
async def test_pages_of_other_sites_may_ask_only_where_they_are_named(
    push: Service, kafka: Kafka, directory: Path
) -> None:
    site, other = "https://dash.example.org", "https://evil.example"
    asked = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type",
    }

    async def allowed(url: str, origin: str) -> tuple[int, str | None]:
        async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
            answer = await http.options(f"{url}/v1/leases", headers={"Origin": origin, **asked})
        return answer.status_code, answer.headers.get("access-control-allow-origin")

    assert (await allowed(push.url, site))[1] is None
    with serving(
        "push", kafka.bootstrap, directory, name="push-open", allow_origins=[site]
    ) as named:
        assert await allowed(named.url, site) == (200, site)
        assert await allowed(named.url, other) == (400, None)
        async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
            answer = await http.get(f"{named.url}/readyz", headers={"Origin": site})
        read = {one.strip() for one in answer.headers["access-control-expose-headers"].split(",")}
        assert read >= set(SIGNATURE), "or a page could not check a wake-up that it asked for"
