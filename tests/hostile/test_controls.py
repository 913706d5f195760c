"""Attacks of the other files where the protection is taken out: each then harms its victim. The
bridges of this file give a device whatever it asks for.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from edgewake.protocol import topics
from tests.hostile import victims
from tests.hostile.test_floods import NOTHING_BOUNDED, STREAMS, is_learnt, send_status
from tests.hostile.test_slow_and_late import replaying
from tests.hostile.world import World
from tests.services import wait_until

pytestmark = [pytest.mark.services, pytest.mark.long]

LETTERS = 1200
"""More than a device may have at once."""
FRAMES, ROUNDS = 50, 10
STATUSES = 500


@pytest.fixture(scope="module")
def unbounded(here: World) -> Iterator[World]:
    with here.bridges_with(
        *NOTHING_BOUNDED, are_overrun=True, module="tests.hostile.unbounded_bridge"
    ):
        yield here


def test_dead_letters_are_all_kept_whole(unbounded: World) -> None:
    """The operator looks through them for those of other devices."""
    bad = b"{" + b"x" * 2000
    topic = topics.up("spammer", f"bad_{time.time_ns()}")
    with unbounded.device("spammer") as spammer:
        for _ in range(LETTERS):
            spammer.mqtt.publish(topic, bad, qos=1)

        def kept() -> list[int]:
            found = unbounded.letters("spammer")
            return [len(value) for letter, value in found if letter.topic == topic]

        wait_until(lambda: len(kept()) >= LETTERS, "all of them are there")
        assert kept() == [len(bad)] * LETTERS
        victims.note("the operator", "-", f"{LETTERS} letters of {LETTERS} that were sent")


def test_statuses_are_all_written(unbounded: World) -> None:
    """The operator's server reads the topic whole when it starts."""
    before = len(unbounded.records(topics.DEVICES, "attacker|status"))
    with unbounded.device("attacker") as attacker:
        for number in range(STATUSES):
            send_status(attacker, number)

        def rows() -> int:
            return len(unbounded.records(topics.DEVICES, "attacker|status")) - before

        wait_until(lambda: rows() >= STATUSES, "all of them are there")
        victims.note("the operator", "-", f"{rows()} rows of {STATUSES} that were sent")


def test_streams_of_one_device_leave_no_room_for_those_of_another(unbounded: World) -> None:
    """What all may add in a second is used up by one, and another one's stream is refused."""
    numbers = itertools.count(1)
    with unbounded.device("attacker") as attacker, unbounded.device("spammer") as another:
        assert is_learnt(another, f"before_{time.time_ns()}")
        for _ in range(STREAMS):
            topic = topics.up("attacker", f"u{time.time_ns()}_{next(numbers)}")
            attacker.mqtt.publish(topic, b'{"n":1}', qos=1)
        wait_until(
            lambda: not is_learnt(another, f"beside_{time.time_ns()}"), "another one's is refused"
        )
        victims.note("another device", "a new stream is learnt", "it is refused")


def test_frames_that_come_again_are_all_passed_on_again(here: World) -> None:
    """Readers of the stream have each reading again and again. What waits for an earlier frame, as
    two bridges bring them, waits once.
    """
    here.stop("sequencer-1")
    here.start_sequencer(module="tests.hostile.forgetful_sequencer")
    try:
        with here.device("replayer") as replayer:
            send, passed_on = replaying(here, replayer, "doubled")
            for _ in range(ROUNDS):
                for number in range(1, FRAMES + 1):
                    send(number)
            wait_until(lambda: len(passed_on()) > (ROUNDS - 1) * FRAMES, "most of them are there")
            found = Counter(passed_on())
    finally:
        here.stop("sequencer-1")
        here.start_sequencer()
    assert set(found) == set(range(1, FRAMES + 1))
    assert min(found.values()) > 1
    victims.note("who reads the stream", "each once", f"each {min(found.values())} times or more")
