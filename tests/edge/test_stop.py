"""What never answers holds up nobody's stop: a name server, a disk.

What waits for them is forgotten when it is cancelled.
"""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from edgewake.edge.sources.machines.modbus_tcp import ModbusTcpConfig
from edgewake.edge.sources.web.http_client import Request, answer, parse_url
from edgewake.edge.uplink.config import UplinkConfig
from edgewake.edge.uplink.quarantine import Quarantine
from edgewake.edge.uplink.refused import Refused
from edgewake.edge.uplink.route import Route
from edgewake.edge.uplink.session import UplinkSession
from edgewake.protocol.broker import BrokerConfig
from edgewake.protocol.clock import FakeClock, SystemClock
from edgewake.protocol.errors import RejectReason
from tests.edge.helpers import opened
from tests.edge.sources.sink import MemorySink, context, intake_of
from tests.edge.uplink.test_session import out, streaming
from tests.services import PATIENCE_S

Life = Callable[[], Coroutine[Any, Any, object]]


class Silent:
    """A call that is reached and does not come back until the test is over."""

    def __init__(self) -> None:
        self.reached, self.over = threading.Event(), threading.Event()

    def __call__(self, *_: object, **__: object) -> list[object]:
        self.reached.set()
        self.over.wait(4 * PATIENCE_S)
        return []


def stops(life: Life, silent: Silent) -> bool:
    """Does a loop end whose task is cancelled while it waits for what is silent?"""

    async def main() -> None:
        task = asyncio.create_task(life())
        while not silent.reached.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.wait({task})

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    thread.join(PATIENCE_S / 2)
    ended = not thread.is_alive()
    silent.over.set()
    thread.join(PATIENCE_S)
    return ended


async def look_for_home() -> None:
    """The uplink is at another broker and looks whether home answers."""
    clock = FakeClock()
    addresses = [BrokerConfig(host="home.example"), BrokerConfig(host="other.example")]
    route = Route(addresses, UplinkConfig(home_after_s=10), clock, random.Random(1))
    for _ in range(3):
        route.choose()
        route.ended()
    clock.advance(1)
    while route.is_home:
        route.choose()
    route.connected()
    clock.advance(11)
    route.look_for_home(lambda: None)
    try:
        await asyncio.sleep(4 * PATIENCE_S)
    finally:
        route.ended()


async def ask_a_modbus_device() -> None:
    values = {
        "type": "modbus_tcp",
        "stream": "s",
        "host": "plc.example",
        "point": [{"name": "a", "address": 0}],
    }
    await ModbusTcpConfig.checked(values).source(context()).run(intake_of(MemorySink()))


async def ask_a_web_server() -> None:
    async with answer(Request(parse_url("http://web.example/")), None):
        pass


@pytest.mark.parametrize("life", [look_for_home, ask_a_modbus_device, ask_a_web_server])
def test_a_name_server_that_is_silent_holds_up_no_stop(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = Silent()
    monkeypatch.setattr(socket, "getaddrinfo", silent)
    assert stops(life, silent)


def test_the_control_asyncios_own_look_up_holds_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = Silent()
    monkeypatch.setattr(socket, "getaddrinfo", silent)
    monkeypatch.setattr("tests.edge.test_stop.PATIENCE_S", 0.5)
    assert not stops(lambda: asyncio.open_connection("any.example", 1), silent)


def refused(
    session: UplinkSession, directory: Path, events: Any, quarantine: Quarantine | None = None
) -> Refused:
    return Refused(session, events, quarantine or Quarantine(directory), SystemClock())


def test_a_disk_that_does_not_answer_holds_up_no_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = Silent()
    monkeypatch.setattr(Quarantine, "keep", silent)
    with opened(tmp_path) as events:
        found = refused(streaming(out(1)), tmp_path, events)
        assert found.add(out(1), RejectReason.OVERSIZE, "why")
        assert stops(found.keep, silent)
