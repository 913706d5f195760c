"""Chunks are kept within a bound, and while somebody asks for them."""

from __future__ import annotations

from edgewake.cloud.log.chunks import UNUSED_S, Chunk, Chunks


def chunk(place: int, size: int, used_s: float = 0.0) -> Chunk[object]:
    key = (((place, 0),),)
    return Chunk(key, key, key, key, None, 0, size, used_s)


def test_the_least_used_give_way_and_the_last_one_stays_however_large() -> None:
    chunks = Chunks(bytes_max=100)
    for place in range(3):
        chunks.put(1, chunk(place, 40))
    assert (len(chunks), chunks.bytes, chunks.get(1, (((0, 0),),), 1.0)) == (2, 80, None)
    assert chunks.get(1, (((1, 0),),), 1.0) is not None
    chunks.put(2, chunk(1, 40))
    assert chunks.get(1, (((1, 0),),), 1.0) is not None, "it was used last"
    assert chunks.get(1, (((2, 0),),), 1.0) is None
    chunks.put(1, chunk(1, 500))
    assert (len(chunks), chunks.bytes) == (1, 500)


def test_what_nobody_asked_for_is_dropped() -> None:
    chunks = Chunks(bytes_max=100)
    chunks.put(1, chunk(1, 10))
    chunks.put(1, chunk(2, 10))
    chunks.get(1, (((1, 0),),), UNUSED_S - 1)
    chunks.drop_unused(UNUSED_S)
    assert (len(chunks), chunks.bytes) == (1, 10)
