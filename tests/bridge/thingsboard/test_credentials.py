"""Whose credentials were taken back, and who speaks for whom, at the door for ThingsBoard."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from edgewake.cloud import passwords
from tests.bridge.thingsboard.test_hostile_clients import here
from tests.bridge.web.conftest import PASSWORD
from tests.feeds import eventually

TOKENS = "DEAF deaf\nQUIET quiet\n"


def write(path: Path, *names: str) -> Path:
    """Passwords of these devices."""
    path.write_text(
        passwords.text_of({one: passwords.entry(PASSWORD, os.urandom) for one in names})
    )
    return path


async def test_a_gateway_whose_token_is_taken_back_is_none_by_its_password(tmp_path: Path) -> None:
    file = write(tmp_path / "passwords", "gate")
    async with here(tmp_path, password_file=file) as site:
        await site.door.look()
        async with site.client("GATE") as gate, site.client(f"gate:{PASSWORD}", "own") as own:
            (tmp_path / "tokens").write_text(TOKENS)
            await site.door.look()
            await gate.ended()
            await own.is_heard()


async def test_a_password_that_is_taken_back_ends_its_connection_whoever_read_the_file_first(
    tmp_path: Path,
) -> None:
    file = write(tmp_path / "passwords", "oven", "stove")
    async with here(tmp_path, password_file=file) as site:
        await site.door.look()
        async with (
            site.client(f"oven:{PASSWORD}") as oven,
            site.client(f"stove:{PASSWORD}") as stove,
        ):
            write(file, "stove")
            async with site.client("oven:wrong", "another"):
                pass
            await site.door.look()
            await oven.ended()
            await stove.is_heard()


async def test_firmware_that_is_read_for_long_keeps_nobody_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with here(tmp_path) as site:
        await site.door.look()
        async with site.client("GATE") as gate:
            is_read = threading.Event()
            monkeypatch.setattr(site.door.firmware, "look", is_read.wait)
            (tmp_path / "tokens").write_text(TOKENS)
            looking = asyncio.create_task(site.door.look())
            try:
                await gate.ended()
            finally:
                is_read.set()
                await looking


async def test_a_device_with_a_token_of_its_own_is_behind_no_gateway(tmp_path: Path) -> None:
    """It sends for it all the same. Control: the press has none, until it gets one."""
    async with here(tmp_path) as site:
        await site.door.look()
        present, memory = site.door._present, site.door.memory
        async with site.client("GATE") as gate:
            gate.says("v1/gateway/connect", {"device": "quiet"})
            gate.says("v1/gateway/attributes", {"quiet": {"a": 1}, "press": {"a": 2}})
            gate.says("v1/gateway/telemetry", {"quiet": [{"ts": 1, "values": {"b": 3}}]})
            await gate.is_heard()
            assert not present.of("quiet")
            assert (memory.of("quiet").client, memory.of("press").client) == ({}, {"a": 2})
            (client,) = present.of("press")
            assert client.holder.device == "gate"
            ups = [topic for _, topic, _ in site.bridge.told if "/quiet/up/" in topic]
            assert "ew/v1/quiet/up/thingsboard" in ups
            (tmp_path / "tokens").write_text(TOKENS + "GATE gate gateway\nPRESS press\n")
            await site.door.look()
            assert not present.of("press")
            assert memory.here() == ["gate"]
            await gate.is_heard()


async def test_a_device_is_there_while_one_connection_speaks_for_it(tmp_path: Path) -> None:
    async with here(tmp_path) as site, site.client("GATE", "a") as one:
        async with site.client("GATE", "b") as other:
            for gate in (one, other):
                gate.says("v1/gateway/connect", {"device": "press"})
                await gate.is_heard()
            other.says("v1/gateway/disconnect", {"device": "press"})
            await other.is_heard()
            assert "press" in site.door.memory.here()
            one.says("v1/gateway/disconnect", {"device": "press"})
            await one.is_heard()
            assert "press" not in site.door.memory.here()
        await eventually(lambda: len(site.door.clients) == 1, "the other one has left")
