"""Following a WebSocket: messages, resuming, and servers that misbehave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    Ping,
    Pong,
    RejectConnection,
    Request,
    TextMessage,
)

from edgewake.edge.sources.config import TimeConfig
from edgewake.edge.sources.web.websocket_pull import WebSocketPullConfig, last_value
from tests.edge.sources.cage import Handler, answered, caged, head_of, served

EIGHT_MS = 1_794_988_800_000


def config(port: int, path: str = "/", **more: object) -> WebSocketPullConfig:
    return WebSocketPullConfig(
        type="websocket_pull", stream="s", url=f"ws://127.0.0.1:{port}{path}", **more
    )  # type: ignore[arg-type]


class Peer:
    """The server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._protocol = WSConnection(ConnectionType.SERVER)
        self.target = ""

    async def accept(self) -> None:
        self._protocol.receive_data(await self._reader.readuntil(b"\r\n\r\n"))
        (request,) = self._protocol.events()
        assert isinstance(request, Request)
        self.target = request.target
        self.send(AcceptConnection())

    def send(self, *events: object) -> None:
        for event in events:
            self._writer.write(self._protocol.send(event))  # type: ignore[arg-type]

    async def hears(self, kind: type) -> object:
        while True:
            self._protocol.receive_data(await self._reader.read(65536) or None)
            for event in self._protocol.events():
                if isinstance(event, kind):
                    return event


def by(script: Callable[[Peer], Awaitable[None]]) -> Handler:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        await peer.accept()
        await script(peer)
        await reader.read()

    return handler


async def test_messages_become_readings_and_the_server_is_told_where_to_go_on(
    tmp_path: Path,
) -> None:
    hellos: list[str] = []

    async def script(peer: Peer) -> None:
        hello = await peer.hears(TextMessage)
        hellos.append(f"{peer.target} {hello.data}")  # type: ignore[attr-defined]
        after = int(peer.target.partition("=")[2] or 0)
        peer.send(
            TextMessage(f'{{"n": {after + 1}}}'),
            BytesMessage(b'[{"n": %d}]' % (after + 2)),
            TextMessage("nonsense"),
        )
        peer.send(
            TextMessage('{"n": ', message_finished=False),
            Ping(b"x"),
            TextMessage(f"{after + 3}" + "}"),
        )
        await peer.hears(Pong)

    async with served(by(script)) as port:
        to = config(port, "/x?after={resume}", hello='{"go": "{resume}"}', resume_field="n")
        for _ in range(3):
            async with caged(tmp_path, to, answering=False) as one:
                await one.until(lambda: one.intake.taken == 3, "three readings")
        async with caged(tmp_path, config(1), answering=False) as one:
            await one.until(lambda: len(one.column("n")) == 9, "what the log holds")
            got = one.column("n")
    assert hellos == ['/x?after= {"go": ""}', '/x?after=3 {"go": "3"}', '/x?after=6 {"go": "6"}']
    assert got == list(range(1, 10))


@pytest.mark.parametrize(
    "what", ["endless message", "silent", "closes", "refuses", "no websocket", "garbage"]
)
async def test_a_server_that_misbehaves_is_left_and_asked_again(tmp_path: Path, what: str) -> None:
    says = {
        "endless message": "a message of more than 2048 bytes", "silent": "nothing heard",
        "closes": "closed by the server",
        "refuses": "HTTP 403", "no websocket": "HTTP 200", "garbage": "code 1002",
    }[what]  # fmt: skip

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        if what == "no websocket":
            await head_of(reader)
            writer.write(answered(b"{}"))
        elif what == "refuses":
            peer._protocol.receive_data(await reader.readuntil(b"\r\n\r\n"))
            list(peer._protocol.events())
            peer.send(RejectConnection(status_code=403))
        else:
            await peer.accept()
        if what == "endless message":
            peer.send(*(TextMessage("x" * 1000, message_finished=False) for _ in range(100)))
        elif what == "garbage":
            writer.write(b"\xff" * 100)
        await writer.drain()
        if what != "closes":
            await reader.read()

    async with (
        served(handler) as port,
        caged(tmp_path, config(port, message_bytes_max=2048, silence_s=1.0)) as one,
    ):
        await one.failed(says)
        await one.until(lambda: one.supervisor.failures >= 2, "another try")


def test_the_last_value_of_the_field_that_resumes() -> None:
    assert last_value([{"n": 1}, b'{"n": 2}', {"m": 3}], "n", "") == "2"
    assert last_value([{"n": True}, b"{", 5], "n", "7") == "7"
    assert last_value([{"n": "x" * 2000}], "n", "7") == "7"


def rsvp(n: int) -> str:
    """A message in the form of Meetup's stream of answers to invitations."""
    return json.dumps(
        {
            "venue": {"venue_name": "Hall", "lon": 13.4, "lat": 52.5, "venue_id": 7},
            "visibility": "public",
            "response": "yes",
            "guests": 0,
            "member": {"member_id": n, "photo": "http://example.com/p", "member_name": "A"},
            "rsvp_id": 1000 + n,
            "mtime": EIGHT_MS + n,
            "event": {
                "event_name": "Meeting",
                "event_id": "e1",
                "time": EIGHT_MS + 3_600_000,
                "event_url": "http://example.com/e",
            },
            "group": {
                "group_topics": [{"urlkey": "data", "topic_name": "Data"}, {"urlkey": "it"}],
                "group_city": "Berlin",
                "group_lat": 52.5,
            },
        }
    )


@pytest.mark.parametrize("rename", [{}, {"event.time": "starts_at", "venue.venue_id": "thing"}])
async def test_nested_messages_are_taken_whole_with_names_of_ones_choice(
    tmp_path: Path, rename: dict[str, str]
) -> None:
    """All 40 of 40 were refused: `event.time` became the name `event_time`, which is ours."""

    async def script(peer: Peer) -> None:
        for n in range(40):
            peer.send(TextMessage(rsvp(n)))

    async with served(by(script)) as port:
        to = config(port, rename=rename, time=TimeConfig(field="mtime"))
        async with caged(tmp_path, to) as one:
            await one.until(lambda: len(one.times()) == 40, "all")
            assert one.intake.refused == {}
            assert one.times() == [EIGHT_MS + n for n in range(40)]
            assert set(one.column(rename.get("event.time", "event_time_"))) == {
                EIGHT_MS + 3_600_000
            }
            assert set(one.column(rename.get("venue.venue_id", "venue_venue_id"))) == {7}
            assert one.column("member_member_id") == [*range(40)]
