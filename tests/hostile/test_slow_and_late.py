"""Clients that hold the door open, and frames of a week ago that come again by the thousand."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edgewake.protocol import topics
from edgewake.protocol.frames import record
from edgewake.protocol.frames.frame import FRAME_TYPE, Frame, encode
from tests.deploy.production import CONNECT_V5, TLS_REFUSED, Client, production_site
from tests.hostile.world import Victim, World, unharmed
from tests.services import wait_until

pytestmark = pytest.mark.services


DOORS = 200
"""Connections that say nothing but a byte now and then."""
FRAMES, ROUNDS = 1000, 10
HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(64)
"""The beginning of TLS."""
WEEK_MS = 7 * 86_400_000


@pytest.mark.long
def test_connections_that_come_byte_by_byte(here: World, victim: Victim) -> None:
    """Half of them before TLS, half behind it with a certificate, in the middle of CONNECT."""
    with ExitStack() as doors:
        plain = [
            doors.enter_context(socket.create_connection(("127.0.0.1", here.site.ports["devices"])))
            for _ in range(DOORS)
        ]
        tls = [
            here.site.context("devices", "attacker").wrap_socket(one, server_hostname="localhost")
            for one in plain[: DOORS // 2]
        ]
        for one in tls:
            doors.enter_context(one)
        said = 0

        def trickle() -> None:
            nonlocal said
            for one, text in [
                *((one, CONNECT_V5[:-1]) for one in tls),
                *((one, HELLO) for one in plain[DOORS // 2 :]),
            ]:
                with suppress(OSError):  # the broker may have had enough of it
                    one.sendall(text[said : said + 1])
            said += 1
            time.sleep(0.05)

        unharmed(victim, trickle)
        assert said > 5
        here.site.shake_hands(here.site.context("devices", "spammer"))


@pytest.mark.long
def test_control_where_there_are_fewer_places_than_doors_nobody_else_comes_in() -> None:
    """What the row above would notice: they do hold places, and only the number of these leaves
    some to others.
    """
    with production_site("late") as site, ExitStack() as doors:
        late = site.context("devices", "late")
        site.edit(
            site.root / "etc/mosquitto/conf.d/edgewake.conf",
            {"max_connections 20000": f"max_connections {DOORS // 2}"},
        )
        site.process.stop()
        site.start()
        site.shake_hands(late)
        for _ in range(DOORS):
            address = ("127.0.0.1", site.ports["devices"])
            doors.enter_context(socket.create_connection(address)).sendall(HELLO[:1])
        with pytest.raises(TLS_REFUSED):
            site.shake_hands(late)


def replaying(
    here: World, replayer: Client, stream: str
) -> tuple[Callable[[int], None], Callable[[], list[int]]]:
    """What sends a frame of a week ago, and the numbers of those that were passed on."""
    began = int(time.time() * 1000) - WEEK_MS

    def send(number: int) -> None:
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.ContentType = FRAME_TYPE
        properties.ResponseTopic = topics.ack(replayer.name)
        properties.CorrelationData = b"%d" % number
        properties.UserProperty = ("sent_at", str(began + number))
        frame = encode(Frame(1, number, number, [began + number], {"n": [number]}))
        topic = topics.up(replayer.name, stream)
        replayer.mqtt.publish(topic, frame, qos=0, properties=properties)

    def passed_on() -> list[int]:
        found = here.records(topics.stream_topic(stream), replayer.name)
        return [record.decode(one.value() or b"").frame.frame or 0 for one in found]

    return send, passed_on


@pytest.mark.long
def test_frames_of_a_week_ago_come_again_ten_times(here: World, victim: Victim) -> None:
    """Ten thousand of them: nothing of them is passed on a second time."""
    with here.device("replayer") as replayer:
        send, passed_on = replaying(here, replayer, "old")
        for number in range(1, FRAMES + 1):
            send(number)
        wait_until(lambda: len(passed_on()) >= FRAMES, "they are there once")
        rounds = 0

        def replay() -> None:
            nonlocal rounds
            if rounds == ROUNDS:
                time.sleep(0.01)
                return
            for number in range(1, FRAMES + 1):
                send(number)
            rounds += 1

        unharmed(victim, replay)
        while rounds < ROUNDS:
            replay()
        arrived = FRAMES * (ROUNDS + 1)
        wait_until(
            lambda: len(here.records(topics.UP, "replayer")) == arrived,
            "the bridges took each of them",
        )
        victim.send()
        assert victim.is_whole()
        assert passed_on() == list(range(1, FRAMES + 1))
        send(FRAMES + 1)
        wait_until(
            lambda: passed_on() == list(range(1, FRAMES + 2)), "the control: a new frame passes"
        )
