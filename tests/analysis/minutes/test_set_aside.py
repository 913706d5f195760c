"""Streams that cannot be summed up: found by trying each alone, and tried again."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.analysis.minutes.set_aside import SET_ASIDE_S, SetAside
from edgewake.protocol.clock import FakeClock

STREAMS = ["a", "b", "c"]


def set_aside() -> tuple[SetAside, FakeClock]:
    clock = FakeClock()
    return SetAside(clock, random.Random(1)), clock


def test_all_that_are_well_are_summed_up_together() -> None:
    aside, _ = set_aside()
    assert aside.chosen(STREAMS) == STREAMS


def test_after_a_failure_each_is_tried_alone() -> None:
    aside, _ = set_aside()
    aside.failed(STREAMS, "too large", records=30)
    tried = []
    while len(chosen := aside.chosen(STREAMS)) == 1:
        tried += chosen
        aside.worked(chosen)
    assert tried == STREAMS
    assert aside.chosen(STREAMS) == STREAMS


def test_one_that_fails_alone_is_tried_with_fewer_records_before_it_is_left_out() -> None:
    aside, _ = set_aside()
    aside.failed(["b"], "too large", records=2)
    assert aside.chosen(STREAMS) == ["b"]
    assert aside.causes == {}
    aside.failed(["b"], "unreadable", records=1)
    assert aside.causes == {"b": "unreadable"}
    assert aside.chosen(STREAMS) == ["a", "c"]


async def test_what_is_left_out_is_tried_again_alone_and_comes_back() -> None:
    aside, clock = set_aside()
    aside.failed(["b"], "unreadable", records=1)
    await clock.sleep(SET_ASIDE_S[0])
    assert aside.chosen(STREAMS) == ["b"]
    assert aside.worked(["b"]) is False
    assert (aside.causes, aside.chosen(STREAMS)) == ({}, STREAMS)


def test_who_worked_is_told_whether_another_is_to_be_tried_at_once() -> None:
    aside, _ = set_aside()
    aside.failed(STREAMS, "too large", records=30)
    assert aside.worked(["a"]) is True
    assert aside.worked(["b"]) is True
    assert aside.worked(["c"]) is False


@given(st.sets(st.sampled_from("abcdefgh"), min_size=1), st.integers(0, 2**32))
def test_whichever_streams_are_bad_they_alone_are_found(bad: set[str], seed: int) -> None:
    streams = list("abcdefgh")
    random.Random(seed).shuffle(streams)
    aside, _ = set_aside()
    for _ in range(2 * len(streams) + 1):
        chosen = aside.chosen(streams)
        if bad.isdisjoint(chosen):
            aside.worked(chosen)
        else:
            aside.failed(chosen, "bad", records=1)
    assert set(aside.causes) == bad
    assert aside.chosen(streams) == [name for name in streams if name not in bad]
