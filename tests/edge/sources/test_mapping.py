"""Maps at sources of lines and of documents, whose messages have no topic of their own."""

from __future__ import annotations

import os
import pty
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from wsproto.events import TextMessage

from edgewake.edge.intake.field_book import FieldBook
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.intake.many_streams import ManyStreams
from edgewake.edge.sources import mapping
from edgewake.edge.sources.config import SourceContext
from edgewake.edge.sources.mapping import MessageMaps
from edgewake.edge.things.streams import STREAM
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.errors import ConfigError
from tests.edge.sources.cage import answered, caged, configured, served
from tests.edge.sources.lines.test_tcp_lines import saying
from tests.edge.sources.sink import MemorySink
from tests.edge.sources.web.test_http_poll import always
from tests.edge.sources.web.test_sse_pull import HEAD
from tests.edge.sources.web.test_websocket_pull import Peer, by

MAP: Final = """
[[map]]
topic = "source/s"
others = "drop"
each = "in"
[map.fields]
v = { name = "heat", as = "number", scale = 0.1, unit = "Cel" }
"""
MESSAGES: Final = ('{"in": [{"v": "215"}, {"v": 220}]}', "{broken", '{"in": [{"v": 225}]}')
LINES: Final = "".join(f"{one}\n" for one in MESSAGES).encode()
EVENTS: Final = HEAD + "".join(f"data: {one}\n\n" for one in MESSAGES).encode()


async def _say_all(peer: Peer) -> None:
    peer.send(*(TextMessage(one) for one in MESSAGES))


@asynccontextmanager
async def _http(answer: bytes, scheme: str = "http") -> AsyncIterator[dict[str, Any]]:
    handler = always(answer) if scheme == "http" else by(_say_all)
    async with served(handler) as port:
        yield {"url": f"{scheme}://127.0.0.1:{port}/"}


@asynccontextmanager
async def _world(
    type_: str, path: Path
) -> AsyncIterator[tuple[dict[str, Any], Callable[[], object]]]:
    """What brings MESSAGES to a kind of source: its keys, and what to do until they have come."""
    file = path / "lines"
    file.write_bytes(LINES)
    if type_ == "exec":
        program = f"import sys, time; sys.stdout.write({LINES.decode()!r}); sys.stdout.flush()"
        yield {"command": [sys.executable, "-c", f"{program}; time.sleep(600)"]}, lambda: None
    elif type_ == "file_tail":
        yield {"path": str(file)}, lambda: None
    elif type_ == "tcp_lines":
        async with served(saying(LINES)) as port:
            yield {"host": "127.0.0.1", "port": port, "format": "json"}, lambda: None
    elif type_ == "udp_lines":
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.bind(("127.0.0.1", 0))
            port = sender.getsockname()[1]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.connect(("127.0.0.1", port))

            def send() -> None:
                with suppress(ConnectionRefusedError):  # nobody listens yet
                    sender.send(LINES)

            yield {"port": port}, send
    elif type_ == "serial_lines":
        ours, theirs = pty.openpty()
        try:
            yield {"path": os.ttyname(theirs)}, lambda: os.write(ours, LINES)
        finally:
            os.close(ours)
            os.close(theirs)
    elif type_ == "http_lines":
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n"
        async with _http(head + LINES) as keys:
            yield keys, lambda: None
    elif type_ == "sse_pull":
        async with _http(EVENTS) as keys:
            yield keys, lambda: None
    else:
        async with _http(b"", "ws") as keys:
            yield keys, lambda: None


KINDS: Final = (
    "exec", "file_tail", "tcp_lines", "udp_lines", "serial_lines", "http_lines", "sse_pull",
    "websocket_pull",
)  # fmt: skip


@pytest.mark.parametrize("type_", KINDS)
async def test_each_line_event_or_message_is_one_of_a_map(type_: str, tmp_path: Path) -> None:
    async with _world(type_, tmp_path) as (keys, urge):
        config = configured(type_, maps_text=MAP, **keys)
        async with caged(tmp_path / "log", config) as one:

            def has_come() -> bool:
                if {*one.column("heat")} == {21.5, 22.0, 22.5}:
                    return True
                urge()
                return False

            await one.until(has_come, "three readings")
            assert one.intake.refused["json"] >= 1
            assert one.units() == {"heat": "Cel"}


