"""A link of 64 kbit/s and worse, between the agent and a real Mosquitto.

The backlog cannot be compressed.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from edgewake.edge.liveness import Liveness, Outgoing
from tests.edge.helpers import reading
from tests.edge.peer import Peer
from tests.edge.running import Running, running
from tests.services import PATIENCE_S, Mosquitto
from tests.throttling_proxy import throttling_proxy

LINK = 8_000
"""Bytes per second: 64 kbit/s."""


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.02)


async def put_waveforms(one: Running, count: int) -> None:
    """Readings of 6 KB."""
    log = one.events.stream("waveform")
    rows = (
        (1_790_000_000_000 + n, {"n": n, "w": base64.b64encode(os.urandom(4_500)).decode()})
        for n in range(count)
    )
    await log.accepted(log.append_all(rows))


@pytest.mark.long
async def test_a_backlog_gets_through_a_slow_link_and_another_stream_between(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    """20 s of backlog; the keepalive is 2 s. Nothing is sent twice, no connection is cut."""
    async with (
        Peer(mosquitto.port) as peer,
        throttling_proxy(mosquitto.port, bytes_per_s=LINK) as link,
        running(tmp_path, link.port, "slow-1", keepalive_s=2, frame_readings_max=1000) as one,
    ):
        await put_waveforms(one, 27)
        await peer.until(lambda: link.carried > 2_000)
        alarm = one.events.stream("alarm")
        await alarm.accepted(alarm.append(reading(1)))
        await peer.until(
            lambda: any(taken.stream == "alarm" for taken in peer.taken), timeout_s=PATIENCE_S
        )
        before = sum(len(taken.frame.t) for taken in peer.taken if taken.stream == "waveform")
        assert before < 27, "the alarm was to overtake the backlog"
        await peer.until(
            lambda: (
                [row["n"] for row in peer.kept.readings("slow-1", "waveform")] == list(range(27))
            ),
            timeout_s=PATIENCE_S,
        )
        assert link.connections == 1
        assert one.uplink.session.resent == 0


@pytest.mark.long
async def test_control_without_outgoing_progress_the_link_is_cut_for_ever(
    tmp_path: Path, mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Liveness.check
    monkeypatch.setattr(
        Liveness, "check", lambda self, now_s, _, oldest: check(self, now_s, Outgoing(0, 0), oldest)
    )
    async with (
        Peer(mosquitto.port) as peer,
        throttling_proxy(mosquitto.port, bytes_per_s=1_000) as link,
        running(
            tmp_path, link.port, "slow-2", keepalive_s=1, frame_readings_max=1000, drain_s=0
        ) as one,
    ):
        await put_waveforms(one, 20)
        await until(lambda: link.connections >= 3)
        assert not peer.taken
