"""The operations API as it is run: a process on a real Kafka."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgewake.cloud.ops.login.auth import AUTHORITY_PATH, ENROL_PATH
from edgewake.protocol import topics
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frames import record as records
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.record import Mode
from edgewake.protocol.frames.stream import FieldInfo, Stream
from edgewake.protocol.leases import lease_record
from edgewake.protocol.leases.lease_record import Lease
from edgewake.protocol.ops.device import DeviceSeen, DeviceState, DeviceStatus
from edgewake.protocol.ops.query import Progress, QueryState, Reached, Registration
from tests.ops.conftest import Writer
from tests.ops.service import KEY, Ops, running
from tests.push.builders import lease
from tests.services import PATIENCE_S, Kafka, wait_until


@pytest.fixture(scope="module")
def ops(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ops]:
    with running(kafka.bootstrap, tmp_path_factory.mktemp("ops")) as service:
        yield service


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def eventually(
    ask: Callable[[], httpx.Response], wanted: Callable[[Any], bool] = lambda _: True
) -> Any:
    """The answer's body once it is 200 and as wanted."""
    bodies: list[Any] = [None]

    def there() -> bool:
        response = ask()
        bodies[0] = response.json()
        return response.status_code == 200 and wanted(bodies[0])

    wait_until(there, "the answer is as wanted")
    return bodies[0]


def declare(writer: Writer, name: str, unit: str = "km/h") -> None:
    stream = Stream(name=name, fields={"speed": FieldInfo(type=FieldType.NUMBER, unit=unit)})
    writer.put(topics.STREAMS, name, stream.model_dump_json().encode())
    writer.put(topics.stream_topic(name), "d", b"{}")


def sql(name: str, stream: str) -> str:
    return f"""-- name: {name}
-- description: test
SELECT device, avg(speed) AS mean
FROM {stream}
GROUP BY window(event_time, '10 seconds'), device
"""


# Contract


def operations(ops: Ops) -> Iterator[tuple[str, str, dict[str, Any]]]:
    document = httpx.get(f"{ops.url}/openapi.json", timeout=PATIENCE_S).json()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def fill(path: str, value: str) -> str:
    return re.sub(r"\{[^}]*\}", lambda _: value, path)


def test_every_route_of_the_document_needs_the_key(ops: Ops) -> None:
    found = list(operations(ops))
    assert len(found) >= 15
    for method, path, _ in found:
        if path == ENROL_PATH:  # a claim code is proof enough
            answer = httpx.post(ops.url + path, json={"code": "x", "device": "d"})
            assert (answer.status_code, answer.json()["title"]) == (404, "no credentials")
            continue
        if path == AUTHORITY_PATH:  # a certificate is for all; who asks compares its fingerprint
            answer = httpx.get(ops.url + path)
            assert (answer.status_code, answer.json()["title"]) == (404, "no authority")
            continue
        for headers in ({}, {"X-API-Key": "wrong"}, {"Authorization": f"Bearer {KEY}x"}):
            response = httpx.request(
                method, ops.url + fill(path, "x"), headers=headers, json={"nonsense": 1}
            )
            assert (response.status_code, response.headers["content-type"]) == (
                401,
                "application/problem+json",
            ), (method, path)


def test_no_route_ignores_a_parameter_that_it_does_not_know(ops: Ops) -> None:
    for method, path, _ in operations(ops):
        answer = ops.client.request(method, fill(path, "x"), params={"wehre": "1"})
        assert (answer.status_code, answer.json().get("type")) == (
            400,
            "urn:edgewake:problem:parameter",
        ), (method, path, answer.text)
        assert "'wehre' is not known" in answer.json()["detail"]


BAD_VALUES = [
    "x",
    "-1",
    "99999999999999999999999",
    "a" * 300,
    "%00",
    "%F0%9F%98%80",
    "1.1",
    "..%2f..",
    "'%20or%201=1",
    "%7B%7D",
]


