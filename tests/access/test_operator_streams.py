"""What the operations API guards no other door shows: it is answered as what is not there, word for
word.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import httpx
import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.rights.principal import ANYBODY, OPERATOR_STREAMS, Action
from edgewake.protocol import names
from edgewake.protocol.downlink.downlink import ANSWERS, REQUESTS
from tests.access.world import Server, open_stream
from tests.feeds import Feed, eventually, unique
from tests.push.service import Service, serving
from tests.services import PATIENCE_S, Kafka

HIDDEN = sorted(OPERATOR_STREAMS)


def write_secret(config: KafkaConfig, name: str) -> None:
    feed = Feed(config, name=name)
    feed.send(fields={"output": ["secret"], "n": [1.0]})
    feed.close()


@pytest.fixture(scope="module", autouse=True)
def secrets(kafka: Kafka) -> None:
    """The hidden streams are there, with a reading each."""
    for name in HIDDEN:
        write_secret(KafkaConfig(bootstrap=kafka.bootstrap), name)


async def known(server: Server, feed: Feed) -> None:
    """The server has seen what was made after the hidden streams."""
    await eventually(
        lambda: feed.name in httpx.get(f"{server.url}/v1/streams", timeout=PATIENCE_S).text,
        "it is listed",
    )


def told(answer: httpx.Response, name: str) -> tuple[int, str, dict[str, str]]:
    """An answer without what differs between any two: the name, what is like it, and how long to
    wait.
    """
    headers = {
        key: value
        for key, value in answer.headers.items()
        if key not in ("date", "retry-after", "content-length")
    }
    text = re.sub(r'"near":\[[^]]*\]|; did you mean [^"?]*\?', "", answer.text).replace(
        name, "NAME"
    )
    return answer.status_code, text.replace(',"near"', ""), headers


@pytest.mark.parametrize(
    "name", [HIDDEN[0], *(pytest.param(one, marks=pytest.mark.long) for one in HIDDEN[1:])]
)
@pytest.mark.parametrize(
    "path",
    [
        "/v1/streams/{}/events?from=earliest",
        pytest.param("/v1/events?stream={}&from=earliest", marks=pytest.mark.long),
        "/v1/events?stream={}&stream={}x&from=earliest",
        "/v1/latest/{}",
    ],
)
async def test_every_door_answers_as_for_what_is_not_there(
    access_a: Server, feed: Feed, name: str, path: str
) -> None:
    await known(access_a, feed)
    absent = unique("no_such")
    async with httpx.AsyncClient(base_url=access_a.url, timeout=PATIENCE_S) as client:
        hidden, missing = (
            await client.get(path.replace("{}", name)),
            await client.get(path.replace("{}", absent)),
        )
        browser = await client.get(path.replace("{}", name), headers={"Sec-Fetch-Mode": "cors"})
    assert told(hidden, name)[0] == 404
    assert told(hidden, name) == told(missing, absent) == told(browser, name)


async def test_no_list_and_no_hint_names_them(access_a: Server, feed: Feed) -> None:
    await known(access_a, feed)
    listed = httpx.get(f"{access_a.url}/v1/streams", timeout=PATIENCE_S).json()["streams"]
    assert not OPERATOR_STREAMS & {row["name"] for row in listed}
    for name in HIDDEN:
        near = httpx.get(f"{access_a.url}/v1/streams/{name}x/events", timeout=PATIENCE_S).json()[
            "near"
        ]
        assert not OPERATOR_STREAMS & set(near)


async def test_one_of_them_among_others_is_not_there_either(access_a: Server, feed: Feed) -> None:
    """Also while the other stream is followed already, and with a cursor."""
    async with open_stream(access_a.url, feed.name) as stream:
        cursor = await stream.until_cursor()
        for name in HIDDEN:
            async with open_stream(
                access_a.url, feed.name, name, cursor=cursor, from_="earliest"
            ) as refused:
                assert refused.status == 404


@pytest.mark.long
async def test_the_control_an_ordinary_stream_is_served_by_the_same_doors(
    access_a: Server, feed: Feed
) -> None:
    await known(access_a, feed)
    feed.send(fields={"output": ["public"], "n": [1.0]})
    async with open_stream(access_a.url, feed.name, from_="earliest") as stream:
        (event,) = await stream.take(1)
    assert "public" in event.data
    rows = httpx.get(f"{access_a.url}/v1/latest/{feed.name}", timeout=PATIENCE_S).json()["rows"]
    assert [row["output"] for row in rows] == ["public"]


@pytest.mark.long
async def test_nobody_is_woken_for_them(
    kafka: Kafka, access_a: Server, cursor_key: Path, feed: Feed, tmp_path: Path
) -> None:
    """A lease would count them, and its wake-ups show the first."""
    (tmp_path / "cursor.keys").write_bytes(cursor_key.read_bytes())
    async with open_stream(access_a.url, feed.name) as stream:
        cursor = await stream.until_cursor()
    with serving("push", kafka.bootstrap, tmp_path, allow_hosts=["127.0.0.1"]) as push:
        hidden, missing = [await ask(push, name, cursor) for name in (REQUESTS, "no_such_stream")]
        assert (hidden.status_code, hidden.json()["title"]) == (422, "unknown stream")
        assert told(hidden, REQUESTS) == told(missing, "no_such_stream")
        assert (await ask(push, feed.name, cursor)).status_code == 201


async def ask(push: Service, name: str, cursor: str) -> httpx.Response:
    body = {
        "subscription": {"streams": [name]},
        "cursor": cursor,
        "endpoint": {"url": "http://127.0.0.1:9/hook"},
    }
    async with httpx.AsyncClient(base_url=push.url, timeout=PATIENCE_S) as client:
        async with asyncio.timeout(PATIENCE_S):
            while (answer := await client.post("/v1/leases", json=body)).status_code == 503:
                await asyncio.sleep(0.2)
        return answer


def test_they_are_streams_that_devices_send() -> None:
    """Defined where the downlink is, by the names that agents use."""
    assert frozenset({ANSWERS, REQUESTS}) == OPERATOR_STREAMS
    assert all(
        names.is_stream(name) and not ANYBODY.may(Action.READ, name) for name in OPERATOR_STREAMS
    )
