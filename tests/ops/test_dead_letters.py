from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.ops import dead_letters
from edgewake.cloud.ops.kafka_lookup import KafkaLookup, OutOfRange
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import RejectReason
from tests.ops.conftest import Writer


@pytest.fixture
async def lookup(kafka_config: KafkaConfig) -> AsyncIterator[KafkaLookup]:
    lookup = KafkaLookup(kafka_config, SystemClock())
    yield lookup
    await lookup.close()


async def pages(lookup: KafkaLookup, **more: object) -> list[list[int]]:
    found, before = [], None
    while True:
        page = await lookup.run(lambda b, before=before: dead_letters.page(b, **{"reason": None, "device": None, **more}, before=before))
        found.append([letter.offset for letter in page.items])
        if page.next is None:
            return found
        before = page.next


async def test_letters_come_newest_first_in_bounded_pages_each_once(
    writer: Writer, lookup: KafkaLookup, unique: Callable[[str], str]
) -> None:
    device = unique("dev")
    offsets = [writer.dead_letter(device, b"%d" % i) for i in range(7)]
    found = await pages(lookup, limit=3, device=device)
    assert [offset for page in found for offset in page] == offsets[::-1]
    assert all(len(page) <= 3 for page in found)


async def test_letters_are_filtered_by_reason(writer: Writer, lookup: KafkaLookup, unique: Callable[[str], str]) -> None:
    device = unique("dev")
    writer.dead_letter(device, b"a", RejectReason.JSON)
    wanted = writer.dead_letter(device, b"b", RejectReason.TIME)
    found = await pages(lookup, limit=50, device=device, reason="time")
    assert [offset for page in found for offset in page] == [wanted]


async def test_a_payload_comes_back_byte_for_byte(writer: Writer, lookup: KafkaLookup, unique: Callable[[str], str]) -> None:
    payload = bytes(range(256)) * 5000
    offset = writer.dead_letter(unique("dev"), payload)
    value, letter = await lookup.run(lambda b: dead_letters.payload(b, offset))
    assert (value, letter.reason, letter.bytes) == (payload, "json", len(payload))


async def test_an_offset_that_is_not_kept_is_said_with_what_is(writer: Writer, lookup: KafkaLookup, unique: Callable[[str], str]) -> None:
    offset = writer.dead_letter(unique("dev"), b"x")
    with pytest.raises(OutOfRange, match=f"kept are offsets 0 to {offset}"):
        await lookup.run(lambda b: dead_letters.payload(b, offset + 1))
