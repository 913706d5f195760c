"""An access server with rights, on the session's Kafka, and what is to be read from it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from pydantic import BaseModel

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.ops.board import Board, Card
from edgewake.protocol.ops.named_set import NamedSet
from edgewake.protocol.ops.publication import Publication
from tests.access.world import Server, key_file
from tests.feeds import Feed, QueryFeed, unique
from tests.push.service import Service
from tests.rights.forge import AUDIENCE, ISSUER, Maker, key_set, write
from tests.services import PATIENCE_S, Kafka, free_ports, part

KEPT: dict[str, Any] = {"version": 1, "changed_at": 0, "changed_by": "a test"}
KEYS = """
board everything board-key-00000001
guest guest guest-key-00000001
lost everything lost-key-000000001
single single single-key-0000001
narrow narrow narrow-key-00000001
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
            "owner_alone": {
                "grants": [
                    {"streams": [mine, totals], "devices": ["$device"], "fields": ["speed", "n"]}
                ]
            },
            "single": {"grants": [{"streams": [mine]}], "streams_max": 1},
            "narrow": {
                "grants": [{"streams": [mine]}],
                **dict.fromkeys(("leases_max", "deliveries_max", "groups_max"), 1),
            },
            "guest": {"grants": [{"streams": ["weather_*"], "actions": ["read"]}]},
        },
        "issuers": [
            {
                "issuer": ISSUER,
                "audience": AUDIENCE,
                "jwks_file": str(directory / "issuer.json"),
                "roles": ["owner", "owner_alone"],
                "leeway_s": 0.0,
            }
        ],
    }


@pytest.fixture(scope="package")
def rights_world(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_in(tmp_path_factory.mktemp("rights"), kafka) as world:
        yield world


@contextmanager
def world_in(directory: Path, kafka: Kafka) -> Iterator[World]:
    """A world of its own, for tests that write more into its streams."""
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


@pytest.fixture(scope="package")
def push(kafka: Kafka, rights_world: World) -> Iterator[Service]:
    world, (port,) = rights_world, free_ports(1)
    (world.directory / "lease.key").write_text("cd" * 32 + "\n")
    settings = {
        "name": f"push-{port}",
        "port": port,
        "cursor_key_file": str(world.directory / "cursor.key"),
        "lease_key_file": str(world.directory / "lease.key"),
        "allow_hosts": ["127.0.0.1"],
        "kafka": {"bootstrap": kafka.bootstrap},
        "rights": rights_of(world.directory, world.mine.name, world.totals.name, world.maker),
    }
    path = world.directory / "push.toml"
    path.write_text(tomli_w.dumps(settings))
    service = Service(f"http://127.0.0.1:{port}", part("push", path, world.directory / "push.log"))
    with service.process:
        service.until_ready()
        yield service


@dataclass(frozen=True)
class Names:
    """Of a publication, a set and a board that the role `owner` may use, and of some that it may
    not.
    """

    publication: str
    other_publication: str
    named_set: str
    other_set: str
    board: str
    other_board: str


@pytest.fixture(scope="package")
def names(rights_world: World) -> Iterator[Names]:
    words = ("pub_mine", "pub_other", "set_mine", "set_other", "board", "board")
    found = Names(*map(unique, words))
    rows: list[tuple[str, BaseModel]] = [
        (topics.SETS, NamedSet(name=name, members=("car-1", "car-2"), **KEPT))
        for name in (found.named_set, found.other_set)
    ]
    streams = (rights_world.other.name,)
    rows += [
        (topics.PUBLICATIONS, Publication(name=name, streams=streams, fields=("speed",), **KEPT))
        for name in (found.publication, found.other_publication)
    ]
    rows += [
        (
            topics.BOARDS,
            Board(name=name, title="B", cards=(Card(kind="table", source=stream),), **KEPT),
        )
        for name, stream in (
            (found.board, rights_world.mine.name),
            (found.other_board, rights_world.other.name),
        )
    ]
    producer = clients.producer(rights_world.other.config, "test-named")
    for topic, row in rows:
        producer.produce(topic, key=row.name, value=row.model_dump_json().encode())  # type: ignore[attr-defined]
    assert producer.flush(PATIENCE_S) == 0
    yield found
    for topic, row in rows:
        producer.produce(topic, key=row.name, value=None)  # type: ignore[attr-defined]
    producer.flush(PATIENCE_S)