async def test_the_answer_to_a_poll_is_one_message(tmp_path: Path) -> None:
    async with served(always(answered(MESSAGES[0].encode()))) as port:
        config = configured(
            "http_poll", url=f"http://127.0.0.1:{port}/", maps_text=MAP, interval_s=3600
        )
        async with caged(tmp_path, config) as one:
            await one.until(lambda: one.column("heat") == [21.5, 22.0], "both")


async def test_a_preset_reads_the_output_of_its_program_under_the_topic_that_is_said(
    tmp_path: Path,
) -> None:
    text = '{"time": "2026-03-01 08:15:30", "model": "Nexus-TH", "id": 44, "temperature_C": 20.1}'
    config = configured(
        "exec",
        command=[
            sys.executable,
            "-c",
            f"print({text!r}, flush=True); import time; time.sleep(600)",
        ],
        presets=["rtl-433"],
        topic="rtl_433/attic/events",
        streams="all",
    )
    books: dict[str, FieldBook] = {"s": FieldBook(), "rtl_433": FieldBook()}
    sink = MemorySink()
    intake = ManyStreams(
        "source", sink, Policy.BLOCK, FakeClock(),
        book=books["s"], book_of=books.__getitem__, book_prefix="",
    )  # fmt: skip
    context = SourceContext("d", FakeClock(), lambda _: None, streams=frozenset({"s"}))
    maps = MessageMaps(config, context)
    assert await intake.put(intake.check_all(maps.bodies(intake, text.encode())))
    ((at_ms, fields),) = sink.readings
    assert at_ms == 1_772_352_930_000
    assert (fields[STREAM], fields["thing"]) == ("rtl_433", "Nexus-TH-44")
    assert books["rtl_433"].said()["temperature"] == {"unit": "Cel"}


async def test_a_file_that_changes_is_in_use_for_what_comes_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapping, "LOOK_S", 0.0)
    file, followed = tmp_path / "maps.toml", tmp_path / "lines"
    file.write_text(MAP)
    followed.touch()
    config = configured("file_tail", path=str(followed), maps=str(file))
    async with caged(tmp_path / "log", config) as one:

        def add() -> None:
            with followed.open("ab") as lines:
                lines.write(LINES)

        add()
        await one.until(lambda: one.column("heat"), "the first")
        file.write_text(MAP.replace("heat", "cold"))

        def is_new() -> bool:
            add()
            return any(value is not None for value in one.column("cold"))

        await one.until(is_new, "the other name")


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"topic": "a/b"}, "expected `maps`, `maps_text` or `presets` with them"),
        ({"streams": "all"}, "expected `maps`, `maps_text` or `presets` with them"),
        ({"presets": ["rtl-433"], "maps_text": MAP}, "expected one of `maps`"),
        ({"presets": ["rtl-433"], "streams": "all"}, "no map takes 'source/s'"),
        ({"maps_text": MAP, "topic": "x"}, "no map takes 'x': expected one of source/s"),
        ({"maps_text": MAP, "topic": "source/+"}, "without \\+ and #"),
        ({"maps_text": MAP.replace("others", 'stream = "x"\nothers')}, "no map gives the stream"),
        ({"maps_text": MAP, "streams": "all", "mode": "one_way"}, "readings that are kept"),
        ({"maps_text": MAP, "items": "a"}, "`each` of a map says it"),
    ],
)
def test_what_does_not_fit_together_is_said_before_the_start(keys: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        configured("http_poll", url="http://127.0.0.1/", **keys)


def test_a_file_that_takes_another_topic_is_said_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "maps.toml"
    file.write_text(MAP)
    config = configured("exec", command=["/bin/true"], maps=str(file), topic="a/b")
    context = SourceContext("d", FakeClock(), lambda _: None)
    with pytest.raises(ConfigError, match="no map takes the topic 'a/b' of this source"):
        config.source(context)
