"""What docs/first-hour.md says of clients of others: each sends with the name and password of a
device, the real client where there is one, with what the page says that is to be set.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import httpx
import pytest
from influxdb_client import InfluxDBClient
from influxdb_client.client.write_api import SYNCHRONOUS
from influxdb_client.rest import ApiException
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

from tests.bridge.running import World
from tests.bridge.web.conftest import PASSWORD
from tests.bridge.web.test_device_passwords import basic
from tests.bridge.web.test_http_door import door, rows
from tests.services import PATIENCE_S, wait_until

DOCUMENT = Path(__file__).parents[3] / "docs" / "first-hour.md"
THERE = "https://192.168.1.5:8712"


def said(client: str, pattern: str) -> str:
    """What is to be set for a client."""
    row = next(one for one in DOCUMENT.read_text().splitlines() if one.startswith(f"| {client}"))
    found = re.search(pattern, row)
    assert found, row
    return found[1].replace("PASSWORD", PASSWORD)


async def test_each_client_sends_as_the_page_says_until_its_device_is_shut_out(
    here: World, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = door(here, "b-hour", f'password_file = "{file}"\nprefix = "home-"\n')
    token = said("Telegraf", r'`token = "([^"]+)"`')

    def write() -> None:
        with InfluxDBClient(url, token, org="o") as client:
            client.write_api(write_options=SYNCHRONOUS).write("b", record="hour_line,host=h v=1.5")

    await asyncio.to_thread(write)
    assert (await rows(here, "boiler"))[0][2] == {"v": 1.5, "host": "h"}

    endpoint = said("OpenTelemetry", r"_ENDPOINT=([^`]+)`").replace(THERE, url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", endpoint)
    headers = said("OpenTelemetry", r'_HEADERS="([^"]+)"`')
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", headers)

    def export() -> None:
        exporter = OTLPMetricExporter()
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
        provider = MeterProvider([reader])
        provider.get_meter("hour_otlp").create_counter("starts").add(3)
        assert provider.force_flush()
        provider.shutdown()

    await asyncio.to_thread(export)
    found = await rows(here, "boiler", 2)
    assert {fields["starts"] for stream, _, fields in found if stream == "hour_otlp"} == {3}

    async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
        place = {"_type": "location", "lat": 52.5, "lon": 13.4, "tst": 1_772_352_930}
        at = said("OwnTracks", r"`(https[^`]+)`").replace(THERE, url)
        login = {"Authorization": basic(f"boiler:{PASSWORD}")}
        assert (await client.post(at, json=place, headers=login)).status_code == 200
        at = said("ThingsBoard's devices, HTTP", r"`(https[^`]+)`").replace(THERE, url)
        assert (await client.post(at, json={"kwh": 7})).status_code == 200
        streams = {stream for stream, _, _ in await rows(here, "boiler", 4)}
        assert streams == {"hour_line", "hour_otlp", "owntracks_location", "thingsboard"}

        file.write_text("")

        def is_refused() -> bool:
            return httpx.post(at, json={"kwh": 8}, timeout=PATIENCE_S).status_code == 401

        await asyncio.to_thread(wait_until, is_refused, "the device is shut out")
    with pytest.raises(ApiException) as error:
        await asyncio.to_thread(write)
    assert error.value.status == 401
