"""The payloads of every preset, and broken bytes, through a real broker and the agent's source; the
readings themselves are compared in `tests/bridge/admission/test_preset_corpus.py`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from paho.mqtt import publish

from edgewake.edge.sources.mqtt.mqtt_subscribe import MqttSubscribeConfig
from edgewake.protocol.broker import BrokerConfig
from edgewake.protocol.maps import presets
from tests.edge.sources.cage import caged
from tests.payloads.corpus import messages, payload_of
from tests.services import PATIENCE_S, Mosquitto

pytestmark = pytest.mark.services
BROKEN: Final = (b"", b"{", b"\xff\xfe\x00", b"[[[[", b'{"a":', b"nan,,=\n", b"\x0a\xff\xff\xff")


@pytest.mark.parametrize(
    "preset",
    [
        pytest.param(name, marks=[pytest.mark.long] if number % 5 else [])
        for number, name in enumerate(presets.names())
    ],
)
async def test_the_payloads_of_a_preset_become_readings_of_an_agent(
    preset: str, tmp_path: Path, mosquitto: Mosquitto
) -> None:
    """Of its most frequent stream, with broken bytes before each message."""
    own = [one for name, one in messages() if name == preset]
    counts = Counter(reading["stream"] for one in own for reading in one["readings"])
    stream = counts.most_common(1)[0][0]
    wanted = Counter(
        reading["device"]
        for one in own
        for reading in one["readings"]
        if reading["stream"] == stream
    )
    source = MqttSubscribeConfig.checked(
        {
            "type": "mqtt_subscribe",
            "stream": stream,
            "presets": [preset],
            "broker": BrokerConfig(port=mosquitto.port),
        }
    )
    sent: list[tuple[str, bytes, int, bool]] = []
    for number, message in enumerate(own):
        broken = BROKEN[number % len(BROKEN)]
        sent += [(message["topic"], one, 1, False) for one in (broken, payload_of(message))]
    async with caged(tmp_path, source) as one:
        await one.until(lambda: one.supervisor.state == "running", "it runs")
        first = next(
            each for each in own if stream in {reading["stream"] for reading in each["readings"]}
        )
        probe = [(first["topic"], payload_of(first), 1, False)]
        async with asyncio.timeout(PATIENCE_S):
            while not one.times():
                await asyncio.to_thread(publish.multiple, probe, "127.0.0.1", mosquitto.port)
                await one.until(lambda: True, "")
                await asyncio.sleep(0.05)
        before = len(one.times())
        await asyncio.to_thread(publish.multiple, sent, "127.0.0.1", mosquitto.port)

        def found() -> Counter[object]:
            return Counter(one.column("thing")[before:])

        await one.until(lambda: not wanted - found(), f"{wanted.total()} readings")
        left = found() - wanted
    # Text is a value where a preset takes any word: `{` of a switch is one, too.
    assert left.total() <= len(own), left
