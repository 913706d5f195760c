"""Keys of requests: each reading of a request that is sent again passes once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.bridge.admission.request_key import numbered, of_request, placement_of
from edgewake.cloud.sequencer.order.arrival import Arrival, Statement
from edgewake.cloud.sequencer.order.bounds import KEYS_MAX, Bounds
from edgewake.cloud.sequencer.order.frame_order import FrameOrder
from edgewake.protocol.errors import Rejected
from edgewake.protocol.frames.record import Discipline

DAY_MS = 86_400_000


def arrival(offset: int, key: str, index: int, *, at_ms: int = 0) -> Arrival:
    placement = placement_of(numbered(key, index), "s", b"")
    assert placement is not None
    assert placement.discipline is Discipline.KEYED
    return Arrival(offset, "d", placement, 10, 1_790_000_000_000 + at_ms)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1500)), min_size=1, max_size=12))
def test_of_requests_that_are_sent_again_in_parts_each_reading_passes_once(
    sent: list[tuple[int, int]],
) -> None:
    """Each try is a beginning of its request, as bridges send it, a minute after the one before."""
    order = FrameOrder(Bounds())
    passed: list[tuple[int, int]] = []
    offset = 0
    for at, (key, count) in enumerate(sent):
        for index in range(count):
            one = arrival(offset, f"k{key}", index, at_ms=at * 120_000)
            offset += 1
            out = order.accept(one, now_s=0.0)
            assert not any(isinstance(each, Statement) for each in out)
            passed += [(key, index)] * len(out)
    most = {key: max(count for other, count in sent if other == key) for key, _ in sent}
    wanted = {(key, index) for key, count in most.items() for index in range(count)}
    assert len(passed) == len(set(passed))
    assert set(passed) == wanted


def test_the_keys_of_a_device_are_bounded_and_cost_no_other() -> None:
    order = FrameOrder(Bounds())
    offset = 0
    for number in range(3 * KEYS_MAX):
        assert order.accept(arrival(offset, f"k{number}", 0, at_ms=number * 1000), now_s=0.0)
        offset += 1
    assert len(order.table) == KEYS_MAX
    again = [
        bool(order.accept(arrival(offset + n, f"k{n}", 0, at_ms=DAY_MS), now_s=0.0))
        for n in reversed(range(3 * KEYS_MAX - KEYS_MAX // 2, 3 * KEYS_MAX))
    ]
    assert not any(again), "the last ones are known"


def test_other_contents_under_a_key_are_another_request() -> None:
    assert of_request("k", b"1") != of_request("k", b"2")
    first, second = (placement_of([("idempotency_key", "k")], "s", one) for one in (b"1", b"2"))
    assert first != second
    assert placement_of([("sent_at", "1")], "s", b"1") is None


@pytest.mark.parametrize(
    "properties",
    [
        [("idempotency_key", "")],
        [("idempotency_key", "x" * 201)],
        [("idempotency_key", "k"), ("idempotency_index", "-1")],
    ],
)
def test_a_key_that_is_none_is_refused(properties: list[tuple[str, str]]) -> None:
    with pytest.raises(Rejected, match="expected"):
        placement_of(properties, "s", b"{}")
