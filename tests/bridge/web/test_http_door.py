"""Devices and programs that send by HTTP with no agent between: through a real bridge into a real
Kafka, the clients of others each the real one where it installs.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from influxdb_client import InfluxDBClient, Point
from influxdb_client.client.write_api import SYNCHRONOUS
from influxdb_client.rest import ApiException
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from edgewake.cloud.bridge.config import BridgeConfig
from edgewake.cloud.kafka.headers import headers_of
from edgewake.protocol import topics
from edgewake.protocol.config import parse
from edgewake.protocol.errors import ConfigError, RejectReason
from edgewake.protocol.frames import record
from edgewake.protocol.frames.dead_letter import DeadLetter
from tests.bridge.running import World, read, read_some
from tests.services import PATIENCE_S, free_ports, port_is_open, wait_until

T_MS = 1_772_352_930_000
SENDER_WAITS_S = 0.5
"""Senders wait that long at least before they send the same again."""
OUTCOMES = 'edgewake_bridge_http_total{outcome="%s"}'


def door(here: World, name: str, more: str = "", **keys: object) -> str:
    """A bridge that takes readings by HTTP; its address."""
    (port,) = free_ports(1)
    here.bridge(name, mqtt=f"[http]\nport = {port}\n{more}", **keys)
    wait_until(lambda: port_is_open(port), "the port")
    return f"http://127.0.0.1:{port}"


async def post(url: str, body: bytes, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
        return await client.post(url, content=body, headers=named)


async def until_kept(url: str, body: bytes) -> None:
    """Posts as a client does: again where it is asked to come again."""
    async with asyncio.timeout(PATIENCE_S):
        while (answer := await post(url, body)).status_code == 503:
            await asyncio.sleep(0.2)
    assert answer.status_code == 204


async def rows(here: World, device: str, count: int = 1) -> list[tuple[str, int, dict[str, Any]]]:
    """Stream, time and fields of a device's readings, once there are so many."""
    found = await read_some(here.config, topics.UP, device, count)
    records = [record.decode(one.value() or b"") for one in found]
    return [
        (
            one.stream,
            one.frame.t[0],
            {name: column[0] for name, column in one.frame.fields.items()},
        )
        for one in records
    ]


async def test_the_clients_of_influxdb_and_opentelemetry_write_into_kafka(here: World) -> None:
    url = door(here, "b-http")

    def write() -> str:
        with InfluxDBClient(url, "any token", org="o", enable_gzip=True) as client:
            assert client.ping()
            api = client.write_api(write_options=SYNCHRONOUS)
            points = [
                Point("cpu").tag("host", "hh-1").field("usage", n + 0.5).time(T_MS + n, "ms")
                for n in range(4)
            ]
            api.write("b", record=points, write_precision="ms")
            with pytest.raises(ApiException) as error:
                api.write("b", record="door,host=hh-2 open=2i\nnonsense\n")
            return str(error.value)

    def export() -> None:
        reader = PeriodicExportingMetricReader(
            OTLPMetricExporter(f"{url}/v1/metrics"), export_interval_millis=3_600_000
        )
        resource = Resource({"service.name": "heating", "service.instance.id": "boiler-7"})
        provider = MeterProvider([reader], resource=resource)
        provider.get_meter("burner").create_counter("starts", unit="1").add(3, {"stage": "one"})
        assert provider.force_flush()
        provider.shutdown()

    said = await asyncio.to_thread(write)
    assert "partial write: 1 refused" in said
    assert await rows(here, "hh-1", 4) == [
        ("cpu", T_MS + n, {"usage": n + 0.5, "host": "hh-1"}) for n in range(4)
    ]
    assert [(stream, fields["open"]) for stream, _, fields in await rows(here, "hh-2")] == [
        ("door", 2)
    ]
    await asyncio.to_thread(export)
    stream, _, fields = (await rows(here, "boiler-7"))[0]
    assert (stream, fields["starts"], fields["stage"]) == ("burner", 3, "one")
    assert here.metric("b-http", OUTCOMES % "partial") == 1


