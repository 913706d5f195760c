"""A stuck process ends; a working one does not."""

from cloud.watchdog import Watchdog
from protocol.clock import FakeClock


def test_a_process_that_does_nothing_for_too_long_ends() -> None:
    clock, ended = FakeClock(), []
    dog = Watchdog(clock, what="the sequencer", limit_s=60, end=ended.append)
    clock.advance(61)
    assert not dog.check()
    assert ended == [1]


def test_a_process_that_works_goes_on() -> None:
    clock, ended = FakeClock(), []
    dog = Watchdog(clock, what="the sequencer", limit_s=60, end=ended.append)
    for _ in range(5):
        clock.advance(50)
        dog.beat()
        assert dog.check()
    assert ended == []
