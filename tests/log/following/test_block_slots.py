from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.log.following.block_slots import BlockSlots, Claim


def test_who_finds_no_room_waits_in_line_and_is_called() -> None:
    slots, called = BlockSlots(4), list[str]()
    first, second, third = (
        Claim(lambda name=name: called.append(name)) for name in ("first", "second", "third")
    )  # type: ignore[misc]
    assert slots.reserve(first, 3)
    assert not slots.reserve(second, 2)
    assert not slots.reserve(third, 1), "there is room for one, but others wait"
    slots.release(first)
    assert (called, slots.reserved) == (["second", "third"], 3)


def test_a_claim_for_more_than_there_is_has_it_alone() -> None:
    slots, called = BlockSlots(4), list[str]()
    small, large = Claim(lambda: called.append("small")), Claim(lambda: called.append("large"))
    assert slots.reserve(small, 1)
    assert not slots.reserve(large, 10)
    slots.release(small)
    assert (called, slots.reserved) == (["large"], 10)
    assert not slots.reserve(small, 1)
    slots.release(large)
    assert called == ["large", "small"]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), max_size=60), st.integers(1, 5))
def test_the_bound_is_kept_and_nobody_waits_for_ever(
    actions: list[tuple[int, int]], most: int
) -> None:
    slots, claims = BlockSlots(most), [Claim(lambda: None) for _ in range(5)]
    for who, count in actions:
        if count:
            assert slots.reserve(claims[who], count) == (claims[who].has >= count)
        else:
            slots.release(claims[who])
        assert slots.reserved == sum(claim.has for claim in claims)
        assert slots.reserved <= most or sum(claim.has > 0 for claim in claims) == 1
    for _ in claims:
        for claim in claims:
            if claim.has:
                slots.release(claim)
    assert slots.reserved == 0
    assert not any(claim.wants for claim in claims)
