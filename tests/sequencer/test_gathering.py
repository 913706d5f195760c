"""A lone record goes at once; where another comes soon two share a turn; many wait a short time for
each other.
"""

from __future__ import annotations

import pytest

from edgewake.cloud.sequencer.gathering import AT_ONCE, FOR_ALL, LONG_S, SHORT_S, Gathering

SECONDS = 10
COMMIT_S = 0.008
"""What a turn takes after it has gathered."""


def turns(
    per_s: float, gathering: Gathering | None = None, *, start_s: float = 100.0
) -> list[list[float]]:
    """Seconds that the records of each turn waited for it to gather, when they come evenly spread;
    the first second is for learning.
    """
    gathering = gathering or Gathering()
    come = [start_s + i / per_s for i in range(int(per_s * (SECONDS + 1)))]
    found: list[list[float]] = []
    free_s = 0.0
    while come:
        began_s = max(come[0], free_s)
        wait = gathering.wait(began_s)
        goes_s = min(began_s + wait.seconds, max(began_s, come[: wait.records + 1][-1]))
        taken = [at for at in come if at <= goes_s]
        del come[: len(taken)]
        gathering.note(len(taken))
        if taken[0] > start_s + 1.5:
            found.append([goes_s - max(at, free_s) for at in taken])
        free_s = goes_s + COMMIT_S
    return found


@pytest.mark.parametrize("per_s", [0.2, 1, 5, 10, 0.9 / LONG_S])
def test_where_no_other_would_come_soon_a_record_goes_at_once(per_s: float) -> None:
    assert not any(wait for turn in turns(per_s) for wait in turn)


@pytest.mark.parametrize("per_s", [1.1 / LONG_S, 20, 40])
def test_of_some_records_two_share_a_turn_and_the_second_waits_for_nobody(per_s: float) -> None:
    found = turns(per_s)
    assert {len(turn) for turn in found[:-1]} == {2}
    assert max(turn[0] for turn in found) <= LONG_S
    assert max(turn[-1] for turn in found[:-1]) == 0


@pytest.mark.parametrize("per_s", [110, 1_000, 5_000])
def test_of_many_records_none_waits_longer_than_the_short_time(per_s: float) -> None:
    found = turns(per_s)
    assert min(len(turn) for turn in found[:-1]) >= 3
    assert max(wait for turn in found for wait in turn) <= SHORT_S + 1e-9


def test_the_first_record_after_a_pause_goes_at_once() -> None:
    gathering = Gathering()
    turns(1_000, gathering)
    assert gathering.wait(100.0 + SECONDS + 1.5) == FOR_ALL
    assert gathering.wait(200.0) == AT_ONCE
