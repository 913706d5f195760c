"""Other bytes under a number that came before are not a repeat."""

from __future__ import annotations

import pytest

from edgewake.cloud.sequencer.order.contents import KEPT, RING_BYTES, Contents


def test_other_content_is_known_for_as_long_as_its_number_is_remembered() -> None:
    found = Contents()
    found.note(5, 111)
    assert [found.is_other(5, content) for content in (111, 222)] == [False, True]
    found.note(5 + KEPT, 333)
    assert not found.is_other(5 + KEPT, 333)
    assert Contents(bytes(found.ring), found.before).is_other(5 + KEPT, 111)


def test_numbers_that_were_skipped_have_no_content() -> None:
    found = Contents()
    for number in range(KEPT):
        found.note(number, 1)
    found.note(KEPT + 10, 1, skipped=10)
    assert [found.is_other(number, 2) for number in (KEPT, KEPT + 9, KEPT + 10)] == [
        False,
        False,
        True,
    ]


def test_a_repeat_of_the_run_before_is_no_other_content() -> None:
    found = Contents()
    found.note(3, 111)
    found.begin_anew()
    found.note(3, 222)
    assert [found.is_other(3, content) for content in (111, 222, 333)] == [False, False, True]


@pytest.mark.parametrize(("ring", "before"), [(b"x", b""), (bytes(RING_BYTES), b"x")])
def test_a_damaged_row_is_refused(ring: bytes, before: bytes) -> None:
    with pytest.raises(ValueError, match="expected 256"):
        Contents(ring, before)
