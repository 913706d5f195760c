"""Mosquitto as Debian starts it with the production files, real certificates and real clients: a
device touches its own topics only.
"""

from __future__ import annotations

import datetime
import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from paho.mqtt import client as paho

from edgewake.protocol import topics
from tests.deploy.production import (
    SUCCESS,
    TAKEN,
    TLS_REFUSED,
    Client,
    Site,
    certificate,
    certificates,
    production_site,
)
from tests.services import wait_until

NOT_AUTHORISED = 0x87


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with production_site(
        "dev-a", "dev-b", "--bridge", "bridge-1", "--bridge", "bridge-17"
    ) as running:
        yield running


def test_it_starts_from_conf_d_as_the_user_mosquitto(site: Site) -> None:
    assert "include_dir" in (site.root / "etc/mosquitto/mosquitto.conf").read_text()
    expected = "mosquitto" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    assert psutil.Process(site.process.pid).username() == expected


def test_a_device_publishes_on_its_own_topics(site: Site) -> None:
    with Client(site, "dev-a") as device:
        assert device.publish("ew/v1/dev-a/up/weather") in TAKEN
        assert device.publish("ew/v1/dev-a/status") in TAKEN
        assert device.publish("ew/v1/dev-a/req/feed") in TAKEN


@pytest.mark.parametrize(
    "topic",
    [
        "ew/v1/dev-b/up/weather",
        "ew/v1/dev-b/status",
        "ew/v1/dev-b/req/feed",
        "ew/v1/dev-a/down/feed",
        "ew/v1/dev-a/ack",
        "ew/v1/dev-b/ack",
        "ew/v1/dev-a/down/command",
        "ew/v1/dev-b/down/command",
        "ew/v1/dev-b/up/a/b",
        "/ew/v1/dev-b/up/weather",
        "ew/v1/dev-a/other",
        "other",
        "ew/v1/pub/x",
        "ew/bridges/edgewake/bridge-1",
    ],
)
def test_a_device_publishes_nowhere_else(site: Site, topic: str) -> None:
    with Client(site, "dev-a") as device:
        assert device.publish(topic) == NOT_AUTHORISED


@pytest.mark.parametrize(
    "topic",
    [
        "ew/v1/dev-a/up/a/b",
        "ew/v1/dev-a/up/weather/",
        "/ew/v1/dev-a/up/weather",
        "ew/v1/dev-a/req/other",
    ],
)
def test_a_wrong_topic_of_its_own_reaches_the_bridges_which_say_so(site: Site, topic: str) -> None:
    with Client(site, "dev-a") as device, Client(site, "bridge-1", "bridges") as bridge:
        for one in topics.BRIDGE_FILTERS:
            bridge.subscribe(one)
        assert device.publish(topic) == SUCCESS
        wait_until(lambda: bridge.topics == [topic], "the bridge hears it")


def test_a_device_may_subscribe_to_what_is_its_own_and_to_nothing_else(site: Site) -> None:
    """Asked when it subscribes, not when something is delivered."""
    own = (
        "ack",
        "acks",
        "down/+",
        "down/#",
        "down/command",
        "down/settings",
        "down/reply",
        "down/feed",
        "+",
        "#",
    )
    with Client(site, "dev-a") as device:
        for topic in own:
            assert device.subscribe(f"ew/v1/dev-a/{topic}") == [1], topic
        for topic in (
            "#",
            "+/+",
            "$SYS/#",
            "ew/v1/+/ack",
            "ew/v1/dev-b/ack",
            "$share/x/#",
            "$share/x/ew/v1/dev-a/ack",
            "ew/bridges/+/+",
            "a",
        ):
            assert device.subscribe(topic) == [NOT_AUTHORISED], topic


