from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.ops.letters import dead_letters
from edgewake.cloud.ops.letters.dead_letters import DeadLetterIndex, DeadLetterPage, Filter
from edgewake.cloud.ops.lookups.kafka_lookup import KafkaLookup, OutOfRange
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import RejectReason
from tests.ops.builders import HastyClock
from tests.ops.conftest import Writer
from tests.services import PATIENCE_S


@pytest.fixture
async def lookup(kafka_config: KafkaConfig) -> AsyncIterator[KafkaLookup]:
    lookup = KafkaLookup(kafka_config, SystemClock(), timeout_s=PATIENCE_S)
    yield lookup
    await lookup.close()


async def pages(
    lookup: KafkaLookup, index: DeadLetterIndex | None = None, *, limit: int, wanted: Filter
) -> list[DeadLetterPage]:
    found: list[DeadLetterPage] = []
    index = index or DeadLetterIndex()
    while not found or found[-1].next is not None:
        before = found[-1].next if found else None
        found.append(
            await lookup.run(
                lambda session, before=before: dead_letters.page(
                    session, index, before=before, limit=limit, wanted=wanted
                )
            )
        )
    return found


def offsets(found: list[DeadLetterPage]) -> list[int]:
    return [letter.offset for page in found for letter in page.items]


async def test_letters_come_newest_first_in_bounded_pages_each_once(
    writer: Writer, lookup: KafkaLookup, unique: Callable[[str], str]
) -> None:
    device = unique("dev")
    written = [writer.dead_letter(device, b"%d" % i) for i in range(7)]
    found = await pages(lookup, limit=3, wanted=Filter(device=device))
    assert offsets(found) == written[::-1]
    assert all(len(page.items) <= 3 and page.complete for page in found)


async def test_letters_are_filtered_by_reason(
    writer: Writer, lookup: KafkaLookup, unique: Callable[[str], str]
) -> None:
    device = unique("dev")
    writer.dead_letter(device, b"a", RejectReason.JSON)
    wanted = writer.dead_letter(device, b"b", RejectReason.TIME)
    assert offsets(await pages(lookup, limit=50, wanted=Filter(RejectReason.TIME, device))) == [
        wanted
    ]


async def test_a_slow_kafka_leaves_no_letter_out(
    writer: Writer, unique: Callable[[str], str]
) -> None:
    device = unique("dev")
    written = writer.dead_letters(device, 1000)
    hasty = KafkaLookup(writer.config, HastyClock(0.3))
    try:
        found = await pages(hasty, limit=1000, wanted=Filter(device=device))
    finally:
        await hasty.close()
    assert not all(page.complete for page in found), "the time was never over"
    assert offsets(found) == written[::-1]


async def test_letters_that_are_indexed_are_not_read_again(
    writer: Writer, lookup: KafkaLookup, unique: Callable[[str], str]
) -> None:
    device, index = unique("dev"), DeadLetterIndex()
    writer.dead_letters(device, 100)
    first = await pages(lookup, index, limit=50, wanted=Filter(device=device))
    hasty = KafkaLookup(writer.config, HastyClock(2.0))
    try:
        again = await pages(hasty, index, limit=50, wanted=Filter(device=device))
    finally:
        await hasty.close()
    assert (offsets(again), all(page.complete for page in again)) == (offsets(first), True)


async def test_a_payload_comes_back_byte_for_byte(
    writer: Writer, lookup: KafkaLookup, unique: Callable[[str], str]
) -> None:
    payload = bytes(range(256)) * 5000
    offset = writer.dead_letter(unique("dev"), payload)
    value, letter = await lookup.run(lambda session: dead_letters.payload(session, offset))
    assert (value, letter.reason, letter.bytes) == (payload, "json", len(payload))


async def test_an_offset_that_is_not_kept_is_said_with_what_is(
    writer: Writer, lookup: KafkaLookup, unique: Callable[[str], str]
) -> None:
    offset = writer.dead_letter(unique("dev"), b"x")
    with pytest.raises(OutOfRange, match=f"retained are offsets 0 to {offset}"):
        await lookup.run(lambda session: dead_letters.payload(session, offset + 1))
