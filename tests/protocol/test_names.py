"""What a device, a stream and a field may be called."""

from __future__ import annotations

import pytest

from edgewake.protocol import names


@pytest.mark.parametrize(
    ("name", "is_good"),
    [("car-07", True), ("A.b_c", True), ("x" * 64, True), ("x" * 65, False), ("", False),
     ("-car", False), ("a/b", False), ("a+", False), ("car\n", False), ("cär", False)],
)  # fmt: skip
def test_a_device_is_a_level_of_a_topic_and_a_segment_of_an_address(
    name: str, is_good: bool
) -> None:
    assert names.is_device(name) is is_good


@pytest.mark.parametrize(
    ("name", "is_good"),
    [("speed", True), ("a1_b", True), ("x" * 64, True), ("x" * 65, False), ("Speed", False),
     ("1a", False), ("a-b", False), ("_a", False)],
)  # fmt: skip
def test_a_stream_is_an_identifier_of_sql_in_small_letters(name: str, is_good: bool) -> None:
    assert names.is_stream(name) is is_good


@pytest.mark.parametrize(
    ("name", "is_good"),
    [("x", True), ("_x", True), ("Speed2", True), ("x" * 64, True), ("x" * 65, False),
     ("2x", False), ("a.b", False), ("seq", False), ("t", False), ("window_end", False)],
)  # fmt: skip
def test_a_field_is_an_identifier_that_the_envelope_does_not_use(name: str, is_good: bool) -> None:
    assert names.is_field(name) is is_good


def test_streams_of_the_system_are_reserved_and_notes_to_itself_stay() -> None:
    every = ("part_status", "ew_alerts", "speed")
    assert [(names.is_reserved(one), names.is_own(one)) for one in every] == [
        (True, False), (True, True), (False, False),
    ]  # fmt: skip
