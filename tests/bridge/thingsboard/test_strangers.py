"""Strangers at the door of ThingsBoard's devices: counted by network, and logged at a pace."""

from __future__ import annotations

import asyncio
import itertools
import logging
from pathlib import Path
from unittest import mock

import mqtt5
import pytest

from edgewake.cloud.bridge.http_config import ThingsBoardConfig
from edgewake.cloud.bridge.outbox import Outbox
from edgewake.cloud.bridge.thingsboard.door import Door
from edgewake.cloud.bridge.thingsboard.firmware import Firmware
from edgewake.cloud.bridge.thingsboard.memory import Memory
from edgewake.cloud.log_pace import LINES_MAX, PER_S, LogPace
from edgewake.protocol.clock import FakeClock
from tests.bridge.thingsboard.test_hostile_clients import Told

LOGGER = "edgewake.bridge.thingsboard"
HELLO = mqtt5.ConnectPacket("c", username="NOBODY").write()


def made(folder: Path, clock: FakeClock) -> Door:
    """A door with room for eight connections, two of each client."""
    file = folder / "tokens"
    file.write_text("DEAF deaf\n")
    config = ThingsBoardConfig(port=1, tokens_file=file, connections_max=8, address_share=0.25)
    return Door(config, Told(), Outbox(), Memory("one", "bridge-1"), Firmware(None), clock)


def writer_to(address: str) -> mock.Mock:
    """The other side is there; what is written to it is of no concern."""
    found = mock.Mock(spec=asyncio.StreamWriter)
    found.get_extra_info.return_value = (address, 50_000)
    found.transport = mock.Mock(spec=asyncio.Transport)
    found.transport.get_write_buffer_size.return_value = 0
    return found


async def test_addresses_of_one_network_share_one_part_of_the_bound(tmp_path: Path) -> None:
    """A network of IPv6 has 2^64 addresses: counted one by one they were as many clients."""
    door = made(tmp_path, FakeClock())
    open_ones = []
    try:
        for n in range(6):
            writer = writer_to(f"2001:db8:0:1::{n:x}")
            served = asyncio.create_task(door.serve(asyncio.StreamReader(), writer))
            await asyncio.sleep(0)
            open_ones.append((served, writer))
        assert [writer.close.called for _, writer in open_ones] == [False] * 2 + [True] * 4
        other = writer_to("2001:db8:0:2::1")
        served = asyncio.create_task(door.serve(asyncio.StreamReader(), other))
        await asyncio.sleep(0)
        open_ones.append((served, other))
        assert not other.close.called, "another network has its own part"
    finally:
        for served, _ in open_ones:
            served.cancel()
        await asyncio.gather(*(served for served, _ in open_ones), return_exceptions=True)


@pytest.mark.parametrize("first_bytes", [HELLO, b"\xff" * 20], ids=["no token", "no MQTT"])
async def test_what_strangers_do_is_logged_at_a_pace_and_names_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, first_bytes: bytes
) -> None:
    clock = FakeClock()
    door = made(tmp_path, clock)

    async def knocks(address: str) -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(first_bytes)
        reader.feed_eof()
        await door.serve(reader, writer_to(address))

    with caplog.at_level(logging.INFO, LOGGER):
        for n in range(50):
            await knocks(f"2001:db8:0:1::{n:x}")
        await knocks("192.0.2.7")
        assert len(caplog.messages) == 2, "one of each client"
        assert caplog.messages[0].startswith("2001:db8:0:1::/64: ")
        assert caplog.messages[1].startswith("192.0.2.7: ")
        clock.advance(PER_S)
        await knocks("192.0.2.7")
    assert len(caplog.messages) == 3
    assert not caplog.messages[2].endswith("not logged)"), "all were told with the last line"


def test_the_next_line_says_how_many_were_left_out() -> None:
    pace = LogPace(per_s=10, lines_max=2)
    assert [pace.left_out(client, 0) for client in "aabbc"] == [0, None, 1, None, None]
    assert pace.left_out("a", 9.9) is None
    assert [pace.left_out("a", 10), pace.left_out("c", 10)] == [3, 0]


def test_a_pace_is_bounded_and_remembers_few_whoever_comes() -> None:
    pace = LogPace()
    times = (n / 1000 for n in itertools.count())
    said = [pace.left_out(f"client-{n}", next(times)) for n in range(100_000)]
    lines = [one for one in said if one is not None]
    assert len(lines) == LINES_MAX * 10, "100 s"
    assert sum(lines) + len(lines) == 100_000 - (10_000 - LINES_MAX), "but for the last span's"
    assert len(pace._said) <= LINES_MAX
