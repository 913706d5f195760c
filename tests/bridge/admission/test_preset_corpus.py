"""Every payload of tests/payloads by both ways in, with no code: devices that publish to the
bridges' broker, and devices that publish to a broker beside an agent. Real brokers, agent, bridge
and Kafka; the same readings must come by both, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from paho.mqtt import publish

from edgewake.protocol import topics
from edgewake.protocol.frames import record
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.field_values import is_no_value, is_nothing
from edgewake.protocol.frames.record import Record
from edgewake.protocol.maps import presets
from edgewake.protocol.names import THING_ONLINE
from tests.bridge.running import World, read
from tests.payloads.corpus import messages, payload_of
from tests.services import STAYS, Kafka, Mosquitto, part, run_kafka, run_mosquitto, wait_until

pytestmark = pytest.mark.services
WRITTEN_MS: Final = 1_772_352_930_000
"""The time of the corpus' messages; one that is far from it counts from now, as an uptime does."""
PREFIX: Final = "corpus-"
NEAR_MS: Final = 10**9
KINDS: Final = {float: FieldType.NUMBER, str: FieldType.STRING, bool: FieldType.BOOLEAN}


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Its devices have names that others use, too."""
    with run_kafka(tmp_path_factory.mktemp("corpus-kafka"), *STAYS) as service:
        yield service


def key(device: str, stream: str, t: int | str, fields: dict[str, Any]) -> str:
    said = t if isinstance(t, int) and abs(t - WRITTEN_MS) < NEAR_MS else "now"
    return f"{device} {stream} {said} {dict(sorted(fields.items()))}"


def corpus() -> tuple[list[tuple[str, bytes]], Counter[str]]:
    """Topics with payloads, and the readings that must come.

    Devices of other presets share a stream here: a field has the type of its first value, and a
    value of another type stands beside it as text. A word for no value decides none.
    """
    sent, wanted = [], Counter[str]()
    types: dict[tuple[str, str], type] = {}
    for _, message in messages():
        sent.append((message["topic"], payload_of(message)))
        for one in message["readings"]:
            fields = {}
            for name, value in one["fields"].items():
                kind = float if type(value) is int else type(value)
                is_new = (one["stream"], name) not in types
                if value is None or (is_new and is_nothing(value)):
                    continue
                if types.setdefault((one["stream"], name), kind) is kind:
                    fields[name] = value
                elif not is_no_value(value, KINDS[types[one["stream"], name]]):
                    fields[f"{name}_odd"] = str(value)
            wanted[key(one["device"], one["stream"], one["t"], fields)] += 1
    return sent, wanted


WIDE: Final = "esphome"
"""It takes any topic of its form, also those that another preset stands for."""


def presets_of_streams() -> dict[str, set[str]]:
    """The presets that give each stream, by the messages that there are.

    With all of them at each source, 81 sources would read every message, and a busy machine could
    not send their signs of life in time.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for preset, message in messages():
        for one in message["readings"]:
            found[one["stream"]] |= set(presets.names()) if preset == WIDE else {preset}
    return found


def keys_of(found: Record) -> list[str]:
    frame = found.frame
    rows = range(len(frame.t))
    return [
        key(
            found.device.removeprefix(PREFIX),
            found.stream,
            frame.t[n],
            {
                name: column[n]
                for name, column in frame.fields.items()
                if column[n] is not None and name != THING_ONLINE  # an agent's word beside it
            },
        )
        for n in rows
    ]


def came(here: World, via: str) -> Counter[str]:
    """What is in Kafka, by a gateway; or by none, with the prefix of the bridge."""
    records = [record.decode(one.value() or b"") for one in read(here.config, topics.UP)]
    own = [
        found for found in records if found.via == via and (via or found.device.startswith(PREFIX))
    ]
    # An uplink sends a frame again where its answer takes long; the sequencer takes it once.
    numbered = {
        (found.device, found.stream, found.frame.epoch, found.frame.frame): found
        for found in own
        if found.frame.frame is not None
    }
    plain = [found for found in own if found.frame.frame is None]
    return Counter(one for found in (*numbered.values(), *plain) for one in keys_of(found))


async def send(broker: Mosquitto, sent: list[tuple[str, bytes]]) -> None:
    batch: list[tuple[str, bytes, int, bool]] = [(*one, 1, False) for one in sent]
    await asyncio.to_thread(publish.multiple, batch, broker.host, broker.port)


async def all_came(here: World, via: str, wanted: Counter[str]) -> None:
    def are_there() -> bool:
        return came(here, via).total() >= wanted.total()

    try:
        await asyncio.to_thread(wait_until, are_there, "all are there")
    finally:
        found = came(here, via)
        wrong = [f"missing: {one}" for one in wanted - found]
        wrong += [f"too many: {one}" for one in found - wanted]
        assert not wrong, "\n".join(sorted(wrong))


async def test_every_payload_becomes_its_readings_at_a_bridge(here: World) -> None:
    listed = ", ".join(f'"{name}"' for name in presets.names())
    here.bridge("b-corpus", mqtt=f'[maps]\npresets = [{listed}]\nprefix = "{PREFIX}"')
    sent, wanted = corpus()
    await send(here.broker, sent)
    await all_came(here, "", wanted)


def subscribed(broker: Mosquitto) -> set[str]:
    """Sources that have subscribed; one that was cut off meanwhile does so again."""
    lines = [line.split() for line in broker.process.output().splitlines()]
    return {words[1] for words in lines if len(words) == 4 and words[2] == "1"}


async def test_every_payload_becomes_its_readings_at_an_agent(here: World, tmp_path: Path) -> None:
    here.bridge("b-gateway")
    sent, wanted = corpus()
    streams = presets_of_streams()
    with run_mosquitto(tmp_path / "beside", "log_type subscribe") as beside:
        sources = "".join(
            f'[[source]]\ntype = "mqtt_subscribe"\nstream = "{stream}"\nthings = "devices"\n'
            f"presets = {sorted(names)}\nbroker = {{ port = {beside.port} }}\n"
            for stream, names in streams.items()
        )
        file = tmp_path / "agent.toml"
        file.write_text(
            f'device = "corpus-gw"\ndata_dir = "{tmp_path}/agent"\n[mqtt]\nport = '
            f"{here.broker.port}\n{sources}"
        )
        with part("agent", file, tmp_path / "agent.log"):
            await asyncio.to_thread(
                wait_until,
                lambda: len(subscribed(beside)) >= len(streams),
                "all sources have subscribed",
            )
            await send(beside, sent)
            await all_came(here, "corpus-gw", wanted)
