"""A real identity provider, and access, push and operations servers that people log in to there."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
import tomli_w
from playwright.async_api import Browser, Page

from edgewake.cloud.kafka.config import KafkaConfig
from tests.access.world import key_file
from tests.chromium import chromium
from tests.feeds import Feed
from tests.needs import JS
from tests.services import Kafka, Process, free_ports, part

CLIENT, SECRET = "edgewake", "secret+/ %of the client"
RENEW_S = 2
OPS_KEY = "login-ops-key-000001"
PEOPLE = {
    "ann": {"name": "Ann", "groups": ["staff", "operators"], "device": "car-1"},
    "bob": {"name": "Bob", "groups": ["visitors"]},
    "carl": {"name": "Carl", "groups": ["owners", "watchers"], "device": "car-2"},
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


@pytest.fixture(scope="package")
def login_world(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("login")
    config = KafkaConfig(bootstrap=kafka.bootstrap)
    mine, other = Feed(config), Feed(config)
    for device in ("car-1", "car-2"):
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
            "login": login_table(
                directory, provider, ops, {"operators": "operate", "watchers": "read"}
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
        yield World(provider, access, ops, push, directory / "session.key", mine, other)
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