FORMS: Sequence[tuple[str, str, Any, str, tuple[str, int, dict[str, Any]]]] = (
    ("/write?db=plant&precision=s", "", f"boil v=1.5 {T_MS // 1000}", "plant",
     ("boil", T_MS, {"v": 1.5})),
    ("/any/path", "application/cloudevents+json",
     {"specversion": "1.0", "id": "e1", "source": "src-1", "type": "measured",
      "time": "2026-03-01T08:15:30Z", "data": {"x": 1.5}}, "src-1",
     ("measured", T_MS, {"x": 1.5, "event_id": "e1", "event_source": "src-1"})),
    ("/senml/board", "application/senml+json", [{"n": "temp", "bt": T_MS / 1000, "v": 23.5}],
     "board", ("senml", T_MS, {"temp": 23.5})),
    ("/pub?u=alex&d=phone", "application/json",
     {"_type": "location", "lat": 52.5, "lon": 13.4, "tst": T_MS // 1000}, "alex-phone",
     ("owntracks_location", T_MS, {"lat": 52.5, "lon": 13.4, "user": "alex"})),
    ("/v1/gateway/telemetry", "application/json",
     {"meter-A": [{"ts": T_MS, "values": {"kwh": 7.5}}]}, "meter-A",
     ("thingsboard", T_MS, {"kwh": 7.5})),
    ("/ew/v1/plain-1/up/room", "application/x-www-form-urlencoded", {"t": T_MS, "temp": 21.5},
     "plain-1", ("room", T_MS, {"temp": 21.5})),
)  # fmt: skip


async def test_each_form_becomes_records_of_its_device_before_it_is_answered(here: World) -> None:
    url = door(here, "b-forms")
    for path, kind, body, device, wanted in FORMS:
        text = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        got = await post(url + path, text, Content_Type=kind)
        assert got.status_code in (200, 204), (path, got.text)
        # At once: the answer says that Kafka has it.
        found = [
            record.decode(one.value() or b"") for one in read(here.config, topics.UP, device=device)
        ]
        assert [
            (one.stream, one.frame.t[0], {n: c[0] for n, c in one.frame.fields.items()})
            for one in found
        ] == [wanted], path
    assert here.metric("b-forms", OUTCOMES % "taken") == len(FORMS)


@pytest.mark.long
async def test_the_trace_of_a_request_goes_on_with_its_reading(here: World) -> None:
    trace_id, span_id = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    asked = f"00-{trace_id}-{span_id}-01"
    # Nobody takes the spans, and the reading passes all the same.
    url = door(here, "b-traced", '[traces]\nendpoint = "http://127.0.0.1:9"\n')
    await post(f"{url}/ew/v1/web-traced/up/web_traced", b'{"n": 1}', traceparent=asked)
    await post(f"{url}/ew/v1/web-traced/up/web_traced", b'{"n": 2}')
    traced, plain = await read_some(here.config, topics.UP, "web-traced", 2)
    version, found, own, flags = headers_of(traced)["traceparent"].decode().split("-")
    assert (version, found, flags) == ("00", trace_id, "01")
    assert own != span_id, "the bridge's own span is the parent of what follows"
    assert "traceparent" not in headers_of(plain)


@pytest.mark.long
async def test_a_plain_device_sends_lists_lines_and_its_presence(here: World) -> None:
    url = door(here, "b-plain")
    at = f"{url}/ew/v1/web-1"
    several = json.dumps([{"n": 1}, {"n": 2}]).encode()
    got = await post(f"{at}/up/web_list", several)
    assert got.json() == {"taken": 2, "refused": 0}
    got = await post(
        f"{at}/up/web_list",
        gzip.compress(b'{"n": 3}\nnonsense\n{"n": 4}\n'),
        Content_Type="application/x-ndjson",
        Content_Encoding="gzip",
    )
    assert (got.status_code, got.json()["taken"], got.json()["refused"]) == (200, 2, 1)
    assert "JSON" in got.json()["error"]
    assert [fields for _, _, fields in await rows(here, "web-1", 4)] == [
        {"n": n} for n in (1, 2, 3, 4)
    ]
    (letter,) = await read_some(here.config, topics.DEAD, "web-1")
    assert letter.value() == b"nonsense"
    assert (await post(f"{at}/status", b"online")).status_code == 200
    await read_some(here.config, topics.DEVICES, "web-1|status")
    for path, why in (("/ew/v1/web-1/room", "expected /ew/v1/"), ("/ew/v1/a b/up/x", "device")):
        got = await post(url + path, b'{"n": 1}')
        assert (got.status_code, why in got.json()["error"]) == (404, True), got.text


async def test_the_commands_of_the_documentation_do_what_stands_there(
    here: World, tmp_path: Path
) -> None:
    (tmp_path / "tokens").write_text("TOKEN shed\n")
    url = door(here, "b-docs", f'tokens_file = "{tmp_path / "tokens"}"\n')
    text = (Path(__file__).parents[3] / "docs/plain-devices.md").read_text()
    block = text.partition("<!-- example: by HTTP -->\n```console\n")[2].partition("```")[0]
    lines = block.replace("http://192.168.1.5:8086", url).splitlines()
    for command, said in zip(lines[::2], lines[1::2], strict=True):
        words = shlex.split(command.removeprefix("$ "))
        done = await asyncio.to_thread(
            subprocess.run, [*words, "--silent"], capture_output=True, text=True, check=True
        )
        assert done.stdout == said
    assert [fields for _, _, fields in await rows(here, "shed")] == [{"raw": 512}]


async def test_what_is_wrong_is_said_and_kept_and_costs_itself_alone(here: World) -> None:
    url = door(here, "b-wrong")
    got = await post(f"{url}/ew/v1/w-1/up/web_wrong", b'{"x": 1}')
    assert got.status_code == 200
    got = await post(f"{url}/ew/v1/w-1/up/web_wrong", b'{"x": "text"}')
    assert (got.status_code, got.json()) == (200, {"taken": 1, "refused": 0})
    assert (await rows(here, "w-1"))[-1][2] == {"x": None, "x_odd": "text"}
    got = await post(f"{url}/ew/v1/w-1/up/web_wrong", b"{")
    assert got.status_code == 422
    (letter,) = await read_some(here.config, topics.DEAD, "w-1")
    assert DeadLetter.from_headers(letter.headers()).reason == RejectReason.JSON
    got = await post(f"{url}/v1/metrics", b"\xff\xff", Content_Type="application/x-protobuf")
    assert (got.status_code, b"expected metrics of OTLP" in got.content) == (400, True)
    got = await post(f"{url}/nobody", b"{}")
    assert (got.status_code, "no map takes" in got.json()["error"]) == (422, True)


async def test_who_shows_a_token_is_that_device_and_a_gateway_speaks_for_others(
    here: World, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("# TOKEN NAME\nSECRET-1 boiler-1\nSECRET-2 gate-1 gateway\n")
    url = door(here, "b-tokens", f'tokens_file = "{tokens}"\nprefix = "gw-"\n')
    body = json.dumps({"ts": T_MS, "values": {"temperature": 42.5}}).encode()
    assert (await post(f"{url}/api/v1/SECRET-1/telemetry", body)).status_code == 200
    assert await rows(here, "boiler-1") == [("thingsboard", T_MS, {"temperature": 42.5})]
    victim = json.dumps({"victim": [{"temperature": 99.5}]}).encode()
    got = await post(f"{url}/v1/gateway/telemetry", victim, Authorization="Bearer SECRET-1")
    assert got.status_code == 200
    assert [fields for _, _, fields in await rows(here, "boiler-1", 2)][1] == {"temperature": 99.5}
    assert not read(here.config, topics.UP, device="victim")
    got = await post(f"{url}/v1/gateway/telemetry", victim, Authorization="Bearer SECRET-2")
    assert got.status_code == 200
    assert [fields for _, _, fields in await rows(here, "gw-victim")] == [{"temperature": 99.5}]
    tries = {
        "boiler-1": ("SECRET-1", 200), "boiler-2": ("SECRET-1", 403), "gate-1": ("SECRET-2", 200),
        "gw-sensor": ("SECRET-2", 200), "boiler-3": ("SECRET-2", 403), "boiler-4": ("GUESS", 401),
    }  # fmt: skip
    for device, (token, status) in tries.items():
        got = await post(
            f"{url}/ew/v1/{device}/up/web_own", b'{"x": 1}', Authorization=f"Bearer {token}"
        )
        assert got.status_code == status, (device, got.text)
    page = await post(f"{url}/write?db=d&p=SECRET-1", b"cpu v=1\n", Origin="http://evil")
    assert page.status_code == 403
    tokens.write_text("SECRET-2 gate-1 gateway\n")

    def is_revoked() -> bool:
        return httpx.post(f"{url}/api/v1/SECRET-1/telemetry", content=body).status_code == 401

    await asyncio.to_thread(wait_until, is_revoked, "the token is nobody's")


@pytest.mark.long
async def test_while_kafka_is_away_a_client_hears_503_and_then_all_is_taken(here: World) -> None:
    url = door(here, "b-away")
    at = f"{url}/ew/v1/away-1/up/web_away"
    assert (await post(at, b'{"seq": 1, "x": 1}')).status_code == 200
    here.node.process.freeze()
    try:
        got = await post(at, b'{"seq": 2, "x": 2}')
        assert (got.status_code, got.headers["retry-after"]) == (503, "5")
        assert "send it again" in got.json()["error"]
        lines = b"web_away_line,host=away-2 x=7i"
        for _ in range(2):  # as InfluxDB's clients do: without a key, a number or a time
            assert (await post(f"{url}/write?db=d", lines)).status_code == 503
    finally:
        here.node.process.thaw()
    here.sequencer()
    for sent in (lines, lines, b"web_away_line,host=away-2 x=8i"):
        assert (await post(f"{url}/write?db=d", sent)).status_code == 204
    counted = await read_some(here.config, topics.stream_topic("web_away_line"), "away-2", 3)
    values = [record.decode(one.value() or b"").frame.fields["x"] for one in counted]
    assert values == [[7], [7], [8]], "what is told twice that it is taken is there twice"
    assert (await post(at, b'{"seq": 2, "x": 2}')).status_code == 200
    assert (await post(at, b'{"seq": 3, "x": 3}')).status_code == 200
    found = await read_some(here.config, topics.stream_topic("web_away"), "away-1", 3)
    assert [record.decode(one.value() or b"").frame.seq for one in found] == [1, 2, 3]
    assert here.metric("b-away", OUTCOMES % "unavailable") == 3


async def test_a_client_that_gives_up_and_repeats_is_counted_once(here: World) -> None:
    """It does not wait for the 503, and its request is still on its way when it comes again."""
    url = door(here, "b-hasty")
    lines = b"web_hasty,host=hasty-1 x=7i"
    at = f"{url}/write?db=d"
    assert (await post(at, b"web_hasty,host=hasty-1 x=6i")).status_code == 204
    here.node.process.freeze()
    try:
        async with httpx.AsyncClient(timeout=PATIENCE_S) as others:
            for _ in range(2):
                async with httpx.AsyncClient(timeout=2.5) as client:
                    with pytest.raises(httpx.ReadTimeout):
                        await client.post(at, content=lines)
                await asyncio.sleep(SENDER_WAITS_S)
            third = asyncio.create_task(others.post(at, content=lines))
            await asyncio.to_thread(here.node.process.thaw)
            assert (await third).status_code == 204
    finally:
        here.node.process.thaw()
    for sent in (lines, b"web_hasty,host=hasty-1 x=8i"):
        await until_kept(at, sent)
    found = await rows(here, "hasty-1", 4)
    assert [fields["x"] for _, _, fields in found] == [6, 7, 7, 8]


@pytest.mark.long
async def test_who_sends_too_much_waits_alone_and_what_is_too_large_is_not_held(
    here: World, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("LOUD loud-1\nQUIET quiet-1\n")
    more = f'tokens_file = "{tokens}"\nbody_bytes_max = 4096\n'
    url = door(here, "b-loud", f"{more}[device]\nmessages_per_s = 1\nburst_s = 2\n")
    line = b"cpu v=1\n"

    async def say(token: str, body: bytes, **more: str) -> httpx.Response:
        return await post(f"{url}/write?db=d&p={token}", body, **more)

    got = [(await say("LOUD", line * 4)).status_code for _ in range(3)]
    assert got[0] == 204
    assert 429 in got
    loud = await say("LOUD", line)
    assert (loud.status_code, int(loud.headers["retry-after"]) >= 1) == (429, True)
    assert (await say("QUIET", line)).status_code == 204, "the control"
    assert (await say("QUIET", b"x" * 5000)).status_code == 413
    bomb = gzip.compress(b"\n" * 1_000_000)
    assert (await say("QUIET", bomb, Content_Encoding="gzip")).status_code in (400, 413)


@pytest.mark.parametrize(
    ("http", "why"),
    [
        ({"port": 8086, "host": "0.0.0.0"}, "set tokens_file"),
        ({"port": 8086, "file": "maps.toml", "presets": ["influx"]}, "names its own presets"),
    ],
)
def test_a_door_that_would_be_open_to_all_is_refused(http: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse(BridgeConfig, {"http": http}, "bridge.toml")


def test_where_the_broker_knows_devices_payloads_name_none_of_them(tmp_path: Path) -> None:
    mqtt = {"username": "bridge", "share_key_file": str(tmp_path / "key")}
    values: dict[str, Any] = {"mqtt": mqtt, "http": {"port": 8086}}
    with pytest.raises(ConfigError, match=r"http.prefix is missing"):
        parse(BridgeConfig, values, "bridge.toml")
    values["http"]["prefix"] = "web-"
    parse(BridgeConfig, values, "bridge.toml")
