"""The AsyncAPI document: read by its authors' parser, and held against what is really said."""

from __future__ import annotations

import asyncio
import copy
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from edgewake.cloud.access import socket_wire, sse
from edgewake.cloud.access.asyncapi.devices import mqtt_topics
from edgewake.cloud.access.asyncapi.document import EVENTS, document
from edgewake.cloud.access.asyncapi.webhooks import CALLS
from edgewake.cloud.alerts.sender import body_of as alert_body
from edgewake.cloud.calls.webhook import wake_body
from edgewake.cloud.log.filters.filter_check import FilterWarning
from edgewake.cloud.push.deliveries.courier import body_of
from edgewake.protocol import topics
from edgewake.protocol.ops.alert import Note, Severity
from tests.access.sockets.talk import talk
from tests.access.world import Server, open_stream
from tests.feeds import Feed, QueryFeed
from tests.services import PATIENCE_S

ALL_QUIET = {"checkpoint", "reading", "result", "gap", "watermark", "heartbeat"}
"""Blocks of a stream whose reader takes all."""
JS = Path(__file__).parents[2] / "js"
PROTOCOL = (Path(__file__).parents[3] / "docs/protocol.md").read_text()


def read(made: dict[str, Any], directory: Path) -> subprocess.CompletedProcess[str]:
    """What AsyncAPI's parser says."""
    file = directory / "asyncapi.json"
    file.write_bytes(orjson.dumps(made))
    command = ["node", str(JS / "asyncapi.mjs"), str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_its_authors_parser_reads_it(tmp_path: Path) -> None:
    done = read(document(), tmp_path)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-2000:]
    assert "/v1/streams/{name}/events" in done.stderr
    assert "ew/v1/{device}/up/{stream}" in done.stderr
    broken = copy.deepcopy(document())
    broken["operations"]["events"]["action"] = "shout"
    broken["channels"]["socket"]["servers"] = [{"$ref": "#/servers/nobody"}]
    refused = read(broken, tmp_path)
    assert refused.returncode == 1, "the control: it reads what stands there"
    assert "nobody" in refused.stdout


def fits(schema: dict[str, Any], said: Any) -> None:
    """Raises ValidationError."""
    Draft202012Validator(schema).validate(said)


@pytest.mark.services
async def test_what_event_streams_and_sockets_say_is_as_it_stands_there(
    access_a: Server, feed: Feed, query_feed: QueryFeed
) -> None:
    """Each block and each message of a stream with all that there is to say."""
    feed.send(n=3)
    feed.gap("dev-1", 2)
    window = {"window_start": 0, "window_end": 10_000, "value": 1}
    query_feed.batch(1, [{"device": "a", **window}], 10_000)
    shown = httpx.get(f"{access_a.url}/asyncapi.json", timeout=PATIENCE_S).json()
    assert shown == orjson.loads(orjson.dumps(document()))
    names = (feed.name, query_feed.name)
    where = "n > 0 OR value > 0"
    kinds: set[str] = set()
    async with (
        asyncio.timeout(PATIENCE_S),
        open_stream(access_a.url, *names, from_="earliest", where=where, beat="event") as s,
    ):
        async for event in s.events():
            row = orjson.loads(event.data)
            kind = (
                event.type if event.type != "message" else "result" if "query" in row else "reading"
            )
            fits(EVENTS[kind], row)
            kinds.add(kind)
            if kinds >= ALL_QUIET:
                break
    async with (
        asyncio.timeout(PATIENCE_S),
        open_stream(access_a.url, *names, from_="earliest", conflate="20") as s,
    ):
        async for event in s.events():
            if event.type == "conflated":
                fits(EVENTS["conflated"], orjson.loads(event.data))
                break
    messages = document()["components"]["messages"]
    heard: set[str] = set()
    async with asyncio.timeout(PATIENCE_S), talk(access_a) as socket:
        await socket.say("subscribe", streams=list(names), from_="earliest", where=where, credits=1)
        await socket.say("subscribe", "b", streams=["never_there"])
        for kind in ("subscribed", "problem", "events", "behind"):
            if kind not in {message["type"] for message in socket.heard}:
                await socket.until(kind)
        await socket.say("credit", credits=1000)
        await socket.say("change", where=None)
        await socket.until("changed")
        await socket.say("unsubscribe")
        await socket.until("end")
        await socket.say("subscribe", "c", streams=list(names), from_="earliest", conflate=20)
        while not any("superseded" in message for message in socket.heard):
            await socket.until("events")
        for message in socket.heard:
            fits(messages[f"hear_{message['type']}"]["payload"], message)
            heard.add(message["type"])
    assert heard >= {"subscribed", "problem", "events", "behind", "changed", "end"}


