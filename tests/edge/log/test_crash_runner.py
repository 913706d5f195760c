"""Who judges crashes hears nothing of what is said after the power went, and all that was said before a kill."""

from __future__ import annotations

import os
import signal
import time

from tests.edge.log.crash_runner import Child, Cloud, live_once


class Talker(Child):
    """Accepts 1 when it lost its power, and says that it did; then it waits for its end, or makes one."""

    def __init__(self, out: int, power_off: int, spoke: int, *, kills_itself: bool) -> None:
        self._out, self._power_off, self._spoke, self._kills_itself = out, power_off, spoke, kills_itself

    def run(self) -> None:
        os.read(self._power_off, 1)
        self._say("A", "live", 1)
        os.write(self._spoke, b".")
        if self._kills_itself:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)


def accepted(*, cuts_power: bool) -> set[int]:
    """What the cloud heard of such a child."""
    power_off, no_power = os.pipe()
    has_spoken, spoke = os.pipe()
    cloud = Cloud()

    def until_it_spoke() -> None:
        os.write(no_power, b".")
        os.read(has_spoken, 1)

    def child(out: int, _acks: int) -> Talker:
        return Talker(out, power_off, spoke, kills_itself=not cuts_power)

    if cuts_power:
        killed = live_once(cloud, child, 0.0, cut_power=until_it_spoke)
    else:
        os.write(no_power, b".")
        killed = live_once(cloud, child, None)
    for fd in (power_off, no_power, has_spoken, spoke):
        os.close(fd)
    assert killed
    return cloud.accepted["live"]


def test_what_a_child_says_without_power_counts_for_nothing() -> None:
    assert accepted(cuts_power=True) == set()


def test_control_all_that_a_killed_child_said_counts() -> None:
    assert accepted(cuts_power=False) == {1}
