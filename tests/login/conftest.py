"""A real identity provider, and access, push and operations servers that people log in to there."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
import tomli_w
from playwright.async_api import Browser, Page

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.ops.device import DeviceSeen
from tests.access.world import key_file
from tests.chromium import chromium
from tests.feeds import NOW_MS, Feed, unique
from tests.needs import JS
from tests.services import PATIENCE_S, Kafka, Process, free_ports, part

CLIENT, SECRET = "edgewake", "secret+/ %of the client"
RENEW_S = 2
OPS_KEY = "login-ops-key-000001"
PEOPLE = {
    "ann": {"name": "Ann", "groups": ["staff", "operators"], "device": "car-1"},
    "bob": {"name": "Bob", "groups": ["visitors"]},
    "carl": {"name": "Carl", "groups": ["owners", "watchers"], "device": "car-2"},
    "dora": {"name": "Dora", "groups": ["depot"]},
}


@dataclass
class IdentityProvider:
    """See the module."""

    process: Process
    port: int
    people: dict[str, Any]

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> IdentityProvider:
        self.process.log.unlink(missing_ok=True)
        self.process.start()
        self.process.wait_for("ready")
        return self

    def tell(self, what: str, body: Any = None) -> None:
        """Something that its administrators do."""
        httpx.post(f"{self.issuer}/test/{what}", json=body).raise_for_status()


@dataclass
class World:
    """The servers share a host, and so does what a browser keeps for them."""

    provider: IdentityProvider
    access: str
    ops: str
    push: str
    session_keys: Path
    mine: Feed
    other: Feed
    bus: str
    """A device that the group depot sees at operations, and one that it does not."""
    hidden: str


def provider_process(directory: Path, port: int, servers: list[str]) -> IdentityProvider:
    """Of these people, for people who come from these servers."""
    config = directory / "provider.json"
    config.write_text(
        json.dumps(
            {
                "client_id": CLIENT,
                "client_secret": SECRET,
                "redirects": [f"{url}/login/callback" for url in servers],
                "after": [f"{url}/" for url in servers],
                "people": PEOPLE,
                "claims_in_userinfo": True,
            }
        )
    )
    command = ["node", str(JS / "provider.mjs"), str(port), str(config)]
    return IdentityProvider(Process(command, directory / "provider.log"), port, dict(PEOPLE))


def login_table(
    directory: Path, provider: IdentityProvider, url: str, groups: dict[str, str]
) -> dict[str, Any]:
    """The table [login] of a server."""
    secret, keys = directory / "client.secret", directory / "session.key"
    secret.write_text(SECRET)
    if not keys.exists():
        keys.write_text(secrets.token_hex(32))
    return {
        "issuer": provider.issuer,
        "client_id": CLIENT,
        "client_secret_file": str(secret),
        "url": url,
        "session_key_file": str(keys),
        "scopes": ["openid", "profile", "offline_access"],
        "groups": groups,
        "claims": ["device"],
        "renew_s": RENEW_S,
        "stale_s": 60,
    }


@contextmanager
def seen_by_operations(
    config: KafkaConfig, stream: str, devices: tuple[str, ...]
) -> Iterator[None]:
    """Operations know these devices, as the sequencer tells of them."""
    producer = clients.producer(config, "test-login")
    topic_admin.ensure_topics(config, [topics.DEVICES])
    for device in devices:
        seen = DeviceSeen(device=device, last_seen=NOW_MS, streams={stream: 1}, records=1)
        producer.produce(topics.DEVICES, seen.to_json(), f"{device}|seen")
    assert producer.flush(PATIENCE_S) == 0
    yield
    for device in devices:
        producer.produce(topics.DEVICES, None, f"{device}|seen")
    assert producer.flush(PATIENCE_S) == 0


@pytest.fixture(scope="package")
def login_world(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("login")
    config = KafkaConfig(bootstrap=kafka.bootstrap)
    mine, other = Feed(config), Feed(config)
    depot = unique("depot")
    bus, hidden = f"{depot}-1", unique("van")
    for device in ("car-1", "car-2", bus, hidden):
        mine.send(device, fields={"speed": [50.0]})
    other.send("car-1", fields={"speed": [50.0]})
    ports = free_ports(4)
    access, ops, push = (f"http://127.0.0.1:{port}" for port in ports[1:])
    provider = provider_process(directory, ports[0], [access, ops, push]).start()
    rights = {
        "roles": {
            "depot": {"grants": [{"streams": [mine.name]}]},
            "owner": {"grants": [{"streams": [mine.name], "devices": ["$device"]}]},
        }
    }
    readers = {"staff": "depot", "owners": "owner"}
    shared: dict[str, Any] = {
        "kafka": {"bootstrap": kafka.bootstrap},
        "cursor_key_file": str(key_file(directory)),
        "rights": rights,
    }
    (directory / "lease.key").write_text(secrets.token_hex(32))
    (directory / "ops.key").write_text(OPS_KEY)
    configs = {
        "access": {**shared, "login": login_table(directory, provider, access, readers)},
        "push": {
            **shared,
            "lease_key_file": str(directory / "lease.key"),
            "allow_hosts": ["127.0.0.1"],
            "login": login_table(directory, provider, push, readers),
        },
        "ops": {
            "kafka": shared["kafka"],
            "key_file": str(directory / "ops.key"),
            "data_dir": str(directory / "ops"),
            "lake_dir": str(directory / "lake"),
            "rights": {
                "roles": {
                    "buses": {
                        "grants": [
                            {
                                "actions": ["read", "ask"],
                                "streams": [mine.name],
                                "devices": [f"{depot}-*"],
                            }
                        ]
                    }
                }
            },
            "login": login_table(
                directory,
                provider,
                ops,
                {"operators": "operate", "watchers": "read", "depot": "buses"},
            ),
        },
    }
    parts: list[Process] = []
    try:
        for (name, found), port in zip(
            configs.items(), (ports[1], ports[3], ports[2]), strict=True
        ):
            path = directory / f"{name}.toml"
            path.write_text(tomli_w.dumps({"port": port, **found}))
            process = part(name, path, directory / f"{name}.log")
            parts.append(process)
            process.start()
            process.wait_for('"part.ready"')
        with seen_by_operations(config, mine.name, (bus, hidden)):
            yield World(
                provider, access, ops, push, directory / "session.key", mine, other, bus, hidden
            )
    finally:
        for process in (*parts, provider.process):
            process.stop()
        mine.close()
        other.close()


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """A headless Chromium."""
    async with chromium() as browser:
        yield browser


async def through_the_form(page: Page, login: str) -> None:
    """What a person does at the provider."""
    await page.get_by_placeholder("Enter any login").fill(login)
    await page.get_by_placeholder("and password").fill("whatever")
    await page.get_by_role("button", name="Sign-in").click()
    await page.get_by_role("button", name="Continue").click()
