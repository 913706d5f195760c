"""A device that sends too much of something: messages, fields, streams, dead letters,
subscriptions. It waits, and nobody else does.
"""

from __future__ import annotations

import base64
import itertools
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edgewake.cloud.bridge.admission.allowance import LETTER_HEAD_BYTES
from edgewake.protocol import topics
from edgewake.protocol.sketches.sketch import SKETCH_BYTES_MAX, STREAM
from tests.deploy.production import Client
from tests.hostile.raw import AT_ONCE, raw_flood
from tests.hostile.victims import QUEUED_S, Count, note, slower, times_of_this_machine
from tests.hostile.world import Victim, World, beside_attack, harmed, unharmed
from tests.services import wait_until

MANY_FIELDS = b"{" + b",".join(b'"f%d":1' % i for i in range(90_000)) + b"}"
"""A megabyte that a bridge refuses, and whose names it must not look at one by one."""
ODD_FIELDS = b"{" + b",".join(b'"f%d" :NaN' % i for i in range(70_000)) + b"}"
"""Another one: its names cannot be counted at a glance, and a slower parser reads it. What it costs
is what its device has to wait for."""
MANY_SKETCHES = 100
"""Six hundred kilobytes of them."""
FEW_BYTES = "bytes_per_s = 20000"
"""A table [device] that lets a device send twelve of them at once."""
NOTHING_BOUNDED = (
    "messages_per_s = 1e9", "bytes_per_s = 1e12", "busy_share = 1", "burst_s = 3600",
    "letters_burst = 1e9", "letter_bytes_per_day = 1e12",
)  # fmt: skip
"""A table [device] that lets everybody do everything."""


def _every(pause_s: float, send: Callable[[], object]) -> Callable[[], None]:
    def attack() -> None:
        send()
        time.sleep(pause_s)

    return attack


def _fields(attacker: Client, payload: bytes, every_s: float = 0.1) -> Callable[[], None]:
    """Ten megabytes a second."""
    return _every(
        every_s, lambda: attacker.mqtt.publish(topics.up("attacker", "wide"), payload, qos=1)
    )


@pytest.mark.parametrize("payload", [MANY_FIELDS, ODD_FIELDS], ids=["many", "odd"])
def test_fields(here: World, victim: Victim, payload: bytes) -> None:
    with here.device("attacker") as attacker:
        # A device may be dear for some seconds (burst_s); this is what it may cost for good.
        unharmed(
            victim, _fields(attacker, payload), head_start=10 if payload is MANY_FIELDS else 60
        )
        wide = topics.up("attacker", "wide")
        reasons = {one.reason for one, _ in here.letters("attacker") if one.topic == wide}
        assert reasons <= {"oversize", "quota"}
        assert "oversize" in reasons, "they came"


@pytest.mark.long
def test_control_without_bounds_the_same_fields_delay_the_victim(
    here: World, victim: Victim
) -> None:
    with here.bridges_with(*NOTHING_BOUNDED, are_overrun=True), here.device("attacker") as attacker:
        send = _fields(attacker, ODD_FIELDS, 0.0)

        def attack() -> None:
            """As much as the broker takes: what is waited for must be seen on a fast machine,
            too.
            """
            for _ in range(10):
                send()

        harmed(victim, attack, count=1, head_start=12)


def test_messages(here: World, victim: Victim) -> None:
    """Good ones, as fast as the client can."""
    numbers = itertools.count(1)
    with here.device("attacker") as attacker:

        def send() -> None:
            for _ in range(50):
                attacker.mqtt.publish(topics.up("attacker", "many"), b'{"n":%d}' % next(numbers))

        unharmed(victim, _every(0.02, send))


SMALL = topics.up("attacker", "raw"), b'{"n":1}'
QUEUE = 150_000
"""Messages of a device that make a queue, which the broker still keeps whole."""


