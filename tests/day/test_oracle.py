"""The oracle notices what is dropped, doubled, wrongly timed, altered, invented or swallowed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.day.oracle import Came, Oracle, Put

T = 1_790_000_000_000


def a_day() -> Oracle:
    """Two devices with ten readings each, the last one odd."""
    oracle = Oracle()
    for device, promised in (("a", True), ("bus", False)):
        for n in range(10):
            value = "E-7" if n == 9 else n * 0.5
            late_ms = 0 if promised else 500
            oracle.put(Put("f", device, n, T + n, value, late_ms, promised))
            if n == 9:
                oracle.came(Came(device, n, T + n, None, "E-7"))
            else:
                oracle.came(Came(device, n, T + n + late_ms, n * 0.5))
    return oracle


def at(oracle: Oracle, device: str, n: int) -> int:
    return next(i for i, one in enumerate(oracle.cames) if (one.device, one.n) == (device, n))


def test_a_good_day_is_good() -> None:
    verdict = a_day().judge()
    assert verdict.is_clean, verdict
    assert (verdict.good, verdict.odd_kept) == (20, 2)


@pytest.mark.parametrize("device", ["a", "bus"])
def test_a_dropped_reading_is_noticed(device: str) -> None:
    oracle = a_day()
    del oracle.cames[at(oracle, device, 4)]
    assert oracle.judge().lost == ((device, 4),)


def test_what_nobody_heard_and_nobody_promised_is_excused_and_nothing_else() -> None:
    oracle = a_day()
    for device in ("a", "bus"):
        for n in (4, 7):
            del oracle.cames[at(oracle, device, n)]
    oracle.away(["f"], T + 3, T + 5)
    oracle.away(["others"], T, T + 10)
    verdict = oracle.judge()
    assert verdict.excused == (("bus", 4),)
    assert set(verdict.lost) == {("a", 4), ("a", 7), ("bus", 7)}
    assert not verdict.is_clean


def test_a_doubled_reading_is_noticed_also_where_one_of_them_was_kept_aside() -> None:
    oracle = a_day()
    oracle.came(oracle.cames[3])
    oracle.beside("bus", 5, "x")
    assert set(oracle.judge().twice) == {("a", 3), ("bus", 5)}


def test_what_has_no_number_may_come_twice_where_its_listener_died_and_nowhere_else() -> None:
    oracle = a_day()
    hour = 3_600_000
    for n, said in ((20, T + 4), (21, T + 40)):  # by a clock that is an hour late
        oracle.put(Put("f", "tb", n, said - hour, 1.0, 0, False, said, True))
        for _ in range(2):
            oracle.came(Came("tb", n, said - hour, 1.0))
    oracle.came(oracle.cames[at(oracle, "bus", 4)])
    oracle.away(["f"], T + 3, T + 5)
    verdict = oracle.judge()
    assert verdict.doubled == (("tb", 20),)
    assert set(verdict.twice) == {("tb", 21), ("bus", 4)}
    oracle.came(Came("tb", 20, T + 4 - hour, 1.0))
    assert ("tb", 20) in oracle.judge().twice, "three times is once too often"


def test_what_was_refused_and_said_again_is_kept_again_and_counted_never() -> None:
    oracle = a_day()
    oracle.put(Put("f", "a", 50, T, "E-9"))
    for _ in range(2):
        oracle.beside("a", 50, "E-9")
    verdict = oracle.judge()
    assert verdict.is_clean
    assert (verdict.kept_again, verdict.twice) == ((("a", 50),), ())
    oracle.came(Came("a", 50, T, None, "E-9"))
    assert oracle.judge().twice == (("a", 50),)


@pytest.mark.parametrize(("device", "by_ms"), [("a", 1), ("a", -1), ("bus", 1), ("bus", -501)])
def test_a_wrongly_timed_reading_is_noticed(device: str, by_ms: int) -> None:
    oracle = a_day()
    place = at(oracle, device, 2)
    one = oracle.cames[place]
    oracle.cames[place] = replace(one, t_ms=one.t_ms + by_ms)
    assert oracle.judge().wrong_time == ((device, 2),)


def test_an_altered_and_an_invented_reading_are_noticed() -> None:
    oracle = a_day()
    oracle.cames[0] = replace(oracle.cames[0], value=9.0)
    oracle.cames[1] = replace(oracle.cames[1], value=None)
    oracle.came(Came("a", 99, T, 1.0))
    oracle.came(Came("z", 1, T, 1.0))
    verdict = oracle.judge()
    assert verdict.wrong_value == (("a", 0), ("a", 1))
    assert set(verdict.strangers) == {("a", 99), ("z", 1)}


@pytest.mark.parametrize("beside", [None, "E-8"])
def test_an_odd_value_that_nobody_kept_is_noticed(beside: str | None) -> None:
    oracle = a_day()
    place = at(oracle, "a", 9)
    oracle.cames[place] = replace(oracle.cames[place], beside=beside)
    assert oracle.judge().odd_lost == (("a", 9),)
    # Kept aside whole, it is kept.
    del oracle.cames[place]
    oracle.beside("a", 9, "E-7")
    assert oracle.judge().is_clean


def test_a_number_is_said_once() -> None:
    oracle = a_day()
    with pytest.raises(AssertionError, match="said before"):
        oracle.put(Put("f", "a", 1, T, 1.0))
