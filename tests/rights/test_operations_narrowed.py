"""What grants reach at a running operations API: allowed, forbidden, not there, and expired during.

One principal, by the same token and key file that access servers know. Each route that grants reach
has a case here: one without fails.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import tomli_w
from confluent_kafka import Producer
from pydantic import BaseModel

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.ops.login.reach import NARROWED
from edgewake.cloud.summaries.summary import HOUR_MS, Series
from edgewake.protocol import topics
from edgewake.protocol.downlink.down_row import key_of
from edgewake.protocol.downlink.request_row import RequestRow
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from edgewake.protocol.ops.device import DeviceSeen
from edgewake.protocol.ops.device_note import DeviceNote
from tests.feeds import Feed, eventually, unique
from tests.ops.service import KEY, Ops, running
from tests.rights.as_long import PAIRS, takes_as_long
from tests.rights.forge import AUDIENCE, ISSUER, Maker, key_set, write
from tests.services import PATIENCE_S, Kafka, wait_until
from tests.summaries.made import minute

DEPOT_KEY = "key-of-the-whole-depot"
HOUR = 1_790_000_000_000 // HOUR_MS * HOUR_MS
SPAN = f"from={HOUR}&to={HOUR + HOUR_MS}"


@dataclass
class World:
    """`mine` has `own` and `hidden`; the owner may see `own`'s speed there, and command it."""

    ops: Ops
    maker: Maker
    folder: Path
    mine: str
    other: str
    own: str
    hidden: str

    def token(self, **claims: Any) -> str:
        said: dict[str, Any] = {"edgewake_role": "owner", "exp": time.time() + 600}
        return self.maker.token(**said | claims).decode()

    def as_(self, credential: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {credential}"}
        return httpx.Client(base_url=self.ops.url, headers=headers, timeout=PATIENCE_S)

    def named(self, text: str, *, stream: str = "", device: str = "", field: str = "speed") -> str:
        """A path or body with names in it."""
        names = {"STREAM": stream or self.mine, "DEVICE": device or self.own, "FIELD": field}
        for word, name in names.items():
            text = text.replace(word, name)
        return text.replace("SPAN", SPAN)


def rights_of(folder: Path, mine: str, own: str, maker: Maker) -> dict[str, Any]:
    write(folder / "readers.keys", f"depot depot {DEPOT_KEY}\n")
    write(folder / "issuer.json", key_set(maker))
    write(folder / "revoked", "")
    roles = {
        "owner": [
            {"actions": ["read", "ask"], "streams": [mine], "devices": [own], "fields": ["speed"]},
            {"actions": ["command"], "devices": [own]},
        ],
        "depot": [{"actions": ["read", "ask"], "streams": [mine]}],
        "viewer": [{"actions": ["view"]}],
        "operator": [{"actions": ["operate"]}],
    }
    return {
        "key_file": str(folder / "readers.keys"),
        "revoked_file": str(folder / "revoked"),
        "roles": {name: {"grants": grants} for name, grants in roles.items()},
        "issuers": [
            {"issuer": ISSUER, "audience": AUDIENCE, "jwks_file": str(folder / "issuer.json"),
             "roles": list(roles), "leeway_s": 0.0}
        ],
    }  # fmt: skip


def fill(producer: Producer, streams: tuple[str, str], devices: tuple[str, str]) -> None:
    """What the operations API knows of streams and devices."""
    mine, other = streams
    rows: list[tuple[str, str, BaseModel]] = []
    for name in streams:
        fields = {
            field: FieldInfo(type=kind, first_device=devices[1], other_unit=f"m by {devices[1]}")
            for field, kind in (("speed", FieldType.NUMBER), ("secret", FieldType.STRING))
        }
        rows.append((topics.STREAMS, name, Stream(name=name, fields=fields)))
    for n, device in enumerate(devices):
        seen = DeviceSeen(device=device, last_seen=HOUR, streams={mine: 1, other: 1}, records=2)
        producer.produce(topics.DEVICES, seen.to_json(), f"{device}|seen")
        note = DeviceNote(device=device, note="n", groups=("g",), changed_at=1, changed_by="a test")
        rows.append((topics.NOTES, device, note))
        asked = RequestRow(
            device=device, id="r1", name="map", body="where am I", received_at=HOUR,
            expires_at=2 * HOUR, partition=0, offset=10**9 + n,
        )  # fmt: skip
        rows.append((topics.REQUESTS, key_of(device, "r1"), asked))
    for topic, key, row in rows:
        producer.produce(topic, row.model_dump_json().encode(), key)
    of_one = (mine, "secret", f"@{devices[0]}"), (other, "speed", f"@{devices[0]}")
    series = [(mine, "speed", f"@{device}") for device in devices] + [(mine, "speed", ""), *of_one]
    for one in series:
        found = minute(HOUR, [1.0, 2.0], Series(*one))
        producer.produce(topics.MINUTES, found.encode(), found.key)
    assert producer.flush(PATIENCE_S) == 0


@pytest.fixture(scope="module")
def world(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder, maker = tmp_path_factory.mktemp("narrowed"), Maker()
    config = KafkaConfig(bootstrap=kafka.bootstrap)
    mine, other = Feed(config), Feed(config)
    own, hidden = unique("car"), unique("car")
    for device in (own, hidden):
        for feed in (mine, other):
            feed.send(device, fields={"speed": [50.0], "secret": [f"secret of {device}"]})
            feed.gap(device, 7)
    topic_admin.ensure_topics(config, [topics.MINUTES, topics.HOURS])
    rights = tomli_w.dumps({"rights": rights_of(folder, mine.name, own, maker)})
    with running(kafka.bootstrap, folder, rights) as ops:
        producer = clients.producer(config, "test-narrowed")
        fill(producer, (mine.name, other.name), (own, hidden))
        whole = ops.client
        for path in (f"/v1/streams/{other.name}", f"/v1/devices/{hidden}",
                     f"/v1/devices/{hidden}/requests/r1",
                     f"/v1/summaries/{other.name}/speed?devices=@{own}&{SPAN}"):  # fmt: skip
            wait_until(lambda p=path: whole.get(p).status_code == 200, f"{path} is known")  # type: ignore[misc]
        for device in (own, hidden):
            command = {"name": "blink", "id": "c1"}
            answer = whole.post(f"/v1/devices/{device}/commands", json=command)
            assert answer.status_code == 202
        yield World(ops, maker, folder, mine.name, other.name, own, hidden)
        for topic, key in (
            *((topics.STREAMS, feed.name) for feed in (mine, other)),
            *((topics.DEVICES, f"{device}|seen") for device in (own, hidden)),
            *((topics.NOTES, device) for device in (own, hidden)),
            *((topics.REQUESTS, key_of(device, "r1")) for device in (own, hidden)),
            *((topics.DOWN, key_of(device, "c1")) for device in (own, hidden)),
        ):
            producer.produce(topic, None, key)
        producer.flush(PATIENCE_S)
    mine.close()
    other.close()


@dataclass(frozen=True)
class Case:
    """A route that grants reach. `by`: the kinds of names by which something of it is hidden."""

    path: str
    by: tuple[str, ...]
    body: str = ""
    allowed: int = 200
    refused: int = 404

    @property
    def method(self) -> str:
        return "POST" if self.body else "GET"


SUMMARY = "/v1/summaries/STREAM/FIELD"
COMMANDS = "/v1/devices/DEVICE/commands"
REQUEST = "/v1/devices/DEVICE/requests/r1"
CASES: dict[str, list[Case]] = {
    "GET /v1/streams": [],
    "GET /v1/devices": [
        Case("/v1/devices?stream=STREAM", ("stream",), refused=200),
        Case("/v1/devices?q=DEVICE", ("device",), refused=200),
        Case("/v1/devices?sort=heard&after=DEVICE", ("device",), refused=200),
    ],
    "GET /v1/requests": [Case("/v1/requests?device=DEVICE", ("device",), refused=200)],
    "GET /v1/summaries": [Case("/v1/summaries?stream=STREAM", ("stream",), refused=200)],
    "GET /v1/streams/{name}": [Case("/v1/streams/STREAM", ("stream",))],
    "GET /v1/streams/{name}/gaps": [
        Case("/v1/streams/STREAM/gaps?device=DEVICE", ("stream",)),
        Case("/v1/streams/STREAM/gaps?device=DEVICE", ("device",), refused=200),
    ],
    "GET /v1/streams/{name}/retention": [Case("/v1/streams/STREAM/retention", ("stream",))],
    "GET /v1/streams/{name}/summary": [
        Case("/v1/streams/STREAM/summary", ("stream",), allowed=403)
    ],
    "GET /v1/devices/{device}": [Case("/v1/devices/DEVICE", ("device",))],
    "POST /v1/sql": [
        Case("/v1/sql", ("stream", "field"), '{"sql": "SELECT FIELD FROM STREAM"}', refused=422),
        Case(
            "/v1/sql", ("device",), refused=200,
            body='{"sql": "SELECT count(*) FROM STREAM WHERE device = \'DEVICE\'"}',
        ),
        Case(
            "/v1/sql", ("stream", "field"), refused=200,
            body='{"sql": "SELECT count(*) FROM summaries.hour WHERE stream = \'STREAM\' AND '
            'field = \'FIELD\'"}',
        ),
    ],
    "GET /v1/summaries/{stream}/{field}": [
        Case(f"{SUMMARY}?devices=@DEVICE&SPAN", ("stream", "field", "device"))
    ],
    "GET /v1/summaries/{stream}/{field}/compare": [
        Case(
            f"{SUMMARY}/compare?devices=@DEVICE&with_stream=MINE&with_field=speed&"
            "with_devices=@OWN&SPAN",
            ("stream", "field", "device"),
        ),
        Case(
            "/v1/summaries/MINE/speed/compare?devices=@OWN&with_stream=STREAM&with_field=FIELD&"
            "with_devices=@DEVICE&SPAN",
            ("stream", "field", "device"),
        ),
    ],
    "POST /v1/devices/{device}/commands": [
        Case(COMMANDS, ("device",), '{"name": "blink", "id": "c2"}', allowed=202, refused=403)
    ],
    "GET /v1/devices/{device}/commands": [Case(COMMANDS, ("device",), refused=200)],
    "GET /v1/devices/{device}/commands/{command_id}": [Case(f"{COMMANDS}/c1", ("device",))],
    "GET /v1/devices/{device}/requests/{request_id}": [Case(REQUEST, ("device",))],
    "POST /v1/devices/{device}/requests/{request_id}/reply": [
        Case(f"{REQUEST}/reply", ("device",), '{"body": "here"}', allowed=202)
    ],
}  # fmt: skip
ALL_CASES = [
    pytest.param(case, id=f"{route} {n}")
    for route, cases in CASES.items()
    for n, case in enumerate(cases)
]


def test_each_route_that_grants_reach_has_a_case() -> None:
    assert set(CASES) == set(NARROWED)


def ask(client: httpx.Client, world: World, case: Case, **names: str) -> httpx.Response:
    path = case.path.replace("MINE", world.mine).replace("OWN", world.own)
    body = world.named(case.body, **names)
    headers = {"Content-Type": "application/json"}
    return client.request(
        case.method, world.named(path, **names), content=body or None, headers=headers
    )


def text_of(answer: httpx.Response, *names: str) -> str:
    """Without the names that were asked, those that are near them, and how long it took."""
    text = re.sub(r'Candidate bindings: (\\"[^"]*\\"(, )?)+', "", answer.text)
    text = re.sub(r"; did you mean [^?\"]*\?", "", text)
    for name in names:
        text = text.replace(name, "NAME")
    body = json.loads(text)
    if isinstance(body, dict):
        body.pop("seconds", None)
    return json.dumps(body)


@pytest.mark.parametrize("case", ALL_CASES)
def test_what_is_forbidden_is_answered_as_what_is_not_there(world: World, case: Case) -> None:
    hidden = {"stream": world.other, "device": world.hidden, "field": "secret"}
    with world.as_(world.token()) as client:
        assert ask(client, world, case).status_code == case.allowed
        for kind in case.by:
            absent = unique("x")
            forbidden = ask(client, world, case, **{kind: hidden[kind]})
            not_there = ask(client, world, case, **{kind: absent})
            assert forbidden.status_code == not_there.status_code == case.refused, forbidden.text
            assert text_of(forbidden, hidden[kind]) == text_of(not_there, absent)
            assert world.hidden not in forbidden.text.replace(hidden[kind], "")


TIMED = [
    pytest.param(
        case,
        kind,
        id=f"{route} {n} {kind}",
        marks=[pytest.mark.long] if (n, kind) != (0, case.by[0]) else [],
    )
    for route, cases in CASES.items()
    for n, case in enumerate(cases)
    for kind in case.by
]
PAIRS_OF_SQL = 5
"""A process of its own answers each question, in a quarter of a second."""


@pytest.mark.parametrize(("case", "kind"), TIMED)
async def test_it_takes_as_long(world: World, case: Case, kind: str) -> None:
    hidden = {"stream": world.other, "device": world.hidden, "field": "secret"}[kind]
    headers = {"Authorization": f"Bearer {world.token()}", "Content-Type": "application/json"}
    path = case.path.replace("MINE", world.mine).replace("OWN", world.own)
    async with httpx.AsyncClient(
        base_url=world.ops.url, timeout=PATIENCE_S, headers=headers
    ) as client:

        async def once(name: str) -> None:
            body = world.named(case.body, **{kind: name})
            asked = world.named(path, **{kind: name})
            answer = await client.request(case.method, asked, content=body or None)
            assert answer.status_code == case.refused, answer.text

        pairs = PAIRS_OF_SQL if case.path == "/v1/sql" else PAIRS
        await takes_as_long(lambda: once(hidden), lambda: once(unique("x")), pairs=pairs)


def test_lists_are_of_what_the_grants_name_and_count_nothing_else(world: World) -> None:
    with world.as_(world.token()) as client:
        streams = client.get("/v1/streams").json()
        devices = client.get("/v1/devices").json()
        asked = client.get("/v1/requests").json()
        series = client.get("/v1/summaries").json()
    assert ([one["name"] for one in streams["items"]], streams["total"]) == ([world.mine], 1)
    (stream,) = streams["items"]
    assert list(stream["fields"]) == ["speed"]
    assert (stream["records_per_s"], stream["partitions"]) == (None, [])
    (device,) = devices["items"]
    assert (device["device"], device["streams"]) == (world.own, [world.mine])
    assert (device["note"], device["groups"]) == ("", [])
    assert (devices["total"], sum(devices["counts"].values())) == (1, 2), "silent, and plain"
    assert [one["device"] for one in asked["items"]] == [world.own]
    assert series == [{"stream": world.mine, "field": "speed", "devices": f"@{world.own}"}]
    assert world.hidden not in json.dumps([streams, devices, asked, series])


def test_sql_cuts_devices_and_fields_and_counts_nothing_else(world: World) -> None:
    with world.as_(world.token()) as client:
        found = client.post("/v1/sql", json={"sql": f"SELECT * FROM {world.mine}"}).json()
        totals = client.post("/v1/sql", json={"sql": f"SELECT count(*) FROM {world.mine}"}).json()
    names = [column["name"] for column in found["columns"]]
    assert "speed" in names
    assert "secret" not in names
    assert [row[names.index("device")] for row in found["rows"]] == [world.own]
    assert totals["rows"] == [[1]]
    assert (found["past"]["rows"], found["present"]["rows"]) == (None, None)


def test_the_control_by_a_key_without_such_a_cut_all_of_the_stream_is_seen(world: World) -> None:
    with world.as_(DEPOT_KEY) as client:
        sql = f"SELECT device, secret FROM {world.mine} ORDER BY device"
        rows = client.post("/v1/sql", json={"sql": sql}).json()["rows"]
        devices = client.get("/v1/devices").json()["items"]
        gaps = client.get(f"/v1/streams/{world.mine}/gaps").json()["items"]
        total = client.get(f"/v1/summaries/{world.mine}/speed?{SPAN}")
        assert client.get(f"/v1/streams/{world.other}").status_code == 404
        assert client.get("/v1/requests").status_code == 403
    both = sorted([world.own, world.hidden])
    assert rows == [[device, f"secret of {device}"] for device in both]
    assert sorted(one["device"] for one in devices) == both
    assert {one["device"] for one in gaps} == set(both)
    assert total.status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/v1/streams/STREAM/gaps",
        "/v1/streams/STREAM/summary",
        "/v1/summaries/STREAM/speed?SPAN",
        "/v1/summaries/STREAM/speed?devices=a_set&SPAN",
        "/v1/summaries/STREAM/speed/compare?devices=@DEVICE&with_devices=a_set&SPAN",
    ],
)
def test_what_is_of_all_devices_is_refused_to_who_sees_some(world: World, path: str) -> None:
    with world.as_(world.token()) as client:
        answer = client.get(world.named(path))
    assert answer.status_code == 403
    assert "of some devices, and this is of all of them" in answer.json()["detail"]


