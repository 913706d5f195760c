"""Lines that come in datagrams."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

import pytest

from edgewake.edge.sources.lines import udp_lines
from edgewake.edge.sources.lines.udp_lines import UdpLinesConfig
from tests.edge.sources.cage import caged
from tests.edge.sources.lines.test_more_lines import T_MS


async def test_line_protocol_comes_in_datagrams(tmp_path: Path) -> None:
    port = _free_udp_port()
    config = UdpLinesConfig.checked({"type": "udp_lines", "stream": "s", "port": port})
    async with caged(tmp_path, config) as one:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.connect(("127.0.0.1", port))

            def is_heard() -> bool:
                with suppress(ConnectionRefusedError):
                    sender.send(b"# a comment\nnonsense\n")
                return bool(one.intake.refused)

            await one.until(is_heard, "the port")
            lines = f"cpu,host=a usage=1.5 {T_MS}000000\ncpu,host=b usage=2i {T_MS + 1}000000"
            sender.send(lines.encode())
        await one.until(lambda: one.column("usage") == [1.5, 2], "both points")
        assert (one.column("measurement"), one.column("host")) == (["cpu", "cpu"], ["a", "b"])
        assert one.times() == [T_MS, T_MS + 1]
        assert set(one.intake.refused) == {"shape"}


def _free_udp_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


async def test_datagrams_that_find_no_room_are_counted_by_their_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tests.edge.sources.sink import MemorySink, intake_of

    monkeypatch.setattr(udp_lines, "WAITING_BYTES_MAX", 10)
    intake = intake_of(MemorySink())
    waiting = udp_lines.Waiting(intake)
    waiting.datagram_received(b"12345", None)
    waiting.datagram_received(b"a b=1\nc d=2\n", None)
    assert (await waiting.next(), intake.refused) == ([b"12345"], {"quota": 2})
    waiting.datagram_received(b"1234567890", None)
    assert await waiting.next() == [b"1234567890"], "control: room again"
