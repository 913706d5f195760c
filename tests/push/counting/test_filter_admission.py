"""Which filters leases on one set of streams may have."""

from __future__ import annotations

from edgewake.cloud.client_share import Bound
from edgewake.cloud.push.counting.filter_admission import (
    ADMITTED_S,
    VALUES_FREE,
    FilterAdmission,
)
from edgewake.protocol.clock import FakeClock


class Filters:
    """The filters of leases at the live end."""

    def __init__(self) -> None:
        self.found: set[str | None] = set()
        self.scanned = 0

    def get(self, where: str | None) -> object | None:
        """Returns something for a filter that a lease has."""
        return where if where in self.found else None


class World:
    """Room for two filters that no index finds, and for `lists` long lists of values."""

    def __init__(self, *, lists: int = 2, share: float = 1) -> None:
        self.known, self.clock, self.is_behind = Filters(), FakeClock(), False
        self.admission = FilterAdmission(lambda: self.known, self.clock, lambda: self.is_behind)
        self.scanned = Bound("scanned", 2, share)
        self.values = Bound("values", lists * (VALUES_FREE + 1), share)

    def refuses(self, where: str | None, client: str = "one") -> bool:
        """Asks for a filter."""
        return (
            self.admission.refusal(where, client, scanned=self.scanned, values=self.values)
            is not None
        )


def listed(first: int, count: int = VALUES_FREE + 1) -> str:
    """A filter that an index finds, with many values."""
    return "device IN (" + ", ".join(f"'d{n}'" for n in range(first, first + count)) + ")"


def test_filters_that_an_index_finds_and_filters_in_use_cost_nothing() -> None:
    w = World()
    assert not any(w.refuses(f"device = 'd{n}'") for n in range(10))
    assert not w.refuses(None)
    w.known.found.add("speed > 1")
    w.known.scanned = 2
    assert not w.refuses("speed > 1")
    assert w.refuses("speed > 2")


def test_filters_that_are_evaluated_for_every_event_are_bounded_until_nobody_has_them() -> None:
    w = World()
    assert [w.refuses(f"speed > {n}") for n in range(3)] == [False, False, True]
    assert not w.refuses("speed > 0"), "it was admitted before"
    w.clock.advance(ADMITTED_S + 1)
    w.is_behind = True
    assert w.refuses("speed > 3"), "a lease that is behind may have one of them"
    w.is_behind = False
    assert not w.refuses("speed > 3")


def test_long_lists_are_bounded_by_their_values() -> None:
    w = World()
    assert not any(w.refuses(listed(100 * n, VALUES_FREE)) for n in range(10)), "they are short"
    assert [w.refuses(listed(1000 * n)) for n in range(3)] == [False, False, True]
    w.clock.advance(ADMITTED_S + 1)
    w.known.found.add(listed(0))
    assert [w.refuses(listed(1000 * n)) for n in (3, 4)] == [False, True], "one is in use"


def test_one_client_has_its_share() -> None:
    w = World(lists=4, share=0.25)
    assert [w.refuses("speed > 1"), w.refuses("speed > 2")] == [False, True]
    assert not w.refuses("speed > 2", "other")
    assert [w.refuses(listed(0)), w.refuses(listed(1000))] == [False, True]
    assert not w.refuses(listed(1000), "other")


def test_what_counts_are_the_filters_of_those_who_count_now() -> None:
    w = World()
    w.known.scanned = 2
    assert w.refuses("speed > 1")
    w.known = Filters()  # counting has started over
    assert not w.refuses("speed > 1")
    w.known.scanned = 2
    assert w.refuses("speed > 2")