def test_groups_and_the_whole_system_are_refused_with_a_sentence(world: World) -> None:
    with world.as_(world.token()) as client:
        for path in ("/v1/devices?group=g", "/v1/overview", "/v1/live", "/v1/history", "/v1/audit"):
            answer = client.get(path)
            assert answer.status_code == 403, path
            assert "needs the action view" in answer.json()["detail"]


def test_the_audit_names_the_principal(world: World) -> None:
    elsewhere, anna = unique("car"), f"{ISSUER}#anna"
    with world.as_(world.token()) as client, world.as_(DEPOT_KEY) as depot:
        client.post("/v1/sql", json={"sql": f"SELECT '{elsewhere}'"})
        depot.post("/v1/sql", json={"sql": f"SELECT '{elsewhere}'"})
        client.post(f"/v1/devices/{elsewhere}/commands", json={"name": "blink"})
        shown = client.get(f"/v1/devices/{world.own}/commands/c1").json()

    def found() -> list[tuple[str, str, int]]:
        items = world.ops.client.get("/v1/audit?limit=100").json()["items"]
        return sorted(
            (one["holder"], one["method"], one["status"])
            for one in items
            if elsewhere in one["path"] + one["detail"]
        )

    wanted = [("depot (reader)", "POST", 200), (anna, "POST", 200), (anna, "POST", 403)]
    wait_until(lambda: found() == wanted, "each stands there by its name")
    assert shown["asked_by"] == "operator"


