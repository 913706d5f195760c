"""How far a sequencer is behind: its gauges and /readyz say so while records wait, and that it has
caught up when none do.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request

import pytest

from edgewake.cloud.sequencer.lag import READY_LAG_S, Lag, lag
from tests.bridge.running import World
from tests.sequencer.test_sequencer import Up
from tests.services import PATIENCE_S, wait_until

AGE_S = READY_LAG_S + 2
FRAMES = 3000


def test_lag_is_the_age_of_what_was_passed_on_last_while_others_wait() -> None:
    assert lag(end=10, position=4, received_at=1_000, now_ms=31_000) == Lag(6, 30.0)


def test_nothing_waits_is_no_lag() -> None:
    assert lag(end=10, position=10, received_at=1_000, now_ms=31_000) == Lag(0, 0.0)


def test_before_the_first_record_passes_only_the_number_is_known() -> None:
    assert lag(end=10, position=-1, received_at=0, now_ms=31_000) == Lag(10, 0.0)


def test_a_clock_that_went_back_gives_no_negative_lag() -> None:
    assert lag(end=10, position=4, received_at=31_000, now_ms=1_000) == Lag(6, 0.0)


def ready(here: World, name: str) -> int:
    """Status of /readyz."""
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{here.ports[name]}/readyz", timeout=PATIENCE_S
        ) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.long
async def test_a_backlog_shows_in_the_gauges_and_in_readyz_until_it_is_worked_off(
    here: World,
) -> None:
    """Old records wait and few are committed at once: not ready, so many records and seconds
    behind. Then ready, and nothing waits.
    """
    up = Up(here, "behind", "behind")
    up.put(*range(1, FRAMES + 1))
    since_s = time.monotonic()
    wait_until(lambda: time.monotonic() - since_s > AGE_S, "what waits is old")
    here.sequencer(batch_records=3)

    def gauge(name: str) -> float:
        return here.metric("sequencer-1", f"edgewake_sequencer_{name}")

    wait_until(lambda: gauge("lag_seconds") > READY_LAG_S, "it is behind")
    seconds, records = gauge("lag_seconds"), gauge("lag_records")
    assert gauge("ready") == 0
    assert ready(here, "sequencer-1") == 503
    assert 0 < records <= FRAMES
    assert seconds >= AGE_S
    partition, _ = up.last
    assert gauge(f'partition_lag_records{{partition="{partition}"}}') > 0
    wait_until(lambda: gauge("lag_records") < records, "it works it off")
    here.parts.pop().stop()
    here.sequencer()  # with batches of the usual size
    wait_until(lambda: ready(here, "sequencer-1") == 200, "it has caught up")
    assert gauge("lag_records") == 0
    assert gauge("lag_seconds") == 0
    assert gauge("ready") == 1
