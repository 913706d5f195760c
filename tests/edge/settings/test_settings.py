"""Settings from afar: what may be set, what becomes of a trial, and that the device comes back
whatever was pushed.
"""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from edgewake.edge import run
from edgewake.edge.config import AgentConfig
from edgewake.edge.life import Life
from edgewake.edge.settings.settings import FILE_NAME, SettingsFile, SettingsState, Version, merged
from edgewake.protocol.errors import ConfigError, LocalError
from tests.edge.downlink.cloud import answered, answers, publish
from tests.edge.peer import Peer, Taken
from tests.edge.test_agent import READY, config, edgewake
from tests.services import Mosquitto, part

OWN = {
    "device": "car",
    "data_dir": "/tmp/x",
    "log": {"mode": "rbml"},
    "downlink": {"settings": True},
}
ONE, TWO = Version("i1", 1, "log.linger_ms = 1"), Version("i2", 2, "log.linger_ms = 2")


def test_whole_tables_are_replaced_and_the_rest_is_as_the_device_says() -> None:
    found = merged(
        OWN, 'log.linger_ms = 5\n[[source]]\ntype = "host_metrics"\nstream = "host"\n', "v1"
    )
    assert (found.device, found.log.linger_ms, found.log.mode, found.source[0].stream) == (
        "car",
        5.0,
        "rbml",
        "host",
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('device = "other"', "device"),
        ('data_dir = "/"', "data_dir"),
        ('mqtt.host = "evil.example"', "mqtt"),
        ('[mqtt]\nkey_file = "/k"', "mqtt"),
        ('[downlink.command.sh]\nargv = ["/bin/sh"]', "downlink"),
        ('log.mode = "none"', r"log\.mode"),
        ("log.linger_ms = -1", "linger_ms"),
        ("unknown = 1", "unknown"),
        ("= 1", "not TOML"),
        ('[[source]]\ntype = "no_such"\nstream = "a"', "no_such"),
    ],
)
def test_what_may_not_be_set_and_what_is_wrong_is_named(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        merged(OWN, text, "v1")


def test_a_trial_is_good_when_proven_and_given_up_when_its_life_ended_before() -> None:
    first = SettingsState().pushed(ONE).started().proven()
    assert (first.version, first.latest, first.trial) == (1, 1, None)
    trying = first.pushed(TWO).started()
    assert (trying.version, trying.is_begun) == (2, True)
    died = trying.started()
    assert (died.version, died.latest, died.failed, died.good) == (1, 2, TWO, ONE)
    assert "ended" in died.why
    assert died.started() == died


def test_the_file_is_whole_and_what_cannot_be_used_does_not_keep_the_device_down(
    tmp_path: Path,
) -> None:
    file = SettingsFile(OWN, tmp_path)
    assert file.start().log.linger_ms == 200
    file.write(SettingsState().pushed(ONE))
    assert (file.start().log.linger_ms, file.read().is_begun) == (1.0, True)
    assert (file.start().log.linger_ms, file.read().failed) == (200.0, ONE)
    file.write(SettingsState(good=ONE).pushed(Version("i3", 3, "device = 'x'")))
    assert (file.start().log.linger_ms, file.read().version) == (1.0, 1)
    file.write(SettingsState(good=Version("i4", 4, "uplink = 5")))
    assert (file.start().log.linger_ms, file.read().good, file.read().latest) == (200.0, None, 4)
    (tmp_path / FILE_NAME).write_bytes(b"{")
    assert (file.start().log.linger_ms, file.read()) == (200.0, SettingsState())
    assert (tmp_path / "settings.damaged").read_bytes() == b"{"


@pytest.mark.parametrize(
    "error", [LocalError("no disk"), ExceptionGroup("tasks", [OSError("no disk")])]
)
def test_a_trial_that_ends_by_an_error_is_given_up_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: object) -> bool:
        raise error

    monkeypatch.setattr(run, "_run", fails)
    file = SettingsFile(OWN, tmp_path)
    file.write(SettingsState(good=ONE).pushed(TWO))
    life = Life(AgentConfig(device="d", data_dir=tmp_path), OWN, (), "", verbose=False)
    assert run._live(life), "another life begins"
    assert (file.read().version, file.read().failed, file.read().why) == (
        1,
        TWO,
        "the agent ended: no disk",
    )
    with pytest.raises(type(error)):  # what is proven good is not given up for it
        run._live(life)