def test_a_device_hears_nothing_of_another_even_when_it_asks_for_everything(site: Site) -> None:
    with (
        Client(site, "dev-a") as device,
        Client(site, "dev-b") as other,
        Client(site, "bridge-1", "bridges") as bridge,
    ):
        for topic in (
            "#",
            "ew/v1/+/up/+",
            "ew/v1/dev-b/ack",
            "$SYS/#",
            "ew/v1/+/req/feed",
            "$share/x/ew/v1/+/up/+",
            "ew/bridges/+/+",
            "ew/v1/dev-a/#",
        ):
            device.subscribe(topic)
        bridge.publish("ew/bridges/edgewake/bridge-1")
        bridge.subscribe("$share/bridges/ew/v1/+/up/+")
        other.publish("ew/v1/dev-b/up/weather")
        bridge.publish("ew/v1/dev-b/ack")
        bridge.publish("ew/v1/dev-a/ack")
        wait_until(lambda: device.topics, "its own answer arrives")
        wait_until(lambda: bridge.topics, "the bridge hears")
    assert set(device.topics) == {"ew/v1/dev-a/ack"}
    assert bridge.topics == ["ew/v1/dev-b/up/weather"]


def test_a_device_reads_its_own_downlink_and_nobody_elses_and_only_bridges_write_it(
    site: Site,
) -> None:
    with (
        Client(site, "dev-a") as device,
        Client(site, "dev-b") as other,
        Client(site, "bridge-1", "bridges") as bridge,
    ):
        for topic in (
            "ew/v1/+/down/+",
            "ew/v1/dev-b/down/command",
            "$share/x/ew/v1/dev-b/down/+",
            "ew/v1/dev-a/down/+",
        ):
            device.subscribe(topic)
        other.subscribe("ew/v1/dev-b/down/+")
        assert bridge.publish("ew/v1/dev-b/down/command") in TAKEN
        assert bridge.publish("ew/v1/dev-a/down/settings") in TAKEN
        wait_until(lambda: other.topics, "the one whom it is for hears it")
        wait_until(lambda: device.topics, "its own arrives")
        assert bridge.publish("ew/v1/dev-a/cmd") == NOT_AUTHORISED
    assert set(device.topics) == {"ew/v1/dev-a/down/settings"}
    assert set(other.topics) == {"ew/v1/dev-b/down/command"}


def test_a_denied_publish_of_an_old_client_reaches_nobody_although_nothing_tells_it(
    site: Site,
) -> None:
    """MQTT 3.1.1 has no answer for it, and 2.0 cannot refuse that version: the harm is the sender's
    own.
    """
    with (
        Client(site, "dev-a", protocol=paho.MQTTv311) as old,
        Client(site, "bridge-1", "bridges") as bridge,
    ):
        bridge.subscribe("ew/v1/+/up/+")
        assert old.publish("ew/v1/dev-b/up/weather") == SUCCESS
        assert old.publish("ew/v1/dev-a/up/weather") == SUCCESS
        wait_until(lambda: bridge.topics, "the allowed one arrives")
    assert bridge.topics == ["ew/v1/dev-a/up/weather"]


def test_a_bridge_cannot_pretend_to_be_a_device(site: Site) -> None:
    with Client(site, "bridge-1", "bridges") as bridge:
        assert bridge.publish("ew/v1/dev-a/up/weather") == NOT_AUTHORISED


def test_a_new_bridge_needs_no_change_of_the_rules(site: Site) -> None:
    with Client(site, "bridge-17", "bridges") as bridge, Client(site, "dev-a") as device:
        bridge.subscribe("$share/bridges/ew/v1/+/up/+")
        bridge.subscribe("$share/bridges/ew/v1/+/req/feed")
        assert device.publish("ew/v1/dev-a/up/weather") == SUCCESS
        assert device.publish("ew/v1/dev-a/req/feed") == SUCCESS
        assert bridge.publish("ew/v1/dev-a/ack") in TAKEN
        wait_until(
            lambda: set(bridge.topics) == {"ew/v1/dev-a/up/weather", "ew/v1/dev-a/req/feed"},
            "it hears the device",
        )


