"""Every kind of mistake in a configuration file ends in sentences that name the file, the key, the
value and what was expected.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.config import AgentConfig
from edgewake.edge.downlink.config import DownlinkConfig
from edgewake.edge.log.config import LogConfig
from edgewake.edge.settings.settings import merged
from edgewake.edge.uplink.config import UplinkConfig
from edgewake.protocol.broker import BrokerConfig
from edgewake.protocol.config import INTEGER_MAX, load, parse, values_of
from edgewake.protocol.errors import ConfigError

GOOD = 'device = "d1"\ndata_dir = "/tmp/x"\n'
OWN = {"device": "d1", "data_dir": "/tmp/x"}


def mistake(tmp_path: Path, content: str | bytes) -> str:
    """What is said of a file, without its name, which every line begins with."""
    path = tmp_path / "agent.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError) as caught:
        load(AgentConfig, path)
    lines = str(caught.value).splitlines()
    assert all(line.startswith(f"{path}: ") for line in lines)
    return "\n".join(line.removeprefix(f"{path}: ") for line in lines)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param("", "device: missing\ndata_dir: missing", id="an empty file"),
        pytest.param("\0", "(at line 1, column 1)", id="a NUL"),
        pytest.param(GOOD + "log = {", "(at end of document)", id="a table that does not end"),
        pytest.param(
            GOOD + "\n\nlog.linger_ms = \n",
            "(at line 5, column 17)",
            id="a value that is not there, with its line",
        ),
        pytest.param(GOOD + 'device = "d2"\n', "Cannot overwrite a value", id="a key twice"),
        pytest.param(
            GOOD + "[log]\n[log]\n", "Cannot declare ('log',) twice (at line 4", id="a table twice"
        ),
        pytest.param(
            GOOD.encode("utf-16"), "byte 0 is not UTF-8", id="UTF-16, as some shells write"
        ),
        pytest.param(
            GOOD.encode() + b'# caf\xe9\n[mqtt]\nhost = "h"',
            "byte 39 is not UTF-8",
            id="Latin-1 in a comment",
        ),
        pytest.param(GOOD + "a = " + "[" * 3000, "nested too deep", id="nested without end"),
        pytest.param(
            GOOD + "[" + ".".join(["a"] * 3000) + "]",
            "nested too deep",
            id="tables in tables in tables",
        ),
        pytest.param(
            GOOD + "x = " + "9" * 5000,
            "not TOML: Exceeds the limit",
            id="a number of thousands of digits",
        ),
        pytest.param(
            GOOD + "[log]\nquota_bytes = 0x" + "f" * 5000,
            "log.quota_bytes: expected an integer of at most",
            id="the same in hex",
        ),
        pytest.param(
            GOOD + "[log]\nreserve_bytes = 9223372036854775808",
            "log.reserve_bytes: expected an integer",
            id="one byte too many",
        ),
        pytest.param(
            GOOD + "[uplink]\nstatus_interval_s = inf",
            "uplink.status_interval_s = inf: expected a finite number",
            id="infinity",
        ),
        pytest.param(
            GOOD + "[uplink]\nack_timeout_s = nan",
            "uplink.ack_timeout_s = nan: expected a finite number",
            id="not a number",
        ),
        pytest.param(
            'device = "d"\ndata_dir = "/a\\u0000b"',
            "data_dir = '/a\\x00b': expected no NUL",
            id="a NUL in a path",
        ),
        pytest.param(
            GOOD + 'source = "gps"',
            "source = 'gps': expected a list",
            id="text where tables belong",
        ),
        pytest.param(
            GOOD + "source = [1]",
            "source 1 = 1: expected an object",
            id="a number where a table belongs",
        ),
        pytest.param(
            GOOD + "[[mqtt]]", "mqtt: expected an object", id="several tables where one belongs"
        ),
        pytest.param(
            GOOD + "[source]\ntype = 'host_metrics'",
            "source: expected a list",
            id="one table where several belong",
        ),
        pytest.param(
            GOOD + "[log]\nmode = 'rmbl'",
            "log.mode = 'rmbl': expected hml, rbml, sbml, rbml+sbml or none",
            id="a mode misspelt",
        ),
        pytest.param(
            GOOD + "[log]\nlinger_ms = 1001",
            "log.linger_ms = 1001: expected 1,000",
            id="over a bound",
        ),
        pytest.param(
            GOOD + "[log]\ncommit_readings_max = 0",
            "log.commit_readings_max = 0: expected 1 or more",
            id="under a bound",
        ),
        pytest.param(
            GOOD + "[uplink]\nqos = 2",
            "uplink.qos = 2: expected 0 or 1",
            id="a quality of service that is not used",
        ),
        pytest.param(
            GOOD + "[log]\nlinger_ms = 1979-05-27",
            "log.linger_ms = '1979-05-27': expected a number",
            id="a date",
        ),
        pytest.param(
            GOOD + '[uplink]\nhours.bulk = ["25:00-26:00"]',
            "expected hours such as 22:00-06:00",
            id="an hour that no day has",
        ),
        pytest.param(
            GOOD + '[uplink]\nhours.bulk = "22:00-06:00"',
            "uplink.hours.bulk = '22:00-06:00': expected a list",
            id="not a list",
        ),
        pytest.param(
            GOOD + '[uplink]\nhours.slow = ["1:00-2:00"]',
            "'slow': expected urgent, normal or bulk",
            id="a lane that is none",
        ),
        pytest.param(
            GOOD + "[log.normal]\nquota_bytes = 65535",
            "log.normal.quota_bytes = 65535: expected 65,536 or more",
            id="in a lane",
        ),
        pytest.param(
            GOOD + "[log.bulk]\nat_quota = 'drop'",
            "log.bulk.at_quota = 'drop': expected drop_oldest, ",
            id="a policy misspelt",
        ),
        pytest.param(
            GOOD + "[log.bulk]\nage_s = 0",
            "log.bulk.age_s = 0: expected more than 0",
            id="an age of nothing",
        ),
        pytest.param(
            GOOD + "[[fallback]]\nport = 0\n" * 2,
            "fallback 1.port = 0: expected 1 or more\nfallback 2.port",
            id="each of two",
        ),
        pytest.param(
            GOOD + "[[fallback]]\n" * 9, "fallback: expected at most 8 items", id="a ninth broker"
        ),
        pytest.param(
            GOOD + '[downlink.command."a b"]\nargv = ["/x"]',
            "expected 1-64 of A-Z a-z 0-9 _",
            id="a command with a blank",
        ),
        pytest.param(
            GOOD + '[downlink.command.go]\nargv = ["go"]',
            "expected the program's whole path first",
            id="a program by name",
        ),
        pytest.param(
            GOOD + "[downlink.command.go]\nargv = []",
            "expected at least 1 item",
            id="a command of nothing",
        ),
        pytest.param(
            GOOD + '"\\u001b[2J" = 1',
            "\N{REPLACEMENT CHARACTER}[2J: unknown key",
            id="a key that would clear the screen",
        ),
        pytest.param(
            GOOD + "downlink.health_s = 3601",
            "downlink.health_s = 3601: expected 3,600",
            id="a patience too long",
        ),
    ],
)
def test_each_mistake_is_named(tmp_path: Path, content: str | bytes, says: str) -> None:
    assert says in mistake(tmp_path, content)


def test_all_mistakes_are_said_at_once(tmp_path: Path) -> None:
    found = mistake(
        tmp_path, 'device = 5\n[log]\nmodus = "hml"\nlinger_ms = -1\n[mqtt]\nport = 70000\n'
    )
    assert [line.partition(":")[0].partition(" =")[0] for line in found.splitlines()] == [
        "device", "data_dir", "mqtt.port", "log.linger_ms", "log.modus",
    ]  # fmt: skip


def test_what_no_key_means_is_said_at_once_wherever_it_stands(tmp_path: Path) -> None:
    found = mistake(
        tmp_path,
        GOOD
        + (
            '[log]\nlinger_ms = inf\n[[source]]\ntype = "file_tail"\nstream = "a"\npath = '
            '"/\\u0000"\n'
        ),
    )
    assert found == (
        "log.linger_ms = inf: expected a finite number\nsource 1.path = '/\\x00': expected no NUL"
    )


@pytest.mark.parametrize("mark", ["\ufeff", ""], ids=["with the mark of an editor", "without"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lines of Unix", "lines of Windows"])
def test_files_of_all_editors_are_read(tmp_path: Path, mark: str, end: str) -> None:
    path = tmp_path / "agent.toml"
    path.write_bytes((mark + GOOD.replace("\n", end)).encode())
    assert load(AgentConfig, path).device == "d1"


def test_a_file_that_is_not_there_or_a_folder_is_said(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none.toml", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError, match=f"^{path}: cannot be read: {why}"):
            load(AgentConfig, path)


@pytest.mark.parametrize(
    "table", [LogConfig, UplinkConfig, DownlinkConfig], ids=["log", "uplink", "downlink"]
)
def test_no_key_takes_what_is_beyond_every_machine(table: type) -> None:
    """Infinity in a float, more than 64 bits in an integer: each is refused by its name, and not
    met by a database or a timer later.
    """
    name = table.__name__.removesuffix("Config").lower()
    keys = [
        field.name
        for field in dataclasses.fields(table)
        if str(field.type).startswith(("float", "int"))
    ]
    assert keys
    for key in keys:
        for beyond in (
            float("inf"),
            float("-inf"),
            float("nan"),
            INTEGER_MAX + 1,
            -INTEGER_MAX - 1,
        ):
            with pytest.raises(ConfigError, match=f"agent.toml: {name}.{key}"):
                parse(AgentConfig, OWN | {name: {key: beyond}}, "agent.toml")


def test_the_largest_integer_is_one_that_a_database_can_hold() -> None:
    found = parse(AgentConfig, OWN | {"log": {"quota_bytes": INTEGER_MAX}}, "agent.toml")
    assert found.log.quota_bytes == 2**63 - 1


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


def sentence(read: Callable[[], object]) -> str:
    """What is wrong; empty where nothing is."""
    try:
        read()
    except ConfigError as error:
        return str(error)
    return ""


@given(
    st.dictionaries(
        st.sampled_from([field.name for field in dataclasses.fields(AgentConfig)]), JUNK
    )
)
def test_whatever_a_file_holds_it_is_a_configuration_or_a_sentence(
    values: dict[str, object],
) -> None:
    said = sentence(lambda: parse(AgentConfig, values, "agent.toml"))
    assert all(line.startswith("agent.toml: ") for line in said.splitlines())


@given(st.text(max_size=60))
def test_whatever_a_text_is_it_is_toml_or_said_to_be_none(text: str) -> None:
    said = sentence(lambda: values_of(text, "here"))
    assert not said or said.startswith("here: not TOML: ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a = " + "[" * 3000, "nested too deep"),
        ("log.linger_ms = inf", "log.linger_ms = inf: expected a finite number"),
        ("x = " + "9" * 5000, "not TOML"),
        ("log = 5", "log = 5: expected an object"),
        (
            "log.mode = 'none'",
            "may not be set from afar: log.mode; may be: chain, log, source, uplink",
        ),
        (
            "device = 'x'\nmqtt = 1\nlog.mode = 'none'",
            "may not be set from afar: device, log.mode, mqtt;",
        ),
    ],
    ids=[
        "nested without end",
        "infinity",
        "thousands of digits",
        "no table",
        "the mode",
        "all that is forbidden, sorted",
    ],
)
def test_what_is_pushed_from_afar_is_named_in_the_same_words(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        merged(OWN, text, "settings of version 7")
    assert str(caught.value).startswith("settings of version 7: ")
    assert says in str(caught.value)


@pytest.mark.parametrize("mode", [None, "rbml", "none"])
@pytest.mark.parametrize("pushed", ["", "log.linger_ms = 5"])
def test_the_devices_own_logging_mode_stays_whatever_is_pushed(
    mode: str | None, pushed: str
) -> None:
    own = OWN if mode is None else OWN | {"log": {"mode": mode}}
    assert merged(own, pushed, "v1").log.mode == (mode or "hml")


SOURCE = '[[source]]\ntype = "host_metrics"\nstream = "s"\n'
CHAIN = '[[chain]]\nstream = "s"\ninto = "t"\nprocessor = [{{ type = "filter", {} }}]\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("devise = 1", "devise: unknown key; did you mean 'device'?"),
        ("[mqtt]\nhots = 'h'", "mqtt.hots: unknown key; did you mean 'host'?"),
        (
            "[mqtt]\nzzz = 'h'",
            "mqtt.zzz: unknown key; known keys: ca_file, cert_file, host, key_file, "
            "password_file, port, username",
        ),
        ("[log.bulk]\nages = 1", "log.bulk.ages: unknown key; did you mean 'age_s'?"),
        ("[[fallback]]\nprot = 1", "fallback 1.prot: unknown key; did you mean 'port'?"),
        (
            '[downlink.command.go]\nargv = ["/x"]\nargsmax = 1',
            "downlink.command.go.argsmax: unknown key; did you mean 'args_max'?",
        ),
        (
            SOURCE + "intervall_s = 1",
            "source 1.intervall_s: unknown key; did you mean 'interval_s'?",
        ),
        (SOURCE + "lanes = 'bulk'", "source 1.lanes: unknown key; did you mean 'lane'?"),
        (SOURCE + "zzz = 1", "source 1.zzz: unknown key"),
        (
            SOURCE + CHAIN.format("wher = 'x > 1'"),
            "chain 1.processor 1.filter.where: missing\nchain 1.processor 1.filter.wher: unknown "
            "key; did you mean 'where'?",
        ),
        (
            SOURCE + CHAIN.format("where = 'x > 1', zzz = 1"),
            "chain 1.processor 1.filter.zzz: unknown key; known keys: type, where",
        ),
        (
            '[[action]]\ntype = "webhook"\nname = "s"\nstream = "t"\nulr = "x"',
            "action 1.webhook.url: missing\naction 1.webhook.ulr: unknown key; did you mean 'url'?",
        ),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_that_its_table_has(
    tmp_path: Path, text: str, says: str
) -> None:
    """Wherever the table stands: by itself, in a list, by a name, as one of several kinds.

    And nothing else is said that is not wrong.
    """

    class Other(BrokerConfig):
        """Of another part, in the same process."""

    assert issubclass(Other, BrokerConfig)
    assert mistake(tmp_path, GOOD + text) == says


def test_an_empty_list_is_too_short_and_a_wrong_one_is_only_wrong(tmp_path: Path) -> None:
    empty = '[[chain]]\nstream = "s"\ninto = "t"\nprocessor = []\n'
    assert mistake(tmp_path, GOOD + SOURCE + empty) == "chain 1.processor: expected at least 1 item"
    assert "at least" not in mistake(tmp_path, GOOD + SOURCE + CHAIN.format("where = 5"))