def test_a_warning_fits() -> None:
    for field, near in (("speed", ("speed_kmh",)), ("speed", ()), (None, ())):
        block = sse.warning(FilterWarning("unknown_field", "no such field", field, near))
        fits(EVENTS["warning"], orjson.loads(block.partition(b"data: ")[2]))


def test_every_message_of_a_socket_is_there() -> None:
    said = re.findall(r"^    (\w+)  ", socket_wire.__doc__ or "", re.MULTILINE)
    assert len(said) > 10
    messages = document()["components"]["messages"]
    assert {name.removeprefix("hear_") for name in messages if name.startswith("hear_")} == set(
        said
    )
    with pytest.raises(ValidationError):
        fits(
            messages["say_subscribe"]["payload"], {"type": "subscribe", "id": "a", "stream": ["x"]}
        )


def test_every_topic_of_devices_is_there() -> None:
    """As `edgewake.protocol.topics` lists them."""
    listed = set(re.findall(r"ew/v1/<(?:device|gateway)>\S*", topics.__doc__ or ""))
    mine = {topic.address.replace("{", "<").replace("}", ">") for topic in mqtt_topics()}
    kinds = {address for address in mine if "/down/" in address}
    assert {address.rpartition("/")[2] for address in kinds} == {
        "command",
        "settings",
        "reply",
        "feed",
    }
    assert mine - kinds == listed - {"ew/v1/<device>/down/<kind>"}


@pytest.mark.parametrize(
    ("example", "topic", "message"),
    [
        ("plain reading", "readings", "plainReading"),
        ("ack", "acknowledgement", "kept"),
        ("refusal", "acknowledgement", "refused"),
        ("later", "acknowledgement", "later"),
        ("status", "status", "status"),
    ],
)
def test_the_examples_of_the_protocol_fit(example: str, topic: str, message: str) -> None:
    found = re.findall(rf"<!-- example: {example} -->\n```json\n(.*?)```", PROTOCOL, re.DOTALL)
    assert found
    payload = document()["components"]["messages"][f"{topic}_{message}"]["payload"]
    for text in found:
        fits(payload, orjson.loads(text))
        with pytest.raises(ValidationError):
            fits(payload, [orjson.loads(text)])


def test_calls_of_endpoints_fit() -> None:
    now = int(time.time() * 1000)
    events = [b'{"stream":"a","device":"b","n":1}', b'{"$event":"gap","lost":3}']
    for is_replayed in (False, True):
        body = body_of("d", events, number=1, cursor="v2.x", at=now, is_replayed=is_replayed)
        fits(CALLS["edgewake.events"], orjson.loads(body))
    facts = {"lease": "l", "cursor": "v2.x", "count": 3, "capped": False, "gap": False}
    facts |= {"urgency": "normal", "again": 0, "streams": ["a"]}
    fits(CALLS["edgewake.wake"], orjson.loads(wake_body(facts, [{"n": 1}], at_ms=now)))
    note = Note(
        id="msg_1", rule="hot", destination="d", title="t", body="b",
        severity=Severity.CRITICAL, firing=("oven",), made_at=now,
        field="heat", unit="°C", values={"oven": "31.5"},
    )  # fmt: skip
    fits(CALLS["edgewake.alert"], orjson.loads(alert_body(note)))
    with pytest.raises(ValidationError):
        fits(CALLS["edgewake.wake"], {"type": "edgewake.wake"})