@pytest.mark.parametrize("bad", BAD_VALUES)
def test_bad_paths_and_parameters_are_answered_with_a_problem_and_never_with_500(
    ops: Ops, bad: str
) -> None:
    for method, path, operation in operations(ops):
        if path == "/v1/live":
            continue
        names = [p["name"] for p in operation.get("parameters", []) if p["in"] == "query"]
        query = "&".join(f"{name}={bad}" for name in names)
        for url in {fill(path, bad) + "?" + query, fill(path, bad)}:
            response = ops.client.request(
                method, url, content=b"{", headers={"content-type": "application/json"}
            )
            assert response.status_code < 500, (method, url, response.text)
            if response.is_error:
                assert response.headers["content-type"] == "application/problem+json", (method, url)
                assert {"type", "title", "status", "detail"} <= response.json().keys()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"text":1}',
        b'{"text":""}',
        b'{"text":"x","more":1}',
        b"\xff\xfe",
        b"[" * 70_000,
    ],
)
def test_a_bad_body_is_answered_with_a_problem(ops: Ops, body: bytes) -> None:
    response = ops.client.post(
        "/v1/queries", content=body, headers={"content-type": "application/json"}
    )
    assert response.status_code in (400, 422), response.text
    assert response.headers["content-type"] == "application/problem+json"


def test_a_body_over_its_bound_is_refused_unread(ops: Ops) -> None:
    response = ops.client.post("/v1/queries", content=b"x" * 300_000)
    assert (response.status_code, response.json()["title"]) == (413, "too large")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/nothing", 404), ("PATCH", "/v1/devices", 405), ("PUT", "/v1/acks/0.0", 405)],
)
def test_unknown_paths_and_methods_are_problems(
    ops: Ops, method: str, path: str, status: int
) -> None:
    response = ops.client.request(method, path)
    assert (response.status_code, response.headers["content-type"]) == (
        status,
        "application/problem+json",
    )


@pytest.mark.parametrize("limit", [0, 501, "x"])
def test_pages_are_bounded(ops: Ops, limit: object) -> None:
    assert ops.client.get("/v1/devices", params={"limit": limit}).status_code == 422


# Devices, streams, leases, parts