WHY = ("expired", "revoked")


@pytest.mark.parametrize("why", WHY)
@pytest.mark.parametrize("role", ["viewer", "operator"])
async def test_a_live_stream_ends_with_its_right_and_says_so(
    world: World, why: str, role: str
) -> None:
    ends = time.time() + 3 if why == "expired" else None
    token = world.token(edgewake_role=role, jti=f"{role}-{why}", exp=ends or time.time() + 600)
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=world.ops.url, timeout=PATIENCE_S) as client:
        async with client.stream("GET", "/v1/live", headers=headers) as stream:
            assert stream.status_code == 200
            if ends is None:
                ends = time.time()
                write(world.folder / "revoked", f"jti {role}-{why}\n")
            said = "".join([piece async for piece in stream.aiter_text()]).replace("\r", "")
        ended_at = time.time()
        assert f'event: ended\ndata: {{"reason":"{why}"' in said
        assert ends - 0.1 <= ended_at < ends + 2.5
        answer = await client.get("/v1/live", headers=headers)
    assert answer.status_code == 401
    assert why in answer.json()["detail"]
    write(world.folder / "revoked", "")


async def test_a_question_under_way_ends_with_its_right(world: World) -> None:
    token = world.token(jti="t-question")
    headers = {"Authorization": f"Bearer {token}"}
    sql = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range < b.range"
    async with httpx.AsyncClient(base_url=world.ops.url, timeout=PATIENCE_S) as client:
        question = {"sql": sql, "seconds": 60}
        asked = asyncio.create_task(client.post("/v1/sql", json=question, headers=headers))
        await eventually(lambda: _children_of(world.ops.process.pid) > 0, "it is being answered")
        began = time.monotonic()
        write(world.folder / "revoked", "jti t-question\n")
        answer = await asked
    assert time.monotonic() - began < 2.5
    assert (answer.status_code, answer.json()["title"]) == (401, "key revoked")
    wait_until(lambda: _children_of(world.ops.process.pid) == 0, "its process is gone")
    write(world.folder / "revoked", "")


def _children_of(pid: int) -> int:
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return len(list(itertools.chain.from_iterable(one.read_text().split() for one in found)))


def test_the_operators_own_key_works_beside_them(world: World) -> None:
    with world.as_(KEY) as client, world.as_(world.token(edgewake_role="operator")) as operator:
        assert client.get("/v1/overview").status_code == 200
        assert operator.get("/v1/overview").status_code == 200
        assert operator.get("/v1/session").json()["role"] == "operate"
        assert operator.put(f"/v1/devices/{world.own}/note", json={"note": "m"}).status_code == 200
