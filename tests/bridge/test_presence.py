"""Who is gone, and who adopts, decided from beats alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.bridge.presence import BEAT_S, MISSED_BEATS, TURN_BEATS, Beat, BridgePresence

NAMES = ("a", "b", "c")


def round_of(presences: dict[str, BridgePresence], *beating: str) -> None:
    """Each of these bridges beats once, and those of them that live hear it."""
    for sender in beating:
        for name in beating:
            presences[name].heard(Beat(sender, (sender,)))


def three() -> dict[str, BridgePresence]:
    made = {name: BridgePresence(name) for name in NAMES}
    round_of(made, *NAMES)
    return made


def test_a_silent_bridge_is_an_orphan_after_five_of_our_own_beats() -> None:
    made = three()
    for _ in range(MISSED_BEATS - 1):
        round_of(made, "a", "b")
        assert made["a"].orphan(NAMES) is None
    round_of(made, "a", "b")
    assert made["a"].orphan(NAMES) == "c"


def test_one_survivor_adopts_and_the_next_only_when_the_first_does_not() -> None:
    made = three()
    for _ in range(MISSED_BEATS + TURN_BEATS - 1):
        round_of(made, "a", "b")
    assert (made["a"].orphan(NAMES), made["b"].orphan(NAMES)) == ("c", None)
    round_of(made, "a", "b")
    assert made["b"].orphan(NAMES) == "c"


def test_a_session_that_somebody_adopts_is_nobodys_orphan() -> None:
    made = three()
    for _ in range(3 * (MISSED_BEATS + TURN_BEATS)):
        round_of(made, "b")
        made["b"].heard(Beat("a", ("a", "c")))
    assert made["b"].orphan(NAMES) is None


def test_a_last_will_makes_an_orphan_at_once() -> None:
    made = three()
    made["a"].heard(Beat("c", ("c",), is_last=True))
    assert made["a"].orphan(NAMES) == "c"
    assert made["a"].others() == ["b"]


def test_a_broker_that_was_restarted_makes_nobody_an_orphan() -> None:
    """It tells each bridge the last words of all, before and after they are connected again."""
    made = three()
    for name in NAMES:
        made["a"].heard(Beat(name, (name,), is_last=True))
    assert made["a"].orphan(NAMES) == "b", "the control: without another connection"
    made["a"].connected()
    made["a"].heard(Beat("c", ("c",), is_last=True))
    assert made["a"].orphan(NAMES) is None
    for _ in range(MISSED_BEATS - 1):
        round_of(made, "a", "b")
    assert made["a"].orphan(NAMES) is None
    round_of(made, "a", "b")
    assert made["a"].orphan(NAMES) == "c", "one that is gone is seen by its silence"


def test_a_bridge_that_was_frozen_itself_accuses_nobody() -> None:
    """It heard neither the others nor itself."""
    made = three()
    for _ in range(100):
        round_of(made, "a", "b")
    round_of(made, *NAMES)
    assert made["c"].orphan(NAMES) is None


def test_a_registered_session_never_heard_is_adopted_by_whoever_comes_back_first() -> None:
    alone = BridgePresence("new")
    for _ in range(MISSED_BEATS):
        assert alone.orphan(("old",)) is None
        alone.heard(Beat("new", ("new",)))
    assert alone.orphan(("old",)) == "old"


def test_a_failed_adoption_is_tried_again_later() -> None:
    made = three()
    made["a"].heard(Beat("c", ("c",), is_last=True))
    made["a"].postpone("c")
    assert made["a"].orphan(NAMES) is None
    for _ in range(MISSED_BEATS):
        round_of(made, "a", "b")
    assert made["a"].orphan(NAMES) == "c"


def test_nobody_adopts_itself() -> None:
    made = three()
    made["a"].heard(Beat("a", ("a",), is_last=True))
    for _ in range(10):
        round_of(made, "b")
    assert made["a"].orphan(("a",)) is None


def test_a_beat_survives_its_journey() -> None:
    beat = Beat("a", ("a", "b"), is_last=True)
    assert Beat.decode(beat.encode()) == beat


@given(st.binary(max_size=100))
def test_what_is_no_beat_is_none(payload: bytes) -> None:
    assert Beat.decode(payload) is None or payload.startswith(b"{")


@given(st.lists(st.sets(st.sampled_from(NAMES), min_size=1), max_size=60))
def test_nobody_is_an_orphan_to_a_bridge_that_heard_it_within_five_beats_of_its_own(
    rounds: list[set[str]],
) -> None:
    """In a round those who are connected beat, and hear each other."""
    made = {name: BridgePresence(name) for name in NAMES}
    silent = {name: dict.fromkeys(NAMES, 0) for name in NAMES}
    for connected in rounds:
        round_of(made, *sorted(connected))
        for name in connected:
            for other in NAMES:
                silent[name][other] = 0 if other in connected else silent[name][other] + 1
            orphan = made[name].orphan(NAMES)
            # In the round in which it was heard last our own beat came after the beats of those
            # before us.
            assert orphan is None or silent[name][orphan] + (orphan < name) >= MISSED_BEATS


def test_a_bridge_that_is_gone_delays_nobody_by_more_than_five_seconds() -> None:
    """Its session is an orphan after its missed beats, counted by beats of our own; a second
    survivor has its turn some beats later.
    """
    assert (MISSED_BEATS + 1 + TURN_BEATS) * BEAT_S <= 5
