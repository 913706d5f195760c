"""`init`: whatever somebody answers, there is a configuration that works, or a sentence and no
file.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.commands.cli import agent
from edgewake.edge.commands.first_config import SOURCES, configuration_text, write_new
from edgewake.edge.config import AgentConfig
from edgewake.protocol.config import load, parse, values_of
from edgewake.protocol.errors import ConfigError, LocalError


def init(path: Path, **given: str) -> Result:
    said = {"device": "shed", "broker": "broker.example:1883", "data-dir": "/var/lib/x"} | {
        k.replace("_", "-"): v for k, v in given.items()
    }
    return CliRunner().invoke(
        agent,
        [
            "init",
            str(path),
            *(word for name, value in said.items() for word in (f"--{name}", value)),
        ],
    )


@pytest.mark.parametrize(
    ("broker", "host", "port"),
    [
        pytest.param("b.example:1883", "b.example", 1883, id="a name"),
        pytest.param("192.0.2.7:8883", "192.0.2.7", 8883, id="an address"),
        pytest.param("[2001:db8::7]:1883", "2001:db8::7", 1883, id="an address of IPv6"),
        pytest.param("b:01883", "b", 1883, id="a port with a nought before it"),
    ],
)
def test_a_broker_is_a_host_and_a_port(tmp_path: Path, broker: str, host: str, port: int) -> None:
    done = init(tmp_path / "agent.toml", broker=broker)
    assert done.exit_code == 0, done.output
    found = load(AgentConfig, tmp_path / "agent.toml").mqtt
    assert (found.host, found.port) == (host, port)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        pytest.param({"broker": ":1883"}, "expected host:port", id="no host"),
        pytest.param({"broker": "b:"}, "expected host:port", id="no port"),
        pytest.param({"broker": "b:mqtt"}, "expected host:port", id="a port by name"),
        pytest.param({"broker": "b:-1"}, "expected host:port", id="a port below nought"),
        pytest.param({"broker": "b:\u0663"}, "expected host:port", id="a digit of another script"),
        pytest.param({"broker": "b:" + "9" * 5000}, "expected host:port", id="thousands of digits"),
        pytest.param({"broker": "b:0"}, "mqtt.port = 0", id="port nought"),
        pytest.param({"broker": "a b:1"}, "mqtt.host = 'a b'", id="a host with a blank"),
        pytest.param(
            {"broker": "b\x7f:1"},
            "expected characters that can be seen",
            id="a host with a character of control",
        ),
        pytest.param({"data_dir": ""}, "data-dir: expected a directory", id="no folder"),
        pytest.param(
            {"data_dir": "/x\x7fy"},
            "expected characters that can be seen",
            id="a folder that TOML cannot say",
        ),
        pytest.param(
            {"data_dir": "/x\udcffy"},
            "expected characters that can be seen",
            id="a folder whose name is not UTF-8",
        ),
        pytest.param(
            {"device": "d\x1b[2J"},
            "expected characters that can be seen",
            id="a device that clears the screen",
        ),
        pytest.param({"device": ""}, "device = ''", id="no device"),
        pytest.param(
            {"source": "gps"},
            "expected one of host_metrics, json_lines",
            id="a kind of source that is none",
        ),
    ],
)
def test_an_answer_that_cannot_be_used_is_said_and_nothing_is_written(
    tmp_path: Path, given: dict[str, str], says: str
) -> None:
    done = init(tmp_path / "agent.toml", **given)
    assert done.exit_code in (1, 2)
    assert isinstance(done.exception, SystemExit)
    assert says in done.output
    assert list(tmp_path.iterdir()) == []


@given(st.text(max_size=12), st.text(max_size=12), st.text(max_size=12))
def test_whatever_is_answered_it_is_a_configuration_or_a_sentence(
    device: str, broker: str, data_dir: str
) -> None:
    try:
        found = parse(
            AgentConfig,
            values_of(configuration_text(device, broker + ":1", data_dir, []), "new"),
            "new",
        )
    except LocalError:
        return
    assert (found.device, found.data_dir, found.mqtt.port) == (device, Path(data_dir), 1)


@given(st.lists(st.sampled_from(sorted(SOURCES)), max_size=4))
def test_as_many_tables_of_sources_as_were_asked_for(kinds: list[str]) -> None:
    values = values_of(configuration_text("d", "h:1", "/x", kinds), "new")
    assert [source["type"] for source in values.get("source", [])] == kinds


def test_a_configuration_that_is_there_stays_unless_told_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text("mine")
    done = init(path)
    assert (
        done.exit_code,
        "exists already; --force overwrites it" in done.output,
        path.read_text(),
    ) == (1, True, "mine")


def test_a_link_that_leads_nowhere_is_there_too(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.symlink_to(tmp_path / "elsewhere")
    assert init(path).exit_code == 1
    assert path.is_symlink()


def test_what_replaces_a_file_is_for_its_owner_alone_and_leaves_nothing_beside_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "agent.toml"
    path.write_text("mine")
    path.chmod(0o644)
    write_new(path, configuration_text("d", "h:1", "/x", []), replace=True)
    assert (load(AgentConfig, path).device, path.stat().st_mode & 0o777) == ("d", 0o600)
    assert list(tmp_path.iterdir()) == [path]


def test_a_text_that_cannot_be_used_replaces_nothing(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text("mine")
    with pytest.raises(ConfigError, match=f"{path}: device: missing"):
        write_new(path, 'data_dir = "/x"', replace=True)
    assert (path.read_text(), list(tmp_path.iterdir())) == ("mine", [path])


@pytest.mark.parametrize(
    "where",
    ["no/agent.toml", "file/agent.toml"],
    ids=["a folder that is not there", "a folder that is a file"],
)
def test_where_nothing_can_be_written_that_is_said(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").touch()
    done = init(tmp_path / where)
    assert (done.exit_code, f"{tmp_path / where}: " in done.output) == (1, True)
    assert isinstance(done.exception, SystemExit)


def test_the_first_configuration_keeps_the_password_of_nobody(tmp_path: Path) -> None:
    """What is a secret stands in files of its own."""
    text = configuration_text("d", "h:1", "/x", sorted(SOURCES))
    assert "password =" not in text
    assert "key_file" in text
