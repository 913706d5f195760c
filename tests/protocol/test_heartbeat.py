"""Signs of life."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgewake.protocol.clock import FakeClock
from edgewake.protocol.heartbeat import INTERVAL_S, Heartbeat
from tests.deploy.test_signs_of_life import listening, received


@pytest.mark.parametrize("kind", ["abstract", "path"])
def test_a_loop_that_turns_gives_a_sign_a_second(tmp_path: Path, kind: str) -> None:
    address = f"@edgewake-test-{os.getpid()}" if kind == "abstract" else str(tmp_path / "notify")
    clock = FakeClock()
    with listening(address) as listener:
        heartbeat = Heartbeat(clock, {"NOTIFY_SOCKET": address})
        assert received(listener) == [b"WATCHDOG=1"]
        for _ in range(50):
            heartbeat.beat()
        assert received(listener) == []
        clock.advance(INTERVAL_S)
        heartbeat.beat()
        assert received(listener) == [b"WATCHDOG=1"]
        heartbeat.allow(180)
        assert received(listener) == [b"WATCHDOG_USEC=180000000"]


def test_that_it_is_ready_is_said_at_once_and_again_with_every_sign(tmp_path: Path) -> None:
    """So that one lost datagram does not let systemd wait for the start until it kills it."""
    clock = FakeClock()
    with listening(str(tmp_path / "notify")) as listener:
        heartbeat = Heartbeat(clock, {"NOTIFY_SOCKET": str(tmp_path / "notify")})
        heartbeat.ready()
        clock.advance(INTERVAL_S)
        heartbeat.beat()
        assert received(listener) == [b"WATCHDOG=1", b"READY=1\nWATCHDOG=1", b"READY=1\nWATCHDOG=1"]


def test_a_listener_that_is_gone_or_full_harms_nobody(tmp_path: Path) -> None:
    clock = FakeClock()
    Heartbeat(clock, {"NOTIFY_SOCKET": str(tmp_path / "nobody")}).beat()
    with listening(str(tmp_path / "notify")):
        heartbeat = Heartbeat(clock, {"NOTIFY_SOCKET": str(tmp_path / "notify")})
        for _ in range(2000):
            clock.advance(INTERVAL_S)
            heartbeat.beat()
