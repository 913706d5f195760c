"""Two more ways into production, with what is shipped for it: HTTP with a token through the proxy,
and Sparkplug B with a certificate; a bridge by the shipped configuration behind the shipped broker.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.frames import record
from tests.access.test_nginx import nginx
from tests.bridge.running import read, read_some, start
from tests.deploy.production import Client, Site, production_site
from tests.protocol.sparkplug.test_host import X, birth, message
from tests.services import PATIENCE_S, Kafka, Process, free_ports, part, wait_until

SHIPPED = Path(__file__).parents[2] / "deploy" / "compose" / "bridge-1.toml"
NOT_AUTHORISED = 0x87
WORKERS = "worker_processes auto;"
pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with production_site("node-7", "node-8", "--bridge", "bridge-1", SPARKPLUG="yes") as running:
        yield running


@contextmanager
def bridge(site: Site, node: Kafka, folder: Path, more: str = "") -> Iterator[tuple[Process, int]]:
    """A bridge with the shipped file, in which addresses and files are those of the test; and its
    port for HTTP.
    """
    metrics, http = free_ports(2)
    text = SHIPPED.read_text().partition("[kafka]")[0]
    made = site.certificates
    for shipped, here in (
        ('"mosquitto"', '"localhost"'),
        ("port = 8884", f"port = {site.ports['bridges']}"),
        ("metrics_port = 8730", f"metrics_port = {metrics}"),
        ("port = 8086", f"port = {http}"),
        ('["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"]', '["127.0.0.1/32"]'),
        ("/run/secrets/devices-ca.crt", f"{made}/broker/devices-ca.crt"),
        ("/run/secrets/bridge-1.", f"{made}/bridges/bridge-1."),
        ("/run/secrets/share.key", f"{made}/keys/share.key"),
        ("/run/tokens/devices", f"{made}/tokens/devices"),
    ):
        assert shipped in text, shipped
        text = text.replace(shipped, here)
    file = folder / "bridge-1.toml"
    file.write_text(f'{text}\n{more}\n[kafka]\nbootstrap = "{node.bootstrap}"\n')
    process = part("bridge", file, folder / "bridge-1.log")
    start(process)
    try:
        yield process, http
    finally:
        assert process.stop() == 0


async def fields_of(node: Kafka, device: str, count: int = 1) -> list[dict[str, object]]:
    found = await read_some(node_config(node), topics.UP, device, count)
    records = [record.decode(one.value() or b"") for one in found]
    return [{n: column[0] for n, column in one.frame.fields.items()} for one in records]


def node_config(node: Kafka) -> KafkaConfig:
    return KafkaConfig(bootstrap=node.bootstrap)


async def test_a_device_sends_by_http_through_the_proxy_until_it_is_revoked(
    site: Site, own_kafka: Kafka, tmp_path: Path
) -> None:
    front = site.certificates / "front"
    trusting = ssl.create_default_context(cafile=site.certificates / "broker" / "devices-ca.crt")
    tokens = {
        name: (site.certificates / "devices" / f"{name}.token").read_text().strip()
        for name in ("node-7", "node-8")
    }
    with bridge(site, own_kafka, tmp_path) as (_, http):
        # The second bridge is away: the first one takes what comes.
        ports = (http, free_ports(1)[0])
        # It writes bodies into the test's folder, which is of the user of the test alone.
        user = "worker_processes auto;\nuser root;" if os.geteuid() == 0 else WORKERS
        async with nginx(tmp_path, front, [1], [(WORKERS, user)], ports) as proxy:
            url = f"https://localhost:{proxy.devices_port}"

            async def post(device: str, path: str, token: str, text: str = '{"n": 1}') -> int:
                shown = {"Authorization": f"Bearer {token}"} if token else {}
                async with httpx.AsyncClient(verify=trusting, timeout=PATIENCE_S) as client:
                    sent = path.replace("DEVICE", device)
                    return (await client.post(url + sent, content=text, headers=shown)).status_code

            own = "/ew/v1/DEVICE/up/by_http"
            for device, token in tokens.items():
                assert await post(device, own, token) == 200
                assert await fields_of(own_kafka, device) == [{"n": 1}]
            assert await post("node-7", own, "") == 401
            assert await post("node-7", own, tokens["node-8"]) == 403
            assert await post("node-7", own, "x" * 40) == 401
            thingsboard = f"/api/v1/{tokens['node-7']}/telemetry"
            assert await post("node-7", thingsboard, "", '{"kwh": 7}') == 200
            assert await fields_of(own_kafka, "node-7", 2) == [{"n": 1}, {"kwh": 7}]
            assert await post("node-7", own, tokens["node-7"], "[" + '{"n": 1},' * 200_000) == 413
            logged = (tmp_path / "devices.log").read_text() + (tmp_path / "nginx.log").read_text()
            assert " POST 200 " in logged
            assert not [one for one in tokens.values() if one in logged]

            file = site.certificates / "tokens" / "devices"
            file.write_text(file.read_text().replace(" node-7", " node-7 gateway"))
            site.issue("--revoke", "node-8")
            assert " node-7 gateway\n" in file.read_text(), "a word of the operator's was lost"
            assert "node-8" not in file.read_text()

            async def is_shut_out() -> bool:
                return await post("node-8", own, tokens["node-8"]) == 401

            async with asyncio.timeout(60):
                while not await is_shut_out():
                    await asyncio.sleep(0.2)
            assert await post("node-7", own, tokens["node-7"]) == 200


async def test_a_node_of_sparkplug_is_heard_by_its_certificate_and_in_no_other_name(
    site: Site, own_kafka: Kafka, tmp_path: Path
) -> None:
    more = '[sparkplug]\nhost_id = "edgewake"\nprefix = "sp-"\nreorder_s = 0.2\n'
    state, asked = "spBv1.0/STATE/edgewake", "spBv1.0/g/NCMD/node-7"
    with bridge(site, own_kafka, tmp_path, more), Client(site, "node-7") as node:
        assert node.subscribe(state) == [1]
        assert node.subscribe(f"{asked}/#") == [1]
        assert node.subscribe("spBv1.0/g/NCMD/node-9") == [NOT_AUTHORISED]
        assert node.subscribe("spBv1.0/#") == [NOT_AUTHORISED]
        await asyncio.to_thread(wait_until, lambda: state in node.topics, "the host is there")
        # What another node would say is denied, and so is a command.
        for topic in (
            "spBv1.0/g/NBIRTH/node-9",
            "spBv1.0/g/DDATA/node-9/d",
            "spBv1.0/g/NCMD/node-9",
            "spBv1.0/g/NCMD/node-7",
            state,
        ):
            assert node.publish(topic, birth(0, 0, X)) == NOT_AUTHORISED, topic
        # The host has not heard its birth: it asks for it.
        assert node.publish("spBv1.0/g/NDATA/node-7", message(1, X)) == 0
        await asyncio.to_thread(wait_until, lambda: asked in node.topics, "it is asked")
        assert node.publish("spBv1.0/g/NBIRTH/node-7", birth(0, 0, X)) == 0
        data = message(1, {"alias": 1, "double_value": 1.5})
        assert node.publish("spBv1.0/g/NDATA/node-7", data) == 0
        found = await fields_of(own_kafka, "sp-g.node-7", 2)
        assert [one["x"] for one in found] == [0.5, 1.5]
        assert not read(node_config(own_kafka), topics.UP, device="sp-g.node-9")


@pytest.mark.long
def test_where_nothing_is_retained_the_bridge_says_what_the_host_needs(
    own_kafka: Kafka, tmp_path: Path
) -> None:
    """As production's broker is without SPARKPLUG=yes."""
    more = '[sparkplug]\nhost_id = "edgewake"\nprefix = "sp-"\n'
    with (
        production_site("--bridge", "bridge-1") as plain,
        bridge(plain, own_kafka, tmp_path, more) as (process, _),
    ):
        wait_until(lambda: "retain_available" in process.output(), "the log says it")