ALLOWED = "[downlink]\nsettings = true\nhealth_s = {health_s}\n"
HOST = '[[source]]\ntype = "host_metrics"\nstream = "speed"\ninterval_s = 0.05\n'


def states(peer: Peer, device: str) -> list[tuple[object, object]]:
    return [(answer["state"], answer.get("version")) for answer in answers(peer, device)]


async def test_pushed_settings_are_used_after_a_restart_of_the_same_process_and_reported(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    path = config(tmp_path, mosquitto.port, "set-1", ALLOWED.format(health_s=60))
    async with Peer(mosquitto.port) as peer:
        with part("agent", path, tmp_path / "out") as agent:
            agent.wait_for(READY)
            await peer.until(lambda: peer.statuses)
            pid = agent.pid
            publish(peer, "set-1", "settings", {"id": "a", "version": 7, "text": 'device = "x"'})
            publish(peer, "set-1", "settings", {"id": "b", "version": 7, "text": HOST})
            await answered(peer, "set-1", 3)
            assert states(peer, "set-1") == [("refused", 0), ("trying", 7), ("done", 7)]
            assert "may not be set from afar: device" in str(answers(peer, "set-1")[0]["detail"])
            await peer.until(lambda: any(taken.stream == "speed" for taken in peer.taken))
            publish(peer, "set-1", "settings", {"id": "c", "version": 7, "text": ""})
            await answered(peer, "set-1", 4)
            assert states(peer, "set-1")[3] == ("refused", 7)
            await peer.until(lambda: orjson.loads(peer.statuses[-1]).get("settings_version") == 7)
            assert agent.pid == pid
            assert agent.is_running()
            assert agent.stop() == 0
    assert (
        orjson.loads(edgewake("status", "--config", path, "--json").stdout)["settings_version"] == 7
    )


@pytest.mark.long
async def test_settings_under_which_the_cloud_acknowledges_nothing_are_rolled_back(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    """The cloud is silent as soon as the device says that it tries them; the control is the test
    before, with the same device.
    """
    silent: list[bool] = []
    path = config(tmp_path, mosquitto.port, "set-2", ALLOWED.format(health_s=3))

    def answer(taken: Taken) -> object:
        if b"trying" in bytes(str(taken.frame), "utf-8") and not silent:
            silent.append(True)
        return None if silent[-1:] == [True] else peer.acknowledge(taken)

    async with Peer(mosquitto.port, answer=answer) as peer:  # type: ignore[arg-type]
        with part("agent", path, tmp_path / "out") as agent:
            agent.wait_for(READY)
            await peer.until(lambda: peer.statuses)
            publish(peer, "set-2", "settings", {"id": "a", "version": 1, "text": HOST})
            agent.wait_for("settings.given_up")
            silent.append(False)
            await answered(peer, "set-2", 2)
            assert states(peer, "set-2") == [("trying", 1), ("rolled_back", 0)]
            await peer.until(lambda: orjson.loads(peer.statuses[-1]).get("settings_version") == 0)
            assert agent.is_running()
            assert agent.stop() == 0


async def test_settings_that_end_the_agent_are_rolled_back(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    """The life that tries them is killed, as by a watchdog or for its memory, before the cloud has
    acknowledged anything.
    """
    path = config(tmp_path, mosquitto.port, "set-3", ALLOWED.format(health_s=60))
    async with Peer(mosquitto.port, answer=lambda _taken: None) as peer:
        with part("agent", path, tmp_path / "out") as agent:
            agent.wait_for(READY)
            await peer.until(lambda: peer.statuses)
            publish(peer, "set-3", "settings", {"id": "a", "version": 1, "text": HOST})
            await peer.until(lambda: any(taken.stream == "speed" for taken in peer.taken))
            agent.kill()
    async with Peer(mosquitto.port) as peer:
        with part("agent", path, tmp_path / "out2") as agent:
            agent.wait_for(READY)
            await answered(peer, "set-3", 2)
            assert states(peer, "set-3") == [("trying", 1), ("rolled_back", 0)]
            assert agent.stop() == 0
