"""Clients of others, each the real one where it installs, at the HTTP intake."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import cbor2
import httpx
import pytest
from cloudevents.core.bindings.http import to_binary_event, to_structured_event
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from influxdb_client import InfluxDBClient, Point
from influxdb_client.client.write_api import SYNCHRONOUS
from influxdb_client.rest import ApiException
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from edgewake.edge.sources.web import http_intake
from edgewake.edge.sources.web.http_intake import HttpIntakeConfig
from tests.edge.sources.cage import Caged, caged
from tests.services import PATIENCE_S, free_ports, port_is_open

T_MS = 1_772_352_930_000


@asynccontextmanager
async def intake(tmp_path: Path, **more: Any) -> AsyncIterator[tuple[Caged, str]]:
    (port,) = free_ports(1)
    settings = {"presets": ["all"]} | more
    config = HttpIntakeConfig.checked(
        {"type": "http_intake", "stream": "s", "port": port} | settings
    )
    async with caged(tmp_path / "log", config) as one:
        await one.until(lambda: port_is_open(port), "the port")
        yield one, f"http://127.0.0.1:{port}"


async def post(url: str, body: bytes, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
        return await client.post(url, content=body, headers=named)


def readings(one: Caged, *names: str) -> list[tuple[object, ...]]:
    return list(zip(*(one.column(name) for name in names), strict=True))


async def test_the_client_of_influxdb_2_writes_and_hears_what_was_wrong(tmp_path: Path) -> None:
    def write(url: str) -> str:
        with InfluxDBClient(url, "any token", org="o", enable_gzip=True) as client:
            assert client.ping()
            api = client.write_api(write_options=SYNCHRONOUS)
            points = [
                Point("cpu").tag("host", f"h{n % 2}").field("usage", n + 0.5).time(T_MS + n, "ms")
                for n in range(4)
            ]
            api.write("b", record=points, write_precision="ms")
            api.write("b", record=Point("door").field("open", True).time(T_MS // 1000, "s"),
                write_precision="s")  # fmt: skip
            with pytest.raises(ApiException) as error:
                api.write("b", record="door open=2i\nnonsense\n")
            return str(error.value)

    async with intake(tmp_path) as (one, url):
        said = await asyncio.to_thread(write, url)
        assert "partial write: 1 refused" in said
        await one.until(lambda: len(one.times()) == 6, "six readings")
        assert sorted(readings(one, "kind", "thing", "usage"), key=str)[:4] == [
            ("cpu", "h0", 0.5), ("cpu", "h0", 2.5), ("cpu", "h1", 1.5), ("cpu", "h1", 3.5),
        ]  # fmt: skip
        assert ("door", "b") in readings(one, "kind", "thing")
        assert sorted(one.times())[:4] == [T_MS, T_MS, T_MS + 1, T_MS + 2]
        assert one.intake.refused == {"shape": 1}


async def test_a_client_of_influxdb_1_pings_makes_its_database_and_writes(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    async with intake(tmp_path, token_file=str(tmp_path / "token")) as (one, url):
        async with httpx.AsyncClient() as client:
            assert (await client.get(f"{url}/ping")).status_code == 204
            made = await client.post(f"{url}/query", params={"q": 'CREATE DATABASE "db"'})
            assert made.json() == {"results": [{"statement_id": 0}]}
        line = f"cpu usage=1 {T_MS // 1000}\n".encode()
        assert (await post(f"{url}/write?db=db&precision=s", line)).status_code == 401
        got = await post(f"{url}/write?db=db&precision=s&u=me&p=secret", line)
        assert (got.status_code, got.content) == (204, b"")
        async with httpx.AsyncClient(auth=("me", "secret")) as client:
            packed = gzip.compress(line)
            got = await client.post(
                f"{url}/write?db=db&precision=s",
                content=packed,
                headers={"Content-Encoding": "gzip"},
            )
            assert got.status_code == 204
        await one.until(lambda: one.times() == [T_MS, T_MS], "two readings")
        bad = await post(f"{url}/write?db=db&p=secret", b"cpu usage=x 1\n")
        assert (bad.status_code, "expected a number" in bad.json()["error"]) == (400, True)


async def test_a_program_with_opentelemetry_exports_its_metrics(tmp_path: Path) -> None:
    def export(url: str) -> None:
        reader = PeriodicExportingMetricReader(
            OTLPMetricExporter(f"{url}/v1/metrics"), export_interval_millis=3_600_000
        )
        resource = Resource({"service.name": "heating", "service.instance.id": "boiler-7"})
        provider = MeterProvider([reader], resource=resource)
        meter = provider.get_meter("burner")
        meter.create_counter("starts", unit="1").add(3, {"stage": "one"})
        meter.create_histogram("flame", unit="mm").record(12.5, {"stage": "one"})
        assert provider.force_flush()
        provider.shutdown()

    async with intake(tmp_path) as (one, url):
        await asyncio.to_thread(export, url)
        await one.until(lambda: one.column("starts"), "a reading")
        found = readings(one, "thing", "kind", "stage")
        assert found
        assert set(found) == {("boiler-7", "burner", "one")}
        assert next(value for value in one.column("starts") if value is not None) == 3
        assert next(value for value in one.column("flame_sum") if value is not None) == 12.5


async def test_otlp_as_json_is_answered_as_json_and_what_is_none_in_its_own_words(
    tmp_path: Path,
) -> None:
    corpus = json.loads((Path(__file__).parents[3] / "payloads/otlp/metrics.json").read_text())
    body = json.dumps(corpus["messages"][0]["payload"]).encode()
    async with intake(tmp_path) as (one, url):
        got = await post(f"{url}/v1/metrics", body, Content_Type="application/json")
        assert (got.status_code, got.json()) == (200, {})
        await one.until(lambda: one.column("temperature") == [21.5], "a reading")
        bad = await post(f"{url}/v1/metrics", b"\xff\xff", Content_Type="application/x-protobuf")
        assert (bad.status_code, bad.headers["content-type"]) == (400, "application/x-protobuf")
        assert b"expected metrics of OTLP" in bad.content


def event(number: int, data: Any, content_type: str = "application/json") -> CloudEvent:
    attributes = {
        "type": "com.example.measured", "source": "/sensors/7", "id": f"e{number}",
        "datacontenttype": content_type,
    }  # fmt: skip
    return CloudEvent(attributes, data)


async def test_cloudevents_come_binary_structured_and_batched(tmp_path: Path) -> None:
    one_event = event(1, {"temperature": 20.5})
    structured = to_structured_event(event(2, {"temperature": 21.5}), JSONFormat())
    binary = to_binary_event(one_event, JSONFormat())
    batch = [
        {"specversion": "1.0", "id": f"e{n}", "source": "/sensors/8", "type": "measured",
         "time": "2026-03-01T08:15:30Z", "data": {"temperature": n + 0.5}}
        for n in (3, 4)
    ]  # fmt: skip
    async with intake(tmp_path) as (one, url):
        for message in (binary, structured):
            async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
                headers: Mapping[str, str] = message.headers
                got = await client.post(f"{url}/", content=message.body, headers=headers)
                assert got.status_code == 200, got.text
        kind = "application/cloudevents-batch+json; charset=utf-8"
        got = await post(f"{url}/any/path", json.dumps(batch).encode(), Content_Type=kind)
        assert got.json() == {"taken": 2, "refused": 0}
        await one.until(lambda: len(one.times()) == 4, "four readings")
        assert sorted(readings(one, "temperature", "event_id", "kind")) == [
            (3.5, "e3", "measured"),
            (4.5, "e4", "measured"),
            (20.5, "e1", "com_example_measured"),
            (21.5, "e2", "com_example_measured"),
        ]
        assert one.times().count(T_MS) == 2
        bad = await post(f"{url}/", b'{"id": "x"}', Content_Type="application/cloudevents+json")
        assert (bad.status_code, "specversion" in bad.json()["error"]) == (400, True)


async def test_senml_comes_as_json_and_as_cbor(tmp_path: Path) -> None:
    as_json = [{"bn": "urn:dev:7:", "bt": T_MS / 1000, "n": "t", "u": "Cel", "v": 23.5}]
    as_cbor = [
        {-2: "urn:dev:8:", -3: T_MS / 1000, 0: "t", 1: "Cel", 2: 24.5},
        {0: "raw", 8: b"\x01"},
    ]
    async with intake(tmp_path) as (one, url):
        got = await post(
            f"{url}/", json.dumps(as_json).encode(), Content_Type="application/senml+json"
        )
        assert got.json() == {"taken": 1, "refused": 0}
        got = await post(
            f"{url}/senml/board", cbor2.dumps(as_cbor), Content_Type="application/senml+cbor"
        )
        assert got.json() == {"taken": 1, "refused": 0}
        await one.until(lambda: len(one.times()) == 2, "two readings")
        assert one.times() == [T_MS, T_MS]
        assert one.column("thing") == ["urn-dev-7", "board"]
        assert one.column("raw") == [None, "AQ"]
        bad = await post(f"{url}/", b"\x81", Content_Type="application/senml+cbor")
        assert bad.status_code == 400


async def test_the_app_of_owntracks_says_where_it_is(tmp_path: Path) -> None:
    place = {"_type": "location", "lat": 52.5, "lon": 13.4, "tst": T_MS // 1000, "t": "u"}
    async with intake(tmp_path) as (one, url):
        body = json.dumps(place).encode()
        got = await post(f"{url}/pub?u=alex&d=phone", body, Content_Type="application/json")
        assert (got.status_code, got.json()) == (200, [])
        got = await post(f"{url}/pub", body, X_Limit_U="alex", X_Limit_D="watch")
        assert got.status_code == 200
        told = json.dumps(place | {"topic": "owntracks/sam/car"}).encode()
        assert (await post(f"{url}/pub", told)).status_code == 200
        await one.until(lambda: len(one.times()) == 3, "three places")
        assert readings(one, "thing", "lat", "trigger") == [
            ("alex-phone", 52.5, "u"), ("alex-watch", 52.5, "u"), ("sam-car", 52.5, "u"),
        ]  # fmt: skip
        assert set(one.times()) == {T_MS}


async def test_a_device_of_thingsboard_is_moved_by_its_address_and_keeps_its_token(
    tmp_path: Path,
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("# TOKEN NAME\nA1_TEST_TOKEN boiler-1\n")
    async with intake(tmp_path, tokens_file=str(tokens)) as (one, url):
        body = json.dumps({"ts": T_MS, "values": {"temperature": 42.5, "on": True}}).encode()
        at = f"{url}/api/v1/A1_TEST_TOKEN/telemetry"
        assert (await post(at, body, Content_Type="application/json")).status_code == 200
        got = await post(f"{url}/api/v1/A1_TEST_TOKEN/attributes", b'{"firmware": "1.2"}')
        assert got.status_code == 200
        other = await post(f"{url}/api/v1/OTHER/telemetry", body)
        assert (other.status_code, "token" in other.json()["error"]) == (401, True)
        async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
            asks = await client.get(f"{url}/api/v1/A1_TEST_TOKEN/rpc?timeout=1000")
        assert (asks.status_code, "ask a bridge" in asks.json()["error"]) == (404, True)
        await one.until(lambda: len(one.times()) == 2, "two readings")
        assert readings(one, "thing", "temperature", "firmware") == [
            ("boiler-1", 42.5, None), ("boiler-1", None, "1.2"),
        ]  # fmt: skip
        assert one.times()[0] == T_MS
        tokens.write_text("OTHER boiler-2\n")

        async def is_known() -> bool:
            return (await post(f"{url}/api/v1/OTHER/telemetry", body)).status_code == 200

        async with asyncio.timeout(PATIENCE_S):
            while not await is_known():
                await asyncio.sleep(0.05)
        assert (await post(at, body)).status_code == 401, "revoked"


async def test_any_path_is_a_topic_of_a_map_file(tmp_path: Path) -> None:
    maps = tmp_path / "home.toml"
    maps.write_text(
        '[[map]]\ntopic = "report/{device}"\ndevice = "{device}"\n'
        '[[map]]\ntopic = "plain/{device}"\ndevice = "{device}"\npayload = "csv"\n'
        'columns = ["t", "temp"]\ntime = "t"\n'
        '[[map]]\ntopic = "api/v1/{device}/rpc"\ndevice = "{device}"\n'
    )
    async with intake(tmp_path, presets=[], maps=str(maps)) as (one, url):
        async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
            got = await client.get(f"{url}/report/ht?hum=55&temp=21.5&id=shelly")
            assert got.json() == {"taken": 1, "refused": 0}
            got = await client.post(f"{url}/report/form", data={"temp": "22.5"})
            assert got.json() == {"taken": 1, "refused": 0}
            line = f"{T_MS},23.5\n{T_MS + 1},24.5\n"
            got = await client.post(
                f"{url}/plain/logger", content=line, headers={"Content-Type": "text/csv"}
            )
            assert got.json() == {"taken": 2, "refused": 0}
            got = await client.post(f"{url}/api/v1/press/rpc", json={"temp": 25.5})
            assert got.json() == {"taken": 1, "refused": 0}
            got = await client.post(f"{url}/nobody", content="{}")
            assert (got.status_code, "no map takes" in got.json()["error"]) == (422, True)
        await one.until(lambda: len(one.times()) == 5, "five readings")
        assert readings(one, "thing", "temp") == [
            ("ht", 21.5), ("form", 22.5), ("logger", 23.5), ("logger", 24.5), ("press", 25.5),
        ]  # fmt: skip


async def test_without_room_a_client_is_told_to_come_again_and_nothing_is_counted_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_intake, "TAKE_FOREIGN_S", 0.2)
    async with intake(tmp_path) as (one, url):
        monkeypatch.setattr(one.intake, "offer", lambda *_, **__: False)

        async def never() -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(one.intake, "room", never)
        got = await post(f"{url}/api/v2/write?bucket=b", b"cpu usage=1\nnonsense\n")
        assert (got.status_code, got.json()["code"]) == (503, "unavailable")
        assert got.headers["retry-after"]
        assert (one.intake.turned_away, one.intake.refused) == (1, {})


async def test_a_page_of_a_browser_and_a_bomb_are_refused_in_the_forms_own_words(
    tmp_path: Path,
) -> None:
    async with intake(tmp_path, body_bytes_max=4096) as (one, url):
        got = await post(f"{url}/write?db=d", b"cpu usage=1\n", Origin="http://evil")
        assert (got.status_code, "browser" in got.json()["error"]) == (403, True)
        bomb = gzip.compress(b"\n" * 10_000_000)
        got = await post(f"{url}/write?db=d", bomb[:4096], Content_Encoding="gzip")
        assert got.status_code in (400, 413)
        got = await post(f"{url}/write?db=d", b"x" * 5000)
        assert got.status_code == 413
        got = await post(f"{url}/write?db=d", b"cpu usage=1\n")
        assert got.status_code == 204
        assert one.intake.taken == 1


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1/devices/victim/telemetry", {"t": 99}),
        ("/v1/gateway/telemetry", {"victim": [{"t": 99}]}),
        ("/pub", {"_type": "location", "lat": 1.0, "lon": 2.0, "topic": "owntracks/victim/ph"}),
    ],
)
async def test_who_shows_a_device_s_own_token_is_that_device_whatever_it_says(
    tmp_path: Path, path: str, said: dict[str, Any]
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("MALLORYS_TOKEN mallory\n")
    async with intake(tmp_path, tokens_file=str(tokens)) as (one, url):
        got = await post(
            url + path, json.dumps(said).encode(), Authorization="Bearer MALLORYS_TOKEN"
        )
        assert got.status_code == 200, got.text
        await one.until(lambda: len(one.times()) == 1, "a reading")
        assert readings(one, "thing") == [("mallory",)]


async def test_no_image_of_a_foreign_page_sends_a_reading(tmp_path: Path) -> None:
    """A GET of a page has no origin."""
    async with intake(tmp_path) as (one, url), httpx.AsyncClient() as client:
        path = f"{url}/v1/devices/victim/telemetry?t=99"
        got = await client.get(path, headers={"Sec-Fetch-Site": "cross-site"})
        assert got.status_code == 403
        assert one.intake.taken == 0
        await client.get(path)
        await one.until(lambda: one.intake.taken == 1, "the control: a program sends")
