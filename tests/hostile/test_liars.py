"""A device that says what is not so: who it is, when, under which number, where it is to be
answered; and one that may not come in.
"""

from __future__ import annotations

import datetime
import itertools
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edgewake.protocol import topics
from tests.deploy.production import TLS_REFUSED, Client, certificate, production_site
from tests.hostile.world import Victim, World, unharmed
from tests.services import wait_until

NOT_AUTHORISED = 0x87


def _publish(client: Client, topic: str, payload: bytes, response_topic: str | None = None) -> int:
    """With QoS 1; the broker's reason code."""
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    if response_topic is not None:
        properties.ResponseTopic, properties.CorrelationData = response_topic, b"1"
    mid = client.mqtt.publish(topic, payload, qos=1, properties=properties).mid
    wait_until(lambda: mid in client.codes, "the broker's answer")
    return client.codes[mid]


def test_who_it_is_and_where_it_is_answered(here: World, victim: Victim) -> None:
    """Another's topic, another's name in the reading, the answer on another's topic; on the
    victim's own stream.
    """
    with here.device("liar") as liar:
        own, others = topics.up("liar", victim.stream), topics.up("victim", victim.stream)

        def lie() -> None:
            assert _publish(liar, others, b'{"seq":1,"n":666}') == NOT_AUTHORISED
            assert _publish(liar, topics.ack("victim"), b'{"token":"1.1"}') == NOT_AUTHORISED
            assert _publish(liar, topics.down("victim", "command"), b"{}") == NOT_AUTHORISED
            assert _publish(liar, own, b'{"device":"victim","seq":1,"n":666}') == 0
            assert _publish(liar, own, b'{"n":666}', topics.ack("victim")) == 0
            assert (
                _publish(
                    liar,
                    topics.status("liar"),
                    b'{"device":"victim","state":"offline","sent_at":1}',
                )
                == 0
            )

        unharmed(victim, lie)
        reasons = [letter.reason for letter, _ in here.letters("liar")]
        assert {"foreign_device", "response_topic"} <= set(reasons)
        assert here.records(topics.stream_topic(victim.stream), "liar") == []
        assert here.records(topics.DEVICES, "victim|status") == []


LIES: tuple[dict[str, Any], ...] = (
    {"t": 0}, {"t": 4_102_444_800_000}, {"t": -1}, {"t": 1e300}, {"t": 1_790_000_000},
    {"seq": 2**53 - 1}, {"seq": 0}, {"seq": -1},
    {"seq": 1, "epoch": 2**53 - 1}, {"seq": 1, "epoch": -5}, {"seq": "1"}, {"n": "a text"},
    {"n": [[]]},
)  # fmt: skip


def test_when_and_under_which_number(here: World, victim: Victim) -> None:
    """Clocks of 1970 and 2100, numbers and epochs at their ends and beyond, another type for the
    victim's field.
    """
    rounds = itertools.cycle(LIES)
    with here.device("liar") as liar:
        unharmed(
            victim,
            lambda: _publish(
                liar,
                topics.up("liar", victim.stream),
                repr({"n": 1} | next(rounds)).replace("'", '"').encode(),
            ),
        )
        assert "shape" in {letter.reason for letter, _ in here.letters("liar")}


def test_wrong_topics_are_said_with_the_nearest_right_one(here: World, victim: Victim) -> None:
    """They vanished after a PUBACK before."""
    wrong = [
        topics.up("liar", "room") + "/temp",
        "/" + topics.up("liar", "temp"),
        topics.up("liar", "temp") + "/",
        "ew/v1/liar/req/price",
    ]
    with here.device("liar") as liar:
        unharmed(victim, lambda: [_publish(liar, topic, b'{"n":1}') for topic in wrong], count=10)
    said = {
        letter.topic: letter.detail
        for letter, _ in here.letters("liar")
        if letter.reason == "topic"
    }
    assert set(said) == set(wrong)
    assert said[wrong[0]].endswith("the nearest right one is ew/v1/liar/up/room_temp")


@pytest.mark.parametrize(("first", "last"), [(-9, -1), (1, 9)], ids=["expired", "not yet valid"])
def test_certificates_out_of_their_time(
    here: World, victim: Victim, tmp_path: Path, first: int, last: int
) -> None:
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    context = here.site.context()
    key = here.site.certificates / "devices" / "liar.key"
    context.load_cert_chain(
        certificate(here.site, tmp_path, "liar", now + first * day, now + last * day), key
    )

    def knock() -> None:
        with pytest.raises(TLS_REFUSED):
            here.site.shake_hands(context)

    unharmed(victim, knock, count=15)


@pytest.mark.long
def test_control_the_same_certificate_in_its_time_opens_the_door(
    here: World, tmp_path: Path
) -> None:
    """No setting of the broker leaves the times out of what it checks; so it is they that the rows
    above are refused for.
    """
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    context = here.site.context()
    key = here.site.certificates / "devices" / "liar.key"
    context.load_cert_chain(certificate(here.site, tmp_path, "liar", now - day, now + day), key)
    here.site.shake_hands(context)


@pytest.mark.long
def test_control_without_the_list_a_revoked_device_comes_in_and_sends() -> None:
    """As where the broker's `crlfile` was left out of its configuration."""
    with production_site("stolen", "--bridge", "bridge-1") as site:
        stolen = site.context("devices", "stolen")
        site.issue("--revoke", "stolen")
        site.install()
        site.reload()
        with pytest.raises(TLS_REFUSED):
            site.shake_hands(stolen)
        site.edit(
            site.root / "etc/mosquitto/conf.d/edgewake.conf",
            {f"crlfile {site.root}/etc/mosquitto/certs/devices-crl.pem": ""},
        )
        site.process.stop()
        site.start()
        site.shake_hands(stolen)


def test_a_device_that_is_revoked_while_it_is_connected(here: World, victim: Victim) -> None:
    """The steps of docs/production.md: the restart ends its connection, and costs nobody a
    reading.
    """
    victim.series(5)
    with here.device("revoked") as revoked:
        context = here.site.context("devices", "revoked")
        assert revoked.publish(topics.up("revoked", "before")) == 0
        here.site.issue("--revoke", "revoked")
        here.site.install()
        here.site.reload()
        revoked.left.clear()
        here.site.process.stop()
        here.site.start()
        assert revoked.left.wait(60)
        revoked.connected.clear()
        victim.series(10)
        with pytest.raises(TLS_REFUSED):
            here.site.shake_hands(context)
        assert not revoked.connected.is_set()
    assert victim.is_whole()


@pytest.mark.long
def test_control_what_a_device_says_of_itself_is_passed_on(here: World, victim: Victim) -> None:
    """The rows above would notice a foreign reading on the victim's stream."""
    victim.send()
    with here.device("liar") as liar:
        assert _publish(liar, topics.up("liar", victim.stream), b'{"seq":1,"n":1}') == 0
        wait_until(
            lambda: here.records(topics.stream_topic(victim.stream), "liar"),
            "its own reading is there",
        )