ASKED = {"response_topic": topics.ack("attacker"), "correlation_data": b"1"}
FLOODS: dict[str, tuple[str, bytes, dict[str, Any]]] = {
    "readings": (*SMALL, {}),
    "awaited": (*SMALL, ASKED),
    "statuses": (topics.status("attacker"), b"online", {}),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", FLOODS)
def test_small_messages_as_fast_as_the_broker_takes_them(
    here: World, victim: Victim, kind: str
) -> None:
    """What is beyond the share is only counted; nobody waits behind it, nor behind its answers."""
    topic, payload, more = FLOODS[kind]
    with raw_flood(here, topic, payload, **more) as attack:
        before, beside = beside_attack(victim, attack, head_start=200)
        counted = victim.count()
    note("another device", before, beside, counted)
    assert beside.high_s < QUEUED_S * times_of_this_machine()
    assert counted == Count()


@pytest.mark.long
def test_control_without_bounds_a_queue_of_small_messages_delays_the_victim(
    here: World, victim: Victim
) -> None:
    with here.bridges_with(*NOTHING_BOUNDED, are_overrun=True), raw_flood(here, *SMALL) as send:
        pieces = iter(range(QUEUE // AT_ONCE))

        def attack() -> None:
            if next(pieces, None) is None:
                time.sleep(0.1)
            else:
                send()

        before, beside = beside_attack(victim, attack, count=1, head_start=QUEUE // AT_ONCE)
        note("another device", before, beside)
        assert beside.high_s > QUEUED_S


@pytest.mark.long
def test_dead_letters_are_bounded_counted_and_cut(here: World, victim: Victim) -> None:
    """And the count is kept: as many as were sent are either there or counted."""
    bounds = "letters_burst = 20", "letters_per_s = 0.1", "letter_bytes_per_day = 20000"
    sent = itertools.count(1)
    bad = b"{" + b"x" * 2000
    with here.bridges_with(*bounds), here.device("spammer") as attacker:

        def send() -> None:
            assert attacker.publish(topics.up("spammer", "bad"), bad) == 0
            next(sent)

        unharmed(victim, _every(0.01, send))
    letters = here.letters("spammer")
    kept = [(letter, value) for letter, value in letters if letter.reason == "json"]
    told = [letter for letter, _ in letters if letter.reason == "quota"]
    assert 20 <= len(kept) <= 2 * 20 + 10
    assert {len(value) for _, value in kept} == {len(bad), LETTER_HEAD_BYTES}
    assert {letter.size for letter, value in kept if len(value) == LETTER_HEAD_BYTES} == {len(bad)}
    counted = sum(int(letter.detail.split()[0]) for letter in told)
    assert len(kept) + counted == next(sent) - 1


def _sketches(attacker: Client, of_stream: str, numbers: Iterator[int]) -> Callable[[], None]:
    """As large as they may be, of nothing."""

    def send() -> None:
        start = 60_000 * next(numbers)
        sketch = base64.b64encode(start.to_bytes(8, "big") * (SKETCH_BYTES_MAX // 8)).decode()
        reading = {
            "of_stream": of_stream, "of_field": "n", "kind": "kll", "start": start,
            "end": start + 60_000, "readings": 1000, "sketch": sketch,
        }  # fmt: skip
        topic = topics.up("attacker", STREAM)
        attacker.mqtt.publish(topic, json.dumps(reading).encode(), qos=1)

    return send


def _over_share(here: World) -> int:
    """Sketches that were refused because the attacker had used up its share."""
    topic = topics.up("attacker", STREAM)
    letters = [one for one, _ in here.letters("attacker") if one.topic == topic]
    return sum(one.reason == "quota" for one in letters)


@pytest.mark.long
def test_sketches(here: World, victim: Victim) -> None:
    """What summaries make of them is tried in tests/summaries."""
    with here.bridges_with(FEW_BYTES), here.device("attacker") as attacker:
        send = _sketches(attacker, victim.stream, itertools.count(1))
        unharmed(victim, _every(0.01, send))
        wait_until(lambda: _over_share(here) >= 10, "it used up its share")
    assert here.records(topics.UP, "attacker"), "those within its share came"


@pytest.mark.long
def test_control_without_bounds_all_sketches_pass(here: World, victim: Victim) -> None:
    before, passed = _over_share(here), len(here.records(topics.UP, "attacker"))
    with here.bridges_with(*NOTHING_BOUNDED, are_overrun=True), here.device("attacker") as attacker:
        send = _sketches(attacker, victim.stream, itertools.count(1))
        for _ in range(MANY_SKETCHES):
            send()
        wait_until(
            lambda: len(here.records(topics.UP, "attacker")) >= passed + MANY_SKETCHES,
            "all of them came",
        )
    assert _over_share(here) == before


STREAMS = 200
"""New ones of one device: what all together may add at once, at both bridges, and as many more."""


def is_learnt(device: Client, stream: str) -> bool:
    """Is a reading on a new stream taken, and not answered `later`?"""
    with Answers(device) as answers:
        said = answers.to(topics.up(device.name, stream), b'{"n":1}')
    return said.startswith(b'{"token"') and b"rejected" not in said


class Answers:
    """What the cloud says to single readings of a device that is connected."""

    def __init__(self, device: Client) -> None:
        self._device = device
        self._said: list[bytes] = []

    def __enter__(self) -> Answers:
        self._device.mqtt.on_message = lambda _c, _u, message: self._said.append(
            bytes(message.payload)
        )
        self._device.subscribe(topics.ack(self._device.name))
        return self

    def __exit__(self, *_: object) -> None:
        self._device.mqtt.on_message = None

    def to(self, topic: str, payload: bytes) -> bytes:
        """Send, and wait for what is said."""
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.ResponseTopic = topics.ack(self._device.name)
        properties.CorrelationData = b"1"
        self._said.clear()
        self._device.mqtt.publish(topic, payload, qos=1, properties=properties)
        wait_until(lambda: self._said, f"an answer to a reading on {topic}")
        return self._said[0]


@pytest.mark.long
def test_streams(here: World, victim: Victim) -> None:
    """A new stream with each message: a share of them is learnt from one device, and no topic is
    made for the rest. New streams of others are learnt meanwhile.
    """
    numbers = itertools.count(1)
    with here.device("attacker") as attacker, here.device("spammer") as another:

        def send() -> None:
            topic = topics.up("attacker", f"s{next(numbers)}")
            attacker.mqtt.publish(topic, b'{"n":1}', qos=1)

        unharmed(victim, _every(0.005, send))
        for _ in range(STREAMS):
            send()
        assert is_learnt(another, f"beside_{time.time_ns()}")
        assert any(
            "may be the first to send" in letter.detail for letter, _ in here.letters("attacker")
        )


@pytest.mark.long
def test_subscriptions(here: World, victim: Victim) -> None:
    """Thousands of groups, each of which would cost the broker a look at each message; and filters
    of its own, as many as it may have.
    """
    numbers = itertools.count(1)
    with here.device("attacker") as attacker:

        def send() -> None:
            attacker.mqtt.subscribe(
                [(f"$share/g{next(numbers)}/{topics.UP_FILTER}", 1) for _ in range(500)]
            )
            attacker.subscribe("ew/v1/attacker/ack")

        unharmed(victim, _every(0.02, send))
        assert next(numbers) > 5000
        assert attacker.subscribe("$share/one-more/#") == [0x87]


@pytest.mark.long
def test_control_a_device_whose_subscriptions_are_not_bounded_delays_the_victim(
    here: World, victim: Victim
) -> None:
    """Its certificate is newer than the broker's list, as all were before."""
    here.site.issue("late-flood")
    with here.device("late-flood") as attacker:
        before = victim.series(10)
        for i in range(120):
            attacker.mqtt.subscribe(
                [(f"$share/g{i}-{j}/{topics.UP_FILTER}", 1) for j in range(500)]
            )
        attacker.subscribe("ew/v1/late-flood/ack")
        wait_until(lambda: attacker.granted == [1], "all were granted, the last one too")
        beside = victim.series(10)
        assert slower(before, beside), (before.text, beside.text)


def send_status(attacker: Client, number: int) -> None:
    """One more, which differs from the one before."""
    words = (number, number)
    status = b'{"device":"attacker","state":"online","connected_at":%d,"sent_at":%d}' % words
    attacker.mqtt.publish(topics.status("attacker"), status, qos=1)


def test_statuses(here: World, victim: Victim) -> None:
    """Rows of a topic that the operations read whole."""
    numbers = itertools.count(1)
    with here.device("attacker") as attacker:
        unharmed(victim, _every(0.005, lambda: send_status(attacker, next(numbers))))
        rows = here.records(topics.DEVICES, "attacker|status")
        assert len(rows) <= 2 * (60 + 60)