def test_a_device_shows_what_its_agent_said_and_what_the_cloud_saw(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    device = unique("dev")
    now = now_ms()
    status = DeviceStatus(
        device=device, state=DeviceState.ONLINE, received_at=now, backlog_readings=12, epoch=3
    )
    seen = DeviceSeen(device=device, last_seen=now, skew_ms=40, streams={"a": 5}, records=5)
    writer.put(topics.DEVICES, f"{device}|status", status.to_json())
    writer.put(topics.DEVICES, f"{device}|seen", seen.to_json())
    found = eventually(
        lambda: ops.client.get(f"/v1/devices/{device}"), lambda d: d["streams"] == ["a"]
    )
    assert (found["state"], found["backlog_readings"], found["skew_ms"], found["epoch"]) == (
        "online",
        12,
        40,
        3,
    )


def test_a_removed_device_is_forgotten_until_it_sends_again(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    device = unique("dev")
    row = DeviceSeen(device=device, last_seen=now_ms()).to_json()
    writer.put(topics.DEVICES, f"{device}|seen", row)
    eventually(lambda: ops.client.get(f"/v1/devices/{device}"))
    assert ops.client.delete(f"/v1/devices/{device}").status_code == 204
    assert [
        ops.client.get(f"/v1/devices/{device}").status_code,
        ops.client.delete(f"/v1/devices/{device}").status_code,
    ] == [404, 404]
    writer.put(topics.DEVICES, f"{device}|seen", row)
    eventually(lambda: ops.client.get(f"/v1/devices/{device}"))


def test_pages_of_devices_hold_each_once(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    devices = [f"{unique('page')}" for _ in range(7)]
    for device in devices:
        writer.put(
            topics.DEVICES, f"{device}|seen", DeviceSeen(device=device, last_seen=1).to_json()
        )
    eventually(lambda: ops.client.get(f"/v1/devices/{devices[-1]}"))
    found, after = [], None
    while True:
        page = ops.client.get(
            "/v1/devices", params={"limit": 3} | ({"after": after} if after else {})
        ).json()
        found += [item["device"] for item in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert set(devices) <= set(found)
    assert (len(found), found) == (page["total"], sorted(set(found)))


def test_a_stream_shows_its_fields_and_its_place_in_kafka(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    name = unique("s")
    declare(writer, name)
    found = eventually(
        lambda: ops.client.get(f"/v1/streams/{name}"),
        lambda s: sum(p["next"] - p["first"] for p in s["partitions"]),
    )
    assert {name: (field["type"], field["unit"]) for name, field in found["fields"].items()} == {
        "speed": ("number", "km/h")
    }
    assert sum(p["next"] - p["first"] for p in found["partitions"]) == 1


def test_a_lease_is_shown_without_what_wakes_or_reads_in_its_name(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    kept: Lease = lease(unique("lease"))
    writer.put(topics.LEASES, kept.id, lease_record.encode(kept))
    page = eventually(
        lambda: ops.client.get("/v1/leases", params={"limit": 500}),
        lambda p: kept.id in [item["id"] for item in p["items"]],
    )
    text = json.dumps(page)
    assert kept.sealed not in text
    assert kept.token_hash not in text
    assert "/hook" not in text
    writer.put(topics.LEASES, kept.id, None)


def test_a_part_shows_its_last_word(ops: Ops, writer: Writer, unique: Callable[[str], str]) -> None:
    name = unique("bridge")
    at = now_ms()
    for state, pid in (("starting", 1), ("ready", 2)):
        frame = (
            f'{{"epoch":null,"frame":null,"seq":null,"t":[{at}],"fields":{{"part":["{name}"],'
            f'"state":["{state}"],"pid":[{pid}]}}}}'
        )
        value = records.encode(
            device="supervisor",
            stream="part_status",
            mode=Mode.ONE_WAY,
            sent_at=None,
            received_at=at,
            frame_bytes=frame.encode(),
        )
        writer.put(topics.stream_topic("part_status"), "supervisor", value)
    page = eventually(
        lambda: ops.client.get("/v1/parts"),
        lambda p: any(i["part"] == name and i["pid"] == 2 for i in p["items"]),
    )
    assert [i["state"] for i in page["items"] if i["part"] == name] == ["ready"]


# Dead letters and acks


def test_dead_letters_come_newest_first_and_their_payload_as_it_was(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    device = unique("dev")
    first = writer.dead_letter(device, b"<script>\xff\x00", RejectReason.ENCODING)
    second = writer.dead_letter(device, b"2")
    page = ops.client.get("/v1/dead-letters", params={"device": device}).json()
    assert [item["offset"] for item in page["items"]] == [second, first]
    raw = ops.client.get(f"/v1/dead-letters/{first}")
    assert (raw.content, raw.headers["content-type"]) == (
        b"<script>\xff\x00",
        "application/octet-stream",
    )
    assert (raw.headers["x-edgewake-reason"], raw.headers["x-content-type-options"]) == (
        "encoding",
        "nosniff",
    )
    assert ops.client.get(f"/v1/dead-letters/{second + 1000}").status_code == 404


def test_an_ack_token_leads_to_the_frame_and_to_its_progress_through_every_query(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    device, stream, done, behind = unique("dev"), unique("s"), unique("q"), unique("q")
    token = writer.received(device, stream, 1)
    partition, offset = writer.sequenced(device, stream, 1, token)
    for name, at in ((done, offset + 1), (behind, offset)):
        registration = Registration(name=name, text="…", registered_at=1)
        progress = Progress(
            query=name,
            stream=stream,
            state=QueryState.RUNNING,
            reached={stream: Reached(offsets={partition: at})},
            updated_at=2,
        )
        writer.put(topics.QUERIES, name, registration.model_dump_json().encode())
        writer.put(topics.PROGRESS, name, progress.model_dump_json().encode())
    found = eventually(
        lambda: ops.client.get(f"/v1/acks/{token}"), lambda ack: len(ack["queries"]) == 2
    )
    assert (
        found["device"],
        found["stream"],
        found["frame"],
        found["partition"],
        found["offset"],
    ) == (device, stream, 1, partition, offset)
    assert {q["query"]: (q["state"], q["offsets_behind"]) for q in found["queries"]} == {
        done: ("computed", 0),
        behind: ("pending", 1),
    }
    for name in (done, behind):
        writer.put(topics.QUERIES, name, None)


# Queries


def test_a_query_is_registered_shown_paused_resumed_and_removed(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream, name = unique("s"), unique("q")
    declare(writer, stream)
    eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))
    text = sql(name, stream)
    created = ops.client.post("/v1/queries", json={"text": text})
    assert (created.status_code, created.json()["state"], created.headers["location"]) == (
        201,
        "starting",
        f"/v1/queries/{name}",
    ), created.text
    assert ops.client.post("/v1/queries", json={"text": text}).status_code == 200
    assert (
        ops.client.post(
            "/v1/queries", json={"text": text.replace("10 seconds", "20 seconds")}
        ).status_code
        == 409
    )
    running = Progress(
        query=name, stream=stream, state=QueryState.RUNNING, updated_at=now_ms() + 1000
    )
    writer.put(topics.PROGRESS, name, running.model_dump_json().encode())
    eventually(lambda: ops.client.get(f"/v1/queries/{name}"), lambda q: q["state"] == "running")
    paused = ops.client.post(f"/v1/queries/{name}/pause").json()
    assert (paused["state"], paused["paused"]) == ("paused", True)
    resumed = ops.client.post(f"/v1/queries/{name}/resume").json()
    assert (resumed["state"], resumed["paused"]) == ("running", False)
    assert ops.client.get(f"/v1/queries/{name}").json()["text"] == text
    plan = ops.client.get(f"/v1/queries/{name}/plan").json()
    assert plan == ops.client.post("/v1/queries:check", json={"text": text}).json()
    assert (plan["execution"], plan["rows"]) == ("shared", 1)
    assert 0 < plan["cost"] < plan["cost_max"]
    assert ops.client.delete(f"/v1/queries/{name}").status_code == 204
    assert ops.client.get(f"/v1/queries/{name}").status_code == 404


def test_a_query_may_not_take_the_name_of_a_stream(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream = unique("s")
    declare(writer, stream)
    eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))
    response = ops.client.post("/v1/queries", json={"text": sql(stream, stream)})
    assert (response.status_code, response.json()["title"]) == (409, "name taken"), response.text


@pytest.mark.parametrize(
    "change",
    [
        ("SELECT", "SELEKT"),
        ("FROM", "FROM nowhere --"),
        ("-- name", "-- nome"),
        ("avg(speed)", "avg(spood)"),
    ],
)
def test_a_query_that_does_not_analyse_is_refused_with_its_reason(
    ops: Ops, writer: Writer, unique: Callable[[str], str], change: tuple[str, str]
) -> None:
    stream = unique("s")
    declare(writer, stream)
    eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))
    asked = {"text": sql(unique("q"), stream).replace(*change)}
    response = ops.client.post("/v1/queries:check", json=asked)
    assert (response.status_code, response.json()["title"]) == (422, "query refused"), response.text
    registered = ops.client.post("/v1/queries", json=asked)
    assert registered.status_code == (201 if "nowhere" in change[1] else 422), (
        "a stream that is not there yet is waited for"
    )
    assert len(response.json()["detail"]) > 10


# Health, metrics, live tail


def test_a_stranger_s_host_name_is_refused_before_the_key_is_looked_at(ops: Ops) -> None:
    assert ops.client.get("/v1/devices", headers={"Host": "evil.example"}).status_code == 421


def test_metrics_tell_devices_dead_letters_leases_and_queries(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    writer.dead_letter(unique("dev"), b"x", RejectReason.TIME)
    wait_until(
        lambda: (
            'edgewake_dead_letters_total{reason="time"}' in httpx.get(f"{ops.url}/metrics").text
        ),
        "the letter is counted",
    )
    text = httpx.get(f"{ops.url}/metrics").text
    for name in (
        "edgewake_devices",
        "edgewake_leases",
        "edgewake_query_lag_offsets",
        "edgewake_query_records_total",
        "edgewake_parts",
    ):
        assert f"# TYPE {name}" in text


def lines_of(ops: Ops, **more: Any) -> Iterator[str]:
    with httpx.stream("GET", f"{ops.url}/v1/live", timeout=PATIENCE_S, **more) as response:
        assert response.status_code == 200, response.read()
        yield "open"
        yield from response.iter_lines()


def test_the_live_tail_tells_what_happens(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    lines = lines_of(ops, headers={"X-API-Key": KEY})
    assert next(lines) == "open"
    device = unique("dev")
    while not next(lines).startswith("id:"):
        pass
    writer.dead_letter(device, b"x")
    for line in lines:
        if line.startswith("data:") and device in line:
            break
    assert json.loads(line.removeprefix("data:"))["kind"] == "dead_letter"


@pytest.mark.long
def test_the_live_tail_ends_with_its_key_and_others_go_on(kafka: Kafka, tmp_path: Path) -> None:
    """It went on for more than half a minute."""
    stays, goes = "s" * 32, "g" * 32
    with running(kafka.bootstrap, tmp_path) as own:
        (tmp_path / "ops.key").write_text(
            f"stays read {stays}\ngoes read {goes}\nmain operate {KEY}\n"
        )
        wait_until(
            lambda: (
                httpx.get(f"{own.url}/v1/parts", headers={"X-API-Key": goes}).status_code == 200
            ),
            "the new keys are known",
        )
        ending, staying = (lines_of(own, headers={"X-API-Key": key}) for key in (goes, stays))
        assert (next(ending), next(staying)) == ("open", "open")
        (tmp_path / "ops.key").write_text(f"stays read {stays}\nmain operate {KEY}\n")
        removed_at = time.monotonic()
        told = list(ending)
        assert time.monotonic() - removed_at < 10, (
            "two seconds, and what a busy machine adds; its heartbeat alone takes 15"
        )
        assert "event: ended" in told
        assert httpx.get(f"{own.url}/v1/live", headers={"X-API-Key": goes}).status_code == 401
        assert next(line for line in staying if line.startswith("id:"))


def test_a_link_logs_a_browser_in_once(ops: Ops) -> None:
    link = ops.url + ops.client.post("/v1/tickets").json()["path"]
    with httpx.Client(base_url=ops.url) as browser:
        assert browser.head(link).status_code == 405, "a look does not use it up"
        assert browser.get(link, headers={"Sec-Purpose": "prefetch"}).status_code == 503
        entered = browser.get(link)
        assert (entered.status_code, "url=/" in entered.text) == (200, True)
        assert {"httponly", "samesite=strict"} <= {
            part.strip().lower() for part in entered.headers["set-cookie"].split(";")
        }
        assert browser.get("/v1/devices").status_code == 200
        assert browser.delete("/v1/session", headers={"Origin": ops.url}).status_code == 204
        assert browser.get("/v1/devices").status_code == 401
    assert httpx.get(link).status_code == 401


def test_the_form_takes_a_key_from_our_own_page_only(ops: Ops) -> None:
    with httpx.Client(base_url=ops.url) as browser:
        assert browser.post("/in", data={"key": KEY}).status_code == 403
        assert (
            browser.post("/in", data={"key": "wrong"}, headers={"Origin": ops.url}).status_code
            == 401
        )
        assert (
            browser.post("/in", data={"key": KEY}, headers={"Origin": ops.url}).status_code == 200
        )
        assert browser.get("/docs").status_code == 200


def test_the_api_stops_when_asked_with_a_live_tail_open(kafka: Kafka, tmp_path: Path) -> None:
    with running(kafka.bootstrap, tmp_path) as service:
        lines = lines_of(service, headers={"X-API-Key": KEY})
        assert next(lines) == "open"
        assert service.process.stop() == 0
