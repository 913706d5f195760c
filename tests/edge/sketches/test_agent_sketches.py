"""The agent as a process: a stream stays, its sketches are sent, and a kill -9 leaves nothing out
of them.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from edgewake.protocol.sketches.sketch import STREAM, Numbers, parse
from tests.edge.helpers import json_of
from tests.edge.peer import Peer
from tests.edge.test_agent import config, edgewake
from tests.services import Mosquitto, part

pytestmark = pytest.mark.services

TABLES = """
[[source]]
type = "file_tail"
stream = "noise"
path = "{path}"
poll_s = 0.01
send = false

[[sketch]]
stream = "noise"
fields = ["db"]
kinds = ["numbers", "hll"]
window_s = 1
"""
T0, EVERY_MS, N = 1_790_000_000_000, 10, 1_050


async def test_sketches_are_sent_instead_of_readings_and_a_kill_leaves_nothing_out(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    lines, device = tmp_path / "noise.jsonl", "sketched"
    path = config(tmp_path, mosquitto.port, device, TABLES.format(path=lines))
    values = [60 + 9 * math.sin(n) for n in range(N)]
    async with Peer(mosquitto.port) as peer:

        def came() -> list[dict[str, Any]]:
            return peer.kept.readings(device, STREAM)

        agent = part("agent", path, tmp_path / "out")
        for begin in range(0, N, 350):
            before = len(came())
            agent.start()
            with lines.open("a") as file:
                for n in range(begin, begin + 350):
                    file.write(f'{{"t": {T0 + n * EVERY_MS}, "db": {values[n]!r}}}\n')
            await peer.until(lambda: len(came()) > before)  # noqa: B023
            if begin + 350 < N:
                agent.kill()
        await peer.until(lambda: len(came()) == 2 * (N * EVERY_MS // 1000))
        assert agent.stop() == 0
    found = [parse(fields) for fields in came()]
    assert [one.start_ms for one in found if one.kind == "numbers"] == [
        T0 + n * 1000 for n in range(N * EVERY_MS // 1000)
    ]
    for place, one in enumerate([one for one in found if one.kind == "numbers"]):
        inside = values[place * 100 : (place + 1) * 100]
        numbers = Numbers.decode(one.data)
        assert (one.readings, numbers.count, numbers.min, numbers.max) == (
            100,
            100,
            min(inside),
            max(inside),
        )
        assert math.isclose(numbers.sum, math.fsum(inside))
    said: Any = json_of(edgewake("status", "--config", path, "--json").stdout)
    assert (said["sketches"]["noise"]["counted"], said["sketches"]["noise"]["late"]) == (N, 0)
    assert peer.kept.readings(device, "noise") == []
