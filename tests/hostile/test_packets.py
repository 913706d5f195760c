"""What the protocol itself allows: properties without end, and publishes of QoS 2 that are begun
and never completed. Both fill a broker's memory, and neither weighs anything by its payload.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress

import mqtt5
import psutil
import pytest

from edgewake.protocol import topics
from edgewake.protocol.mqtt import PROPERTIES_BYTES_MAX
from tests.deploy.production import TAKEN, Client, Site, production_site
from tests.hostile.raw import raw_socket
from tests.hostile.test_floods import NOTHING_BOUNDED
from tests.hostile.victims import QUEUED_S, Count, note, times_of_this_machine
from tests.hostile.world import Victim, World, beside_attack, harmed
from tests.services import wait_until

pytestmark = pytest.mark.services

TOPIC = topics.up("attacker", "props")
A_MEGABYTE = 150_000
"""Properties of seven bytes each."""
MEGABYTE = bytes(1_000_000)
BEGUN = 100
"""Publishes of a megabyte."""
COUNTED_BYTES = 56
"""What Mosquitto 2.0.11 keeps counting for a property."""
PUBREC = 5
MAX_QOS = "max_qos 1\n"
WITHOUT = pytest.param(False, id="control", marks=pytest.mark.long)
LIMITED = pytest.param(True, id="control", marks=pytest.mark.long)


def with_properties(count: int) -> bytes:
    """A reading with so many properties."""
    return mqtt5.PublishPacket(TOPIC, b'{"n":1}', user_properties=[("a", "b")] * count).write()


class Flood:
    """Sends a packet again and again; comes back where the broker has had enough."""

    def __init__(self, site: Site, packet: bytes) -> None:
        self._site, self._packet = site, packet
        self._doors = ExitStack()
        self._socket: socket.socket | None = None
        self.refused = 0

    def __enter__(self) -> Flood:
        return self

    def __exit__(self, *_: object) -> None:
        self._doors.close()

    def send(self) -> None:
        """Once more."""
        try:
            if self._socket is None:
                self._socket = self._doors.enter_context(raw_socket(self._site, "attacker"))
            self._socket.sendall(self._packet)
        except OSError:
            self.refused += 1
            self._socket = None
            self._doors.close()


@pytest.mark.long
@pytest.mark.parametrize("count", [A_MEGABYTE, PROPERTIES_BYTES_MAX // 7], ids=["most", "read"])
def test_properties_without_end(here: World, victim: Victim, count: int) -> None:
    with Flood(here.site, with_properties(count)) as flood:
        before, beside = beside_attack(victim, flood.send, head_start=20)
        counted = victim.count()
    note("another device", before, beside, counted)
    assert beside.high_s < QUEUED_S * times_of_this_machine()
    assert counted == Count()


@pytest.mark.long
def test_control_where_all_properties_are_read_they_delay_another(
    here: World, victim: Victim
) -> None:
    """The bridges read each for as long as it takes, and it counts as the few bytes of its
    payload.
    """
    with (
        here.bridges_with(
            *NOTHING_BOUNDED, are_overrun=True, module="tests.hostile.unbounded_bridge"
        ),
        Flood(here.site, with_properties(A_MEGABYTE)) as flood,
    ):
        harmed(victim, flood.send, head_start=20)


def begin_publishes(site: Site) -> int:
    """Begin publishes of QoS 2 in a session that stays, until the broker has enough of it; how many
    it took.
    """
    hello = mqtt5.ConnectPacket("attacker", session_expiry_interval=1000).write()
    with raw_socket(site, "attacker", hello) as tls, suppress(OSError):
        for number in range(1, BEGUN + 1):
            packet = mqtt5.PublishPacket(
                TOPIC, MEGABYTE, qos=mqtt5.QoS.EXACTLY_ONCE, packet_id=number
            ).write()
            tls.sendall(packet)
            if tls.recv(100)[0] >> 4 != PUBREC:
                return number - 1
    return number


@pytest.mark.parametrize("is_bounded", [pytest.param(True, id=""), WITHOUT])
def test_publishes_that_are_begun_and_never_completed(is_bounded: bool) -> None:
    """They would fill the broker, also after their sender is gone."""
    with production_site("attacker", "victim") as site:
        file = site.root / "etc/mosquitto/conf.d/edgewake.conf"
        if not is_bounded:
            site.edit(file, {MAX_QOS: ""})
            site.process.stop()
            site.start()
        broker = psutil.Process(site.process.pid)
        before = broker.memory_info().rss
        begun = begin_publishes(site)
        with Client(site, "victim") as victim:
            assert victim.publish(topics.up("victim", "frames")) in TAKEN
        stays = broker.memory_info().rss - before > BEGUN * len(MEGABYTE) // 2
        assert (begun, stays) == ((0, False) if is_bounded else (BEGUN, True))


@pytest.mark.parametrize("is_limited", [pytest.param(False, id=""), LIMITED])
def test_properties_that_were_passed_on_are_forgotten(is_limited: bool) -> None:
    """Mosquitto counts them for ever (#3192), so that a `memory_limit` ends an honest fleet: here
    by what 1 GiB would hold, in the control by what 64 MiB would.
    """
    with production_site("attacker", "victim") as site:
        if is_limited:
            file = site.root / "etc/mosquitto/conf.d/edgewake.conf"
            site.edit(file, {"\n# Devices.\n": "\nmemory_limit 67108864\n# Devices.\n"})
            site.process.stop()
            site.start()
        count = PROPERTIES_BYTES_MAX // 7
        packets = (64 << 20 if is_limited else 1 << 30) // (count * COUNTED_BYTES) + 100
        with Flood(site, with_properties(count)) as flood:
            for _ in range(packets):
                flood.send()
        end = "Client attacker disconnected due to out of memory", "Client attacker closed"
        wait_until(lambda: any(one in site.log() for one in end), "the broker has read all")
        assert (end[0] in site.log()) == is_limited
        if not is_limited:
            with Client(site, "victim") as victim:
                assert victim.publish(topics.up("victim", "frames")) in TAKEN


def test_a_will_speaks_for_its_device_only(here: World, victim: Victim) -> None:
    """A broker publishes it once the connection is gone, when nobody can be refused any more."""
    for name in ("victim", "attacker"):
        will = mqtt5.Will(topics.up(name, "willed"), payload=b'{"n":1}')
        with raw_socket(here.site, "attacker", mqtt5.ConnectPacket("attacker", will=will).write()):
            pass
    willed = topics.stream_topic("willed")
    wait_until(lambda: len(here.records(willed, "attacker")) == 1, "the control: one's own comes")
    assert here.records(willed, "victim") == []
    assert victim.send() > 0


def test_an_alias_stands_for_its_own_topic_only(here: World, victim: Victim) -> None:
    """Of a topic that was denied no alias is left, nor does one lead past the rules."""
    own, others = topics.up("attacker", "alias"), topics.up("victim", "alias")
    packets = [
        mqtt5.PublishPacket(own, b'{"n":1}', topic_alias=1),
        mqtt5.PublishPacket(others, b'{"n":2}', topic_alias=2),
        mqtt5.PublishPacket("", b'{"n":3}', topic_alias=2),
        mqtt5.PublishPacket(others, b'{"n":4}', topic_alias=1),
        mqtt5.PublishPacket("", b'{"n":5}', topic_alias=1),
        mqtt5.PublishPacket(own, b'{"n":6}', topic_alias=1),
        mqtt5.PublishPacket("", b'{"n":7}', topic_alias=1),
    ]
    with raw_socket(here.site, "attacker") as tls:
        tls.sendall(b"".join(one.write() for one in packets))
        stream = topics.stream_topic("alias")
        wait_until(
            lambda: len(here.records(stream, "attacker")) == 3, "the control: one's own alias does"
        )
    assert here.records(stream, "victim") == []
    assert victim.send() > 0