def test_a_bridge_takes_over_the_session_of_another_and_hears_what_the_broker_confirmed_to_devices(
    site: Site,
) -> None:
    """With its own certificate and the other's client id; no device can name that, for its client
    id is its certificate's name.
    """
    dead = Client(site, "bridge-1", "bridges", client_id="bridge:dead", session_s=1000)
    with dead:
        dead.subscribe("$share/orphans/ew/v1/+/up/+")
    with Client(site, "dev-a", client_id="bridge:dead") as device:
        for _ in range(3):
            assert device.publish("ew/v1/dev-a/up/weather") in TAKEN
    with Client(site, "bridge-17", "bridges", client_id="bridge:dead", session_s=1000) as heir:
        wait_until(lambda: len(heir.topics) == 3, "what was kept for the dead bridge")


def test_bridges_hear_each_others_beats(site: Site) -> None:
    with Client(site, "bridge-1", "bridges") as one, Client(site, "bridge-17", "bridges") as other:
        one.subscribe("ew/bridges/+/+")
        assert other.publish("ew/bridges/edgewake/bridge-17") in TAKEN
        wait_until(lambda: one.topics == ["ew/bridges/edgewake/bridge-17"], "a beat")


def test_no_certificate_of_a_device_opens_the_door_of_the_bridges_nor_the_other_way_round(
    site: Site,
) -> None:
    device, bridge = site.context("devices", "dev-a"), site.context("bridges", "bridge-1")
    for context, listener in ((device, "bridges"), (bridge, "devices")):
        with pytest.raises(TLS_REFUSED):
            site.shake_hands(context, listener)
    site.shake_hands(device, "devices")
    site.shake_hands(bridge, "bridges")


def test_another_client_id_does_not_take_over_a_session(site: Site) -> None:
    """The certificate's name is the client id, whatever a client says."""
    with Client(site, "dev-b") as honest, Client(site, "dev-a", client_id="dev-b"):
        assert honest.publish("ew/v1/dev-b/up/weather") in TAKEN
        assert honest.mqtt.is_connected()


def test_no_certificate_and_a_strangers_certificate_are_refused(site: Site, tmp_path: Path) -> None:
    assert certificates(tmp_path, "dev-a").returncode == 0
    without, foreign = site.context(), site.context()
    foreign.load_cert_chain(tmp_path / "devices" / "dev-a.crt", tmp_path / "devices" / "dev-a.key")
    for context in (without, foreign):
        with pytest.raises(TLS_REFUSED):
            site.shake_hands(context)


@pytest.mark.parametrize(
    ("first", "last", "is_good"),
    [(-9, -1, False), (1, 9, False), (-1, 1, True)],
    ids=["past", "future", "now"],
)
def test_a_certificate_is_good_only_in_its_time(
    site: Site, tmp_path: Path, first: int, last: int, is_good: bool
) -> None:
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    context = site.context()
    context.load_cert_chain(
        certificate(site, tmp_path, "dev-a", now + first * day, now + last * day),
        site.certificates / "devices" / "dev-a.key",
    )
    if is_good:
        site.shake_hands(context)
    else:
        with pytest.raises(TLS_REFUSED):
            site.shake_hands(context)


def test_a_revoked_certificate_is_refused_after_a_reload_and_cut_off_by_a_restart() -> None:
    with production_site("stolen", "honest") as site:
        stolen, honest = site.context("devices", "stolen"), site.context("devices", "honest")
        site.shake_hands(stolen)
        with Client(site, "stolen") as open_before:
            site.issue("--revoke", "stolen")
            site.install()
            site.reload()
            with pytest.raises(TLS_REFUSED):
                site.shake_hands(stolen)
            site.shake_hands(honest)
            # A reload looks at no connection that is open; docs/production.md says so.
            assert open_before.publish("ew/v1/stolen/up/weather") in TAKEN
            open_before.left.clear()
            site.process.stop()
            site.start()
            assert open_before.left.wait(60)
            open_before.connected.clear()
            with pytest.raises(TLS_REFUSED):
                site.shake_hands(stolen)
            site.shake_hands(honest)
            assert not open_before.connected.is_set()
        site.issue("stolen")
        site.shake_hands(site.context("devices", "stolen"))


def _leave_a_session(site: Site) -> None:
    """A bridge that subscribes, leaves, and has its messages kept for 1000 s."""
    bridge = Client(site, "bridge-1", "bridges", session_s=1000)
    with bridge:
        bridge.subscribe("ew/v1/+/up/+")


