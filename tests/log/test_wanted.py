"""What a reader may ask for beside streams and filters."""

from __future__ import annotations

import pytest

from edgewake.cloud.log.wanted import (
    Pace,
    Wanted,
    is_in_share,
    parse_conflate,
    parse_devices,
    parse_per,
    parse_rate,
    parse_sample,
    wanted,
)
from edgewake.protocol.ops.publication import Publication, PublicationLimits


def test_what_is_given_as_text_is_read() -> None:
    assert [parse_sample(text) for text in ("0.1", "10%", "1", "100%")] == [0.1, 0.1, 1.0, 1.0]
    assert [parse_rate("0.5"), parse_conflate("20"), parse_conflate("3600000")] == [
        0.5,
        20,
        3_600_000,
    ]
    assert parse_per("device, line") == ("device", "line")
    assert parse_devices(["b", "a", "b"]) == {"a", "b"}


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "1e7", "x", "%", "101%", "1_0%%"])
def test_a_share_and_a_rate_outside_their_bounds_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a share"):
        parse_sample(text)
    with pytest.raises(ValueError, match="expected events a second"):
        parse_rate(text)


@pytest.mark.parametrize("text", ["", "19", "3600001", "1.5", "-20", "٣٠", "9" * 5000])
def test_a_pace_outside_its_bounds_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="from 20 to 3600000"):
        parse_conflate(text)


@pytest.mark.parametrize("found", [[], ["car-1", ""], ["a b"], [7], ["x"] * 10_001])
def test_what_names_no_devices_is_refused(found: list[object]) -> None:
    with pytest.raises(ValueError, match="device"):
        parse_devices(found)


def test_a_larger_share_has_the_things_of_a_smaller_one() -> None:
    things = [{"device": f"car-{number}"} for number in range(2000)]
    tenth = [one for one in things if is_in_share(one, ("device",), 0.1)]
    assert 120 < len(tenth) < 280
    assert all(is_in_share(one, ("device",), 0.3) for one in tenth)
    assert all(is_in_share(one, ("device",), 1) for one in things)


def test_a_publication_bounds_the_pace_that_is_asked_for() -> None:
    limits = PublicationLimits(conflate_ms=1000, max_rate=5)
    publication = Publication(
        name="p", version=1, changed_at=1, changed_by="a", streams=("s",), limits=limits
    )
    asked = (Pace(), Pace(100, 9.0), Pace(5000, 1.0))
    given = [Pace(1000, 5.0), Pace(1000, 5.0), Pace(5000, 1.0)]
    assert [pace.within(publication) for pace in asked] == given
    assert Pace(100).within(None) == Pace(100)


def test_what_is_beside_the_filters_tells_views_apart() -> None:
    plain = wanted(Wanted(streams=("s",)))
    some = Wanted(streams=("s",), devices=frozenset({"b", "a"}), sample=0.5)
    same = Wanted(streams=("s",), devices=frozenset({"a", "b"}), sample=0.5)
    assert (plain.told(), some.told() == same.told(), some.is_plain) == ("", True, False)
    assert some.told() != Wanted(streams=("s",), sample=0.5).told()
