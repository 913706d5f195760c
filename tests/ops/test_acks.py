from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.ops import acks
from edgewake.cloud.ops.acks import AckView, QueryPlace
from edgewake.cloud.ops.kafka_lookup import KafkaLookup, OutOfRange
from edgewake.protocol.ack import AckToken
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.query import Progress, QueryState
from tests.ops.conftest import Writer
from tests.services import part


@pytest.fixture
async def lookup(kafka_config: KafkaConfig) -> AsyncIterator[KafkaLookup]:
    lookup = KafkaLookup(kafka_config, SystemClock())
    yield lookup
    await lookup.close()


def progress(query: str, stream: str, offsets: dict[int, int]) -> Progress:
    return Progress(query=query, stream=stream, state=QueryState.RUNNING, offsets=offsets, updated_at=0)


async def test_a_token_finds_the_frame_on_its_stream(writer: Writer, lookup: KafkaLookup, unique: Callable[[str], str]) -> None:
    device, stream = unique("dev"), unique("s")
    tokens = [writer.received(device, stream, n) for n in range(1, 4)]
    places = [writer.sequenced(device, stream, n, token) for n, token in enumerate(tokens, 1)]
    found = await lookup.run(lambda b: acks.look_up(b, tokens[1]))
    assert (found.device, found.stream, found.epoch, found.frame, found.state) == (device, stream, 1, 2, "sequenced")
    assert (found.partition, found.offset) == places[1]


async def test_a_token_finds_the_frame_where_the_real_sequencer_put_it(
    writer: Writer, lookup: KafkaLookup, unique: Callable[[str], str], tmp_path: Path
) -> None:
    device, stream = unique("dev"), unique("s")
    config = tmp_path / "sequencer.toml"
    config.write_text(f'name = "{unique("sequencer")}"\n[kafka]\nbootstrap = "{writer.config.bootstrap}"\n')
    with part("sequencer", config, tmp_path / "sequencer.log") as process:
        process.wait_for('"event":"part.ready"')
        second, first = writer.received(device, stream, 2), writer.received(device, stream, 1)  # the second one is held
        async with asyncio.timeout(60):
            while (found := await lookup.run(lambda b: acks.look_up(b, second))).state == "waiting":
                await asyncio.sleep(0.1)
    assert (found.frame, found.state) == (2, "sequenced")
    assert (await lookup.run(lambda b: acks.look_up(b, first))).offset < found.offset


async def test_a_frame_that_is_held_is_waiting(writer: Writer, lookup: KafkaLookup, unique: Callable[[str], str]) -> None:
    device, stream = unique("dev"), unique("s")
    early = writer.received(device, stream, 2)
    assert (await lookup.run(lambda b: acks.look_up(b, early))).state == "waiting"


async def test_the_token_of_a_dead_letter_tells_why(writer: Writer, lookup: KafkaLookup, unique: Callable[[str], str]) -> None:
    offset = writer.dead_letter(unique("dev"), b"x")
    found = await lookup.run(lambda b: acks.look_up(b, AckToken(0, offset, dead=True)))
    assert (found.state, found.detail) == ("dead", "why")


@pytest.mark.parametrize(("token", "error"), [(AckToken(0, 10**12), OutOfRange), (AckToken(99, 0), LookupError)])
async def test_a_token_of_no_frame_finds_none(writer: Writer, lookup: KafkaLookup, token: AckToken, error: type[Exception]) -> None:
    with pytest.raises(error):
        await lookup.run(lambda b: acks.look_up(b, token))


def test_a_query_has_computed_a_frame_when_its_offset_is_past_it() -> None:
    view = AckView(
        token="1.7", device="d", stream="s", epoch=1, first_frame=1, frame=1, received_at=0, state="sequenced", partition=1, offset=10
    )
    found = acks.with_queries(
        view, [progress("b", "s", {1: 10}), progress("a", "s", {0: 99, 1: 11}), progress("c", "other", {}), progress("d", "s", {})]
    )
    assert found.queries == [
        QueryPlace(query="a", state="computed", lag=0),
        QueryPlace(query="b", state="pending", lag=1),
        QueryPlace(query="d", state="pending", lag=11),
    ]
