"""When a reader is told that it is slow, and when something is done about it."""

from __future__ import annotations

import re

from edgewake.cloud.access.slow.policy import Policy, Wish
from edgewake.cloud.access.slow.watch import SlowWatch, Verdict
from edgewake.cloud.log.following.behind import Behind


class Reader:
    """One that is looked at once a second."""

    def __init__(self, policy: Policy, after_s: float = 20) -> None:
        self.watch = SlowWatch(Wish(policy, after_s), 0.0)
        self.now = 0.0
        self.behind = Behind(0, 0.0)

    def look(self, seconds: int = 1, *, is_full: bool = True, more: int = 0) -> list[Verdict]:
        """The verdicts of so many seconds, in each of which it falls behind by `more` records."""
        found = []
        for _ in range(seconds):
            self.now += 1
            self.behind = Behind(self.behind.records + more, self.behind.seconds + 1)
            verdict = self.watch.look(self.now, is_full=is_full, behind=lambda: self.behind)
            if verdict is Verdict.TELL:
                self.watch.told(self.behind, self.now, None)
            if verdict is Verdict.ACT:
                self.watch.has_acted()
            found += [] if verdict is None else [verdict]
        return found


def test_a_reader_that_waits_is_told_every_ten_seconds_and_left_alone() -> None:
    reader = Reader(Policy.WAIT)
    assert reader.look(100, more=5) == [Verdict.TELL] * 10
    assert reader.watch.acts_in(reader.now) is None


def test_a_policy_acts_when_its_time_is_over_and_then_anew() -> None:
    reader = Reader(Policy.SKIP, after_s=20)
    found = reader.look(22, more=5)
    assert Verdict.ACT not in found[:-1]
    assert 0 < (reader.watch.acts_in(reader.now) or 20) <= 20
    found += reader.look(8, more=5)
    assert found.count(Verdict.ACT) == 1
    assert reader.watch.acted == 1
    reader.behind = Behind(0, 0.0)
    reader.look(1)
    assert reader.look(40, more=5).count(Verdict.ACT) >= 1, "it falls behind again"


def test_who_comes_nearer_is_left_alone_however_far_it_is_behind() -> None:
    """It began a week ago, and its connection is the bottleneck."""
    reader = Reader(Policy.SKIP, after_s=20)
    reader.behind = Behind(1_000_000, 7 * 86_400)
    assert Verdict.ACT not in reader.look(300, more=-100)
    assert Verdict.ACT in reader.look(40, more=100), "the control: now it does not"


def test_what_is_young_is_not_left_out() -> None:
    reader = Reader(Policy.SKIP, after_s=20)
    for _ in range(100):
        reader.behind = Behind(reader.behind.records + 10, 2.0)
        assert Verdict.ACT not in reader.look(1)


def test_a_full_connection_now_and_then_is_not_slow() -> None:
    reader = Reader(Policy.END, after_s=5)
    for _ in range(50):
        assert reader.look(1, more=1) == []
        assert reader.look(1, is_full=False, more=1) == []
    assert reader.watch.slow_since is None


def test_a_reader_that_takes_all_again_is_slow_no_more() -> None:
    reader = Reader(Policy.WAIT)
    reader.look(15, more=1)
    assert reader.watch.slow_since is not None
    reader.look(2, is_full=False)
    assert reader.watch.slow_since is None
    assert reader.watch.found is None


def test_it_is_told_in_words_what_becomes_of_it() -> None:
    reader = Reader(Policy.SKIP, after_s=20)
    words = reader.watch.words(reader.now, stall_s=30)
    assert "goes on at the live end, with a gap after 20 s; cut off after 30 s" in words
    reader.look(12, more=5)
    assert re.search(r"with a gap in \d+ s", reader.watch.words(reader.now, stall_s=30))
    assert re.fullmatch(r"skip in \d+ s", reader.watch.in_short(reader.now))
    reader.look(10, more=5)
    assert "(done 1 times)" in reader.watch.words(reader.now, stall_s=30)
    assert Reader(Policy.WAIT).watch.in_short(0.0) == "wait"
    waiting = Reader(Policy.WAIT).watch.words(0.0, stall_s=30)
    assert "told how far it is behind; waits; cut off" in waiting
