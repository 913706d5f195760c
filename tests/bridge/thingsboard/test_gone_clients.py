"""Clients that are gone in the midst of a file: their device's turn is free again."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx
import mqtt5
import pytest

from edgewake.cloud.bridge.http_config import ThingsBoardConfig
from edgewake.cloud.bridge.outbox import Outbox
from edgewake.cloud.bridge.thingsboard import door as mqtt_door
from edgewake.cloud.bridge.thingsboard.firmware import FILE_BYTES_MAX, Firmware
from edgewake.cloud.bridge.thingsboard.memory import Memory
from edgewake.cloud.web import gone, http_part
from edgewake.protocol.clock import SystemClock
from tests.bridge.thingsboard.test_device_api import Here
from tests.bridge.thingsboard.test_hostile_clients import Told
from tests.feeds import eventually
from tests.services import PATIENCE_S, free_ports, port_is_open

NAMED: Final = {"title": "heater", "version": "3.0"}
OFFERED: Final = {"fw_title": "heater", "fw_version": "3.0"}
LOADER: Final = """
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
path = b"/api/v1/T-BOILER/firmware?title=heater&version=3.0"
s.sendall(b"GET " + path + b" HTTP/1.1\\r\\nHost: b\\r\\n\\r\\n")
s.recv(1000)
print("begun", flush=True)
sys.stdin.read()
"""
"""Takes a little of a file, and then nothing more."""


@asynccontextmanager
async def served(here: Here, folder: Path) -> AsyncIterator[int]:
    """The door at a port, with a file that no buffer holds."""
    (folder / "fw" / "heater" / "3.0").write_bytes(bytes(FILE_BYTES_MAX))
    here.firmware.look()
    here.memory.keep("boiler", "boiler", "shared", OFFERED)
    (listener,) = listeners = http_part.bind_all(("127.0.0.1",), 0)
    gone.notice_gone(listeners)
    stop = asyncio.Event()
    serving = http_part.serve(here.door, listeners, stop=stop, on_ready=lambda: None)
    task = asyncio.create_task(serving)
    try:
        yield listener.getsockname()[1]
    finally:
        stop.set()
        await task


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_download_whose_client_is_gone_frees_its_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: signal.Signals
) -> None:
    """One that was killed, and one whose machine says nothing any more: it takes no byte."""
    monkeypatch.setattr(gone, "GONE_S", 1.0)
    here = Here(tmp_path)
    async with served(here, tmp_path) as port, httpx.AsyncClient(timeout=PATIENCE_S) as client:
        command = [sys.executable, "-c", LOADER, str(port)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as loader:
            assert loader.stdout is not None
            try:
                await asyncio.to_thread(loader.stdout.readline)
                url = f"http://127.0.0.1:{port}/api/v1/T-BOILER/firmware"

                async def status() -> int:
                    async with client.stream("GET", url, params=NAMED) as answer:
                        return answer.status_code

                assert await status() == 429, "its turn is taken"
                os.kill(loader.pid, how)
                async with asyncio.timeout(PATIENCE_S):
                    while await status() == 429:
                        await asyncio.sleep(0.05)
            finally:
                loader.kill()


async def test_a_client_that_takes_nothing_of_a_file_by_mqtt_frees_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gone, "GONE_S", 1.0)
    (tmp_path / "fw" / "heater").mkdir(parents=True)
    (tmp_path / "fw" / "heater" / "3.0").write_bytes(bytes(FILE_BYTES_MAX))
    tokens = tmp_path / "tokens"
    tokens.write_text("DEAF deaf\n")
    tokens.chmod(0o600)
    (port,) = free_ports(1)
    config = ThingsBoardConfig(
        host="127.0.0.1", port=port, tokens_file=tokens, firmware_dir=tmp_path / "fw"
    )
    firmware, memory = Firmware(config.firmware_dir), Memory("one", "bridge-1")
    firmware.look()
    memory.keep("deaf", "deaf", "shared", OFFERED)
    doors: list[mqtt_door.Door] = []
    made = mqtt_door.Door.__init__

    def noted(self: mqtt_door.Door, *args: object) -> None:
        doors.append(self)
        made(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(mqtt_door.Door, "__init__", noted)
    serving = asyncio.create_task(
        mqtt_door.serve(config, Told(), Outbox(), memory, firmware, SystemClock())
    )
    try:
        await eventually(lambda: port_is_open(port), "it is served")
        with socket.create_connection(("127.0.0.1", port)) as deaf:
            said = [
                mqtt5.ConnectPacket("c", username="DEAF"),
                mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("v2/fw/response/+/chunk/+")]),
                mqtt5.PublishPacket("v2/fw/request/1/chunk/0", b"0"),
            ]
            deaf.sendall(b"".join(one.write() for one in said))
            (door,) = doors
            await eventually(lambda: door.whole_files_of == {"deaf"}, "the file is sent")
            await eventually(lambda: door.whole_files_of == set(), "its turn is free")
        assert not door.clients
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
