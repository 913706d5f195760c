"""When a new epoch begins, and which number it has."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from edgewake.edge.log.tables.epoch import LogIdentity, LogLocation, new_epoch_reason, next_epoch
from edgewake.edge.log.tables.sidecar import Known

HERE = LogLocation("machine", 1, 2, "boot")
LOG = LogIdentity("log", 5, 100, HERE)
KNOWN = Known("log", 5, 100)


@pytest.mark.parametrize(
    ("log", "known", "here", "reason"),
    [
        (None, None, HERE, "created"),
        (None, KNOWN, HERE, "lost"),
        (LOG, None, HERE, "without its sidecar"),
        (LOG, Known("other", 5, 100), HERE, "without its sidecar"),
        (LOG, Known("log", 6, 1), HERE, "restored"),
        (LOG, Known("log", 5, 101), HERE, "restored"),
        (LOG, Known("log", 5, 101), replace(HERE, boot="next"), "restored"),
        (LOG, KNOWN, replace(HERE, inode=3), "copied"),
        (LOG, KNOWN, replace(HERE, device=9), "copied"),
        (LOG, KNOWN, replace(HERE, machine="other"), "copied"),
        (LOG, KNOWN, replace(HERE, boot="next"), "of an earlier start"),
        # Some file systems are numbered anew at each mount.
        (LOG, KNOWN, replace(HERE, boot="next", device=9), "of an earlier start"),
        (LOG, KNOWN, HERE, None),
        (LOG, Known("log", 5, 99), HERE, None),  # died between the commit and its line
        (LOG, Known("log", 4, 99), HERE, None),  # died between the new epoch and its line
    ],
)
def test_a_doubt_makes_a_new_epoch(
    log: LogIdentity | None, known: Known | None, here: LogLocation, reason: str | None
) -> None:
    assert new_epoch_reason(log, known, here) == reason


def test_a_log_that_was_set_aside_is_not_taken_for_a_lost_one() -> None:
    assert new_epoch_reason(None, KNOWN, HERE, damaged=True) == "damaged"


def test_an_epoch_is_above_the_one_before_whatever_the_clock_says() -> None:
    for now_ms in (0, 1_577_836_800_000, 1_790_000_000_000, 4_000_000_000_000):
        assert next_epoch(10**15, now_ms=now_ms, rng=random.Random(1)) > 10**15


def test_two_copies_that_wake_in_the_same_second_get_different_epochs() -> None:
    assert next_epoch(5, now_ms=1_790_000_000_000, rng=random.Random(1)) != next_epoch(
        5, now_ms=1_790_000_000_000, rng=random.Random(2)
    )


def test_an_epoch_fits_into_every_json_reader() -> None:
    assert next_epoch(0, now_ms=4_102_444_800_000, rng=random.Random(1)) < 2**53
