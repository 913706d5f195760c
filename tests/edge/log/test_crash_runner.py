"""Who judges crashes hears nothing of what is said after the power went, and all that was said
before a kill.
"""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.edge.log.crash_runner import Child, Cloud, live_once


class Talker(Child):
    """Accepts 1 when it lost its power, and says that it did; then it waits for its end, or makes
    one.
    """

    def __init__(self, out: int, power_off: int, spoke: int, *, end: str) -> None:
        self._out, self._power_off, self._spoke, self._end = out, power_off, spoke, end

    def run(self) -> None:
        os.read(self._power_off, 1)
        self._say("A", "live", 1)
        os.write(self._spoke, b".")
        if self._end == "kills itself":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._end == "fails":
            raise OSError("its disk has no power")
        time.sleep(60)


def accepted(*, end: str, cuts_power: bool) -> set[int]:
    """What the cloud heard of such a child."""
    power_off, no_power = os.pipe()
    has_spoken, spoke = os.pipe()
    cloud = Cloud()

    def until_it_spoke() -> None:
        os.write(no_power, b".")
        os.read(has_spoken, 1)
        os.close(spoke)
        if end == "fails":
            assert os.read(has_spoken, 1) == b"", "it has ended, and its end of the pipe with it"

    def child(out: int, _acks: int) -> Talker:
        return Talker(out, power_off, spoke, end=end)

    if cuts_power:
        killed = live_once(cloud, child, 0.0, cut_power=until_it_spoke)
    else:
        os.write(no_power, b".")
        killed = live_once(cloud, child, None)
        os.close(spoke)
    for fd in (power_off, no_power, has_spoken):
        os.close(fd)
    assert killed
    return cloud.accepted["live"]


@pytest.mark.parametrize("end", ["waits", "fails"])
def test_what_a_child_says_and_does_without_power_counts_for_nothing(end: str) -> None:
    assert accepted(end=end, cuts_power=True) == set()


def test_control_all_that_a_killed_child_said_counts() -> None:
    assert accepted(end="kills itself", cuts_power=False) == {1}