def test_a_flood_that_nobody_reads_is_bounded_and_the_broker_serves_on() -> None:
    """Queues of clients that are away cannot fill the machine: each has a bound, here 16 MiB."""
    with production_site("flood", "calm", "--bridge", "bridge-1") as site:
        site.process.stop()
        site.edit(
            site.root / "etc/mosquitto/conf.d/edgewake.conf",
            {"max_queued_bytes 67108864": f"max_queued_bytes {16 << 20}"},
        )
        site.start()
        _leave_a_session(site)
        before = psutil.Process(site.process.pid).memory_info().rss
        with Client(site, "flood") as flood:
            for _ in range(120):
                assert flood.publish("ew/v1/flood/up/x", bytes(512 << 10)) in TAKEN
            with Client(site, "calm") as calm:
                assert calm.publish("ew/v1/calm/up/x") in TAKEN
        grown = psutil.Process(site.process.pid).memory_info().rss - before
        assert 10 << 20 < grown < 40 << 20


def test_keys_are_readable_by_their_owner_only(site: Site) -> None:
    """Those of Kafka too: its image reads them as a user of its own, so their folder is what keeps
    others out.
    """
    kafka = site.certificates / "kafka"
    others = [path for path in site.certificates.rglob("*") if path.parent != kafka]
    assert kafka in others
    assert {path.stat().st_mode & 0o077 for path in others} == {0}


def test_a_name_that_is_no_device_gets_no_certificate(tmp_path: Path) -> None:
    for name in ("#", "+", "a/b", "", "x" * 65, ".hidden", "a\nb"):
        done = certificates(tmp_path, name)
        assert (done.returncode, done.stderr.startswith("name ")) == (2, True), name


@pytest.mark.parametrize(
    "name",
    [
        "devices-ca",
        *(
            pytest.param(one, marks=pytest.mark.long)
            for one in ("ca", "server", "ops", "cursor", "keys", "authority")
        ),
    ],
)
def test_a_device_with_the_name_of_a_file_of_ours_gets_a_certificate_and_no_key_of_ours(
    tmp_path: Path, name: str
) -> None:
    assert certificates(tmp_path).returncode == 0
    of_devices = {tmp_path / "broker" / "subscriptions.json", tmp_path / "tokens" / "devices"}
    ours = {
        path: path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file() and path not in of_devices
    }
    assert certificates(tmp_path, name).returncode == 0
    assert {path: path.read_bytes() for path in ours} == ours
    made = {path for path in tmp_path.rglob("*") if path.is_file()} - of_devices - set(ours)
    assert made == {tmp_path / "devices" / f"{name}{kind}" for kind in (".crt", ".key", ".token")}


def test_no_device_has_the_session_of_a_part(tmp_path: Path) -> None:
    for arguments in (("bridge-1",), ("bridge",), ("supervisor",), ("--bridge", "dev-a")):
        done = certificates(tmp_path, *arguments)
        assert (done.returncode, done.stderr.startswith(f"name {arguments[-1]}: expected")) == (
            2,
            True,
        ), arguments


@pytest.mark.long
def test_a_certificate_that_ends_soon_is_renewed_with_its_key_and_a_good_one_stays(
    tmp_path: Path,
) -> None:
    certificate, key = tmp_path / "devices" / "dev-a.crt", tmp_path / "devices" / "dev-a.key"
    assert certificates(tmp_path, "dev-a", DAYS="20").returncode == 0
    old, old_key = certificate.read_bytes(), key.read_bytes()
    assert certificates(tmp_path, "dev-a").returncode == 0
    renewed = certificate.read_bytes()
    assert certificates(tmp_path, "dev-a").returncode == 0
    assert (renewed != old, certificate.read_bytes() == renewed, key.read_bytes() == old_key) == (
        True,
        True,
        True,
    )


def test_a_name_that_has_no_certificate_cannot_be_revoked(tmp_path: Path) -> None:
    done = certificates(tmp_path, "--revoke", "nobody")
    assert (done.returncode, done.stderr) == (
        2,
        f"name nobody: no certificate of it is in {tmp_path}\n",
    )
