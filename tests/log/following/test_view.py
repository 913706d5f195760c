"""A view at its bounds: whose reading, filtering and encoding is shared, what is left when the last
one leaves or an encoding fails, and what is kept for those who are on their way.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from edgewake.cloud.log.decode import DATA
from edgewake.cloud.log.following.subscriber import ViewEnded, ViewFailed
from edgewake.cloud.log.following.view import MISSED_MAX, View
from edgewake.cloud.log.reader import Batch
from tests.log.following.strategies import a_plan
from tests.log.following.test_fan_out import Numbers, Reader, World, _settle


class Counted(Numbers):
    """Counts what it encodes, and fails on one number."""

    def __init__(self) -> None:
        self.encoded = 0
        self.fails_on: int | None = None

    def encode(self, batch: Batch) -> tuple[list[int], int]:
        self.encoded += len(batch.steps)
        found, size = super().encode(batch)
        if self.fails_on in found:
            raise ValueError("it cannot be encoded")
        return found, size


def world() -> World:
    return World(0.0, 1 << 20)


def come(
    w: World, where: str | None = "device = 'a'", number: int = 0, *, from_begin: bool = False
) -> tuple[Reader, Counted]:
    """A reader of a view whose encoding counts."""
    reader = Reader(w, number, a_plan(where, None), from_begin=from_begin)
    view: Any = w.views[number]
    if not isinstance(view.encoding, Counted):
        view.encoding = Counted()
    return reader, view.encoding


def send(w: World, count: int = 1, device: str = "a") -> None:
    w.send("one", 0, [(DATA, {"device": device, "n": n}) for n in range(count)])
    w.tick()


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


FILTERS = pytest.mark.parametrize("where", ["device = 'a'", "n >= 0"], ids=["indexed", "not"])


@FILTERS
async def test_all_who_stand_at_the_same_place_share_one_encoding(where: str) -> None:
    w = world()
    readers = [come(w, where) for _ in range(3)]
    encoding = readers[0][1]
    for _ in range(2):
        send(w, 2)
        await _settle(w, [reader for reader, _ in readers])
    assert [reader.found for reader, _ in readers] == [[1, 2, 3, 4]] * 3
    assert encoding.encoded == 4
    for reader, _ in readers:
        reader.subscriber.close()
    assert (w.views, w.cohorts) == ({}, 0)


@FILTERS
async def test_one_behind_is_given_its_past_and_then_shares_with_the_others(where: str) -> None:
    w = world()
    send(w, 2)
    live, encoding = come(w, where)
    await _settle(w, [live])
    late, _ = come(w, where, from_begin=True)
    await _settle(w, [live, late])
    assert (live.found, late.found) == ([], [1, 2])
    assert late.subscriber.place == live.subscriber.place
    encoding.encoded = 0
    send(w)
    await _settle(w, [live, late])
    assert (live.found, late.found, encoding.encoded) == ([3], [1, 2, 3], 1)
    live.subscriber.close()
    late.subscriber.close()


async def test_who_waits_is_not_woken_for_what_shows_it_nothing() -> None:
    w = world()
    reader, encoding = come(w)
    await _settle(w, [reader])
    wakes = reader.wakes
    send(w, 5, device="b")
    await turns()
    assert (reader.wakes, encoding.encoded) == (wakes, 0)
    assert reader.subscriber.positions[0][0] >= (1, 0), "and its cursor has moved past it"
    reader.subscriber.close()


@pytest.mark.parametrize("missed", [1, MISSED_MAX, MISSED_MAX + 1, 3 * MISSED_MAX])
async def test_what_comes_while_all_are_on_their_way_is_given_once_however_much(
    missed: int,
) -> None:
    w = world()
    reader, encoding = come(w)
    await _settle(w, [reader])
    send(w)
    await turns()
    assert reader.subscriber.next() is not None  # it writes that, and has not asked again
    for _ in range(missed):
        send(w)
        await turns(3)
    await _settle(w, [reader])
    assert reader.found == list(range(2, missed + 2))
    assert encoding.encoded == missed + 1
    reader.subscriber.close()


@FILTERS
async def test_an_encoding_that_fails_ends_its_view_and_no_other(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    w = world()
    bad, encoding = come(w, where, 0)
    good, _ = come(w, where, 1)
    encoding.fails_on = 1
    await _settle(w, [bad, good])
    bad.read()
    send(w)
    await turns()
    with pytest.raises(ViewFailed, match="it cannot be encoded"):
        bad.subscriber.next()
    await _settle(w, [good])
    assert good.found == [1]
    assert (w.failed, w.cohorts) == ([], 0)
    assert "a subscription failed and is ended" in caplog.text
    good.subscriber.close()
    bad.subscriber.close()
    assert w.views == {}


@pytest.mark.parametrize("when", ["at rest", "at work", "twice"])
async def test_a_view_that_ends_wakes_all_once_and_makes_nothing_more(when: str) -> None:
    w = world()
    reader, _ = come(w)
    other, _ = come(w)
    await _settle(w, [reader, other])
    if when == "at work":
        w.send("one", 0, [(DATA, {"device": "a", "n": 1})])
        w.tick()
    view: View[Any] = w.views[0]
    wakes = reader.wakes
    view.end(ViewEnded("its stream is gone"))
    if when == "twice":
        view.end(ViewEnded("for another reason"))
    await turns()
    assert reader.wakes == wakes + 1
    assert w.cohorts == 0
    for one in (reader, other):
        with pytest.raises(ViewEnded, match="its stream is gone"):
            one.subscriber.next()
    made = view.chunks_made
    send(w)
    await turns()
    assert view.chunks_made == made
    reader.subscriber.close()
    reader.subscriber.close()
    other.subscriber.close()
    assert w.views == {}


@FILTERS
async def test_one_that_leaves_in_the_midst_of_its_chunk_leaves_nothing_at_work(
    where: str,
) -> None:
    w = world()
    reader, _ = come(w, where)
    await _settle(w, [reader])
    w.send("one", 0, [(DATA, {"device": "a", "n": 1})])
    w.tick()
    reader.subscriber.close()
    await turns()
    assert (w.views, w.cohorts, w.failed) == ({}, 0, [])


async def test_named_sets_that_changed_make_what_was_made_of_them_worth_nothing() -> None:
    w = world()
    first, encoding = come(w, "n >= 0")
    view: View[Any] = w.views[0]
    send(w)
    await _settle(w, [first])
    view.renew()
    late, _ = come(w, "n >= 0", from_begin=True)
    await _settle(w, [first, late])
    assert (first.found, late.found) == ([1], [1])
    assert encoding.encoded == 2, "the chunk of before is not given again"
    late.subscriber.close()
    first.subscriber.close()
