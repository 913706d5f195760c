"""What a question for gaps holds while it goes through the records of all devices."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest
from confluent_kafka import Message

from edgewake.cloud.ops.lookups.gaps import HELD_BYTES_MAX, _Search

DEVICES = 500
LARGE = 20 * HELD_BYTES_MAX


def record(device: str, body: str, offset: int) -> Message:
    value = (
        f'{{"device":"{device}","stream":"s","mode":"ack","sent_at":5,"received_at":9,'
        f'"epoch":1,"frame":{offset},"seq":{offset},{body}}}'
    )
    return Message(
        partition=0, offset=offset, key=device.encode(), value=value.encode(), timestamp=(1, 7)
    )


def readings(text: str) -> Iterator[Message]:
    for number in range(DEVICES):
        body = f'"t":[{number},{number + 1000}],"fields":{{"a":["{text}",null]}}'
        yield record(f"d{number}", body, number)


@pytest.mark.parametrize("size", [10, LARGE])
def test_of_large_records_their_time_is_held_until_a_gap_follows(size: int) -> None:
    search = _Search(None)
    tracemalloc.start()
    try:
        for message in readings("x" * size):
            search.take(message)
        del message
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < DEVICES * 2 * HELD_BYTES_MAX
    gap = '"t":[],"fields":{},"gap":{"reason":"age","count":3}'
    for number in (0, DEVICES - 1):
        search.take(record(f"d{number}", gap, DEVICES + number))
    search.take(record("new", gap, 2 * DEVICES))
    assert [one.before_t for one in search.found] == [1000, 1000 + DEVICES - 1, None]
    assert [one.count for one in search.found] == [3, 3, 3]
