"""An access server with rights, on the session's Kafka, and what is to be read from it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from edgewake.cloud.kafka.config import KafkaConfig
from tests.access.world import Server, key_file
from tests.feeds import Feed, QueryFeed
from tests.rights.forge import AUDIENCE, ISSUER, Maker, key_set, write
from tests.services import Kafka, free_ports, part

KEYS = """
board everything board-key-00000001
guest guest guest-key-00000001
lost everything lost-key-000000001
single single single-key-0000001
"""


@dataclass
class World:
    """A server, its issuer, and the streams: `mine` has car-1 and car-2, `other` is nobody's of
    the owners'.
    """

    server: Server
    maker: Maker
    directory: Path
    mine: Feed
    other: Feed
    totals: QueryFeed

    def token(self, **claims: Any) -> str:
        """Of the owner of car-1."""
        said: dict[str, Any] = {"edgewake_role": "owner", "device": "car-1"}
        said["exp"] = time.time() + 600
        return self.maker.token(**said | claims).decode()

    def file(self, name: str, text: str) -> None:
        """Change a file that the server looks at."""
        write(self.directory / name, text)


def rights_of(directory: Path, mine: str, totals: str, maker: Maker) -> dict[str, Any]:
    """The table [rights]."""
    write(directory / "readers.keys", KEYS)
    write(directory / "issuer.json", key_set(maker))
    write(directory / "revoked", "")
    return {
        "key_file": str(directory / "readers.keys"),
        "revoked_file": str(directory / "revoked"),
        "roles": {
            "owner": {
                "grants": [
                    {
                        "streams": [mine, totals],
                        "devices": ["$device"],
                        "fields": ["speed", "n"],
                    },
                    {"publications": ["pub_mine_*"], "devices": ["$device"]},
                    {"sets": ["set_mine_*"]},
                ]
            },
            "single": {"grants": [{"streams": [mine]}], "streams_max": 1},
            "guest": {"grants": [{"streams": ["weather_*"], "actions": ["read"]}]},
        },
        "issuers": [
            {
                "issuer": ISSUER,
                "audience": AUDIENCE,
                "jwks_file": str(directory / "issuer.json"),
                "roles": ["owner"],
                "leeway_s": 0.0,
            }
        ],
    }


@pytest.fixture(scope="package")
def rights_world(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("rights")
    config = KafkaConfig(bootstrap=kafka.bootstrap)
    mine, other, totals = Feed(config), Feed(config), QueryFeed(config)
    fields: dict[str, list[Any]] = {"speed": [50.0], "secret": ["x"]}
    for device in ("car-1", "car-2"):
        mine.send(device, fields=fields)
    other.send("car-1", fields=fields)
    row = {"window_start": 1, "window_end": 2, "n": 7}
    totals.batch(1, [row, row | {"device": "car-1"}, row | {"device": "car-2"}], 2)
    maker = Maker()
    (port,) = free_ports(1)
    settings = {
        "name": f"access-{port}",
        "port": port,
        "cursor_key_file": str(key_file(directory)),
        "heartbeat_s": 1.0,
        "kafka": {"bootstrap": kafka.bootstrap},
        "rights": rights_of(directory, mine.name, totals.name, maker),
    }
    path = directory / "access.toml"
    path.write_text(tomli_w.dumps(settings))
    server = Server(port, part("access", path, directory / "access.log"))
    try:
        yield World(server.start(), maker, directory, mine, other, totals)
    finally:
        server.process.stop()
        for feed in (mine, other, totals):
            feed.close()
