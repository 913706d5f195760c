"""`edgewake-agent init` for who says what there is, who is asked, and who has a claim code."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from edgewake.edge.commands import setting_up
from edgewake.edge.commands.cli import agent
from edgewake.edge.commands.first_config import SOURCES
from edgewake.edge.commands.first_sources import QUESTIONS, SPARKPLUG, choices, place_of
from edgewake.edge.commands.setting_up import Said
from edgewake.edge.config import AgentConfig
from edgewake.edge.sources.mqtt.mqtt_subscribe import MqttSubscribeConfig
from edgewake.protocol.config import load
from edgewake.protocol.errors import LocalError
from edgewake.protocol.maps import presets
from edgewake.protocol.maps.applying import apply
from edgewake.protocol.maps.map_file import MapFile


def init(file: Path, *words: str, text: str = "") -> Result:
    begin = ["init", "--device", "house", "--data-dir", "/var/lib/x"]
    return CliRunner().invoke(agent, [*begin, *words, str(file)], input=text)


def sources(file: Path) -> list[tuple[str, str]]:
    return [(one.type, one.stream) for one in load(AgentConfig, file).source]


@pytest.mark.parametrize("preset", presets.names())
def test_each_preset_gives_a_configuration_that_works(tmp_path: Path, preset: str) -> None:
    file = tmp_path / "agent.toml"
    done = init(
        file, "--broker", "b:1", "--preset", preset, "--devices-broker", "m:2", "--zone",
        "Europe/Berlin",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    for one in load(AgentConfig, file).source:
        assert isinstance(one, MqttSubscribeConfig)
        assert (one.broker.host, one.broker.port) == ("m", 2)
        assert (one.presets, one.time.zone) == ((preset,), "Europe/Berlin")


def test_a_topic_gives_a_map_file_that_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    done = init(file, "--broker", "b:1", "--topic", "home/{device}/{kind}")
    assert done.exit_code == 0, done.output
    assert sources(file) == [("mqtt_subscribe", "home")]
    maps = MapFile(tmp_path / "agent.maps.toml").maps
    (one,) = apply(maps, "home/bath/temperature", b"21.5", 0).readings
    assert (one.device, one.stream, one.body) == ("bath", "home", {"temperature": 21.5})
    before = (tmp_path / "agent.maps.toml").read_text()
    again = init(tmp_path / "agent.toml", "--broker", "b:1", "--topic", "x/{device}")
    assert again.exit_code == 1
    assert (tmp_path / "agent.maps.toml").read_text() == before


def test_what_cannot_be_is_said_and_no_file_is_written(tmp_path: Path) -> None:
    maps = tmp_path / "m.toml"
    maps.write_text("[[map]]\n")
    for words, says in (
        (("--preset", "tasmotta"), "did you mean 'tasmota'"),
        (("--topic", "home/{device"), "a level is a text"),
        (("--maps", str(maps)), "topic"),
        (("--maps", str(tmp_path / "none.toml")), "No such file"),
        (("--topic", "a/b", "--maps", str(maps)), "expected one of --topic and --maps"),
        (("--preset", "tasmota", "--devices-broker", "m"), "expected host:port"),
        (("--source", "toaster"), "expected one of"),
    ):
        done = init(tmp_path / "agent.toml", "--broker", "b:1", *words)
        assert done.exit_code == 1, done.output
        assert says in done.output
        assert [one.name for one in tmp_path.iterdir()] == ["m.toml"]


def test_on_a_terminal_it_asks_what_there_is(tmp_path: Path) -> None:
    said = Said(
        device="house", broker="b:1", data_dir="/x", sources=(), presets=(), topic="", maps=None,
        devices_broker=None, zone="UTC", password_file=None, claim="", server="", force=False,
    )  # fmt: skip
    shown: list[str] = []
    asked: list[str] = []
    number = next(n for n, (word, _) in enumerate(choices(), 1) if word == "tasmota")
    answers = iter([f"1, {number}", "m:2"])

    def ask(question: str, default: str) -> str:
        assert default
        asked.append(question)
        return next(answers)

    file = tmp_path / "agent.toml"
    setting_up.set_up(file, said, ask=ask, say=shown.append, may_ask=True)
    assert len(shown) == len(choices())
    assert [question[:4] for question in asked] == ["What", "Brok"]
    assert sources(file)[:2] == [
        ("host_metrics", "host_metrics"),
        ("mqtt_subscribe", "tasmota_sensor"),
    ]
    answers = iter(["99"])
    with pytest.raises(LocalError, match="'99': expected numbers or words"):
        setting_up.set_up(tmp_path / "b.toml", said, ask=ask, say=shown.append, may_ask=True)


def answered(tmp_path: Path, *answers: str) -> tuple[Path, list[str]]:
    """The configuration that somebody gets who answers so, and what he was asked."""
    said = Said(
        device="house", broker="b:1", data_dir="/x", sources=(), presets=(), topic="", maps=None,
        devices_broker=None, zone="UTC", password_file=None, claim="", server="", force=False,
    )  # fmt: skip
    left, asked = list(answers), []

    def ask(question: str, default: str) -> str:
        asked.append(question)
        return left.pop(0) or default

    file = tmp_path / "agent.toml"
    setting_up.set_up(file, said, ask=ask, say=lambda _: None, may_ask=True)
    assert not left
    return file, asked


ONE_TABLE = [word for word, _ in choices() if word in SOURCES and word != setting_up.OWN_TOPICS]


@pytest.mark.parametrize("kind", ONE_TABLE)
def test_each_kind_that_one_may_have_gives_a_configuration_that_says_where_it_is(
    tmp_path: Path, kind: str
) -> None:
    asks = [f"{place_of(kind)}7"] if kind in QUESTIONS else []
    broker = ["m:2"] if kind == SPARKPLUG else []
    file, _ = answered(tmp_path, kind, *asks, *broker)
    (one,) = load(AgentConfig, file).source
    assert one.type == kind
    if kind in QUESTIONS:
        assert str(getattr(one, QUESTIONS[kind][0])) == asks[0]
    if kind == SPARKPLUG:
        assert (one.broker.host, one.broker.port) == ("m", 2)  # type: ignore[attr-defined]


def test_who_has_topics_of_his_own_is_asked_for_them_and_gets_map_and_source(
    tmp_path: Path,
) -> None:
    file, asked = answered(tmp_path, "mqtt_subscribe, tasmota", "shed/{device}/{kind}", "m:2")
    assert [question.split(",")[0] for question in asked[1:]] == [
        "Topics",
        "Broker that these devices publish to",
    ]
    assert ("mqtt_subscribe", "shed") in sources(file)
    assert ("mqtt_subscribe", "tasmota_sensor") in sources(file)
    maps = MapFile(tmp_path / "agent.maps.toml").maps
    (one,) = apply(maps, "shed/bath/humidity", b"48", 0).readings
    assert (one.device, one.stream, one.body) == ("bath", "shed", {"humidity": 48})


def test_a_log_is_where_its_owner_may_write(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    assert setting_up.data_dir_of(file, is_root=True) == "/var/lib/edgewake"
    assert setting_up.data_dir_of(file, is_root=False) == str(tmp_path / "edgewake-data")
