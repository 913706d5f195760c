"""The agent's configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.edge.config import AgentConfig
from edgewake.protocol.config import load
from edgewake.protocol.errors import ConfigError

BAD_HOSTS = ("", "mqtt://x", "a b", "[::1]", "user@host", "a/b", "a" * 64, "a..b", "ä" * 70)
GOOD = 'device = "d1"\ndata_dir = "/tmp/x"\n'


def loaded(tmp_path: Path, text: str) -> AgentConfig:
    path = tmp_path / "agent.toml"
    path.write_text(text, "utf-8")
    return load(AgentConfig, path)


def test_two_keys_are_enough(tmp_path: Path) -> None:
    assert loaded(tmp_path, GOOD).uplink.inflight_frames_max == 64


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (GOOD + "[log]\nlinger = 2\n", "log.linger: unknown key; did you mean 'linger_ms'"),
        (GOOD + '[uplink]\nack_timeout_s = "10 s"\n', "uplink.ack_timeout_s = '10 s'"),
        ('device = "a/b"\ndata_dir = "/tmp/x"\n', "device = 'a/b'"),
        ('data_dir = "/tmp/x"\n', "device: missing"),
        (GOOD + '[[source]]\ntype = "host_metric"\nstream = "s"\n', "host_metrics"),
        (GOOD + '[[source]]\ntype = "host_metrics"\nstream = "Not OK"\n', "expected 1-64 of a-z"),
        (GOOD + '[[source]]\ntype = "json_lines"\nstream = "s"\n' * 2, "standard input"),
        (
            GOOD + '[[source]]\ntype = "file_tail"\nstream = "s"\npath = "/x"\n' * 2,
            "two of them read the file /x",
        ),
        (
            GOOD + "[log]\nquota_bytes = 1048576\n[uplink]\ninflight_bytes_max = 1048576\n",
            "log.quota_bytes",
        ),
        (GOOD + "[uplink]\nbackoff_min_s = 60\n", "longer than its bound"),
        (GOOD + '[mqtt]\nport = "1883"\n', "mqtt.port = '1883': expected an integer"),
        (GOOD + "[log]\nlinger_ms = true\n", "log.linger_ms = True: expected a number"),
        (GOOD + '[mqtt]\ncert_file = "/c"\n', "belong together"),
        *(
            (GOOD + f'[mqtt]\nhost = "{host}"\n', "expected a name or an address alone")
            for host in BAD_HOSTS
        ),
        (GOOD + "[log]\nclock_wait_s = nan\n", "log.clock_wait_s = nan"),
        (
            GOOD + '[[source]]\ntype = "modbus_tcp"\nstream = "s"\nhost = "h"\npoint = [{ name = '
            '"a", address = 1, scale = inf }]\n',
            "scale",
        ),
        (
            GOOD
            + ('[[source]]\ntype = "mqtt_subscribe"\nstream = "s"\ntopic = "a"\n' * 2).replace(
                '"a"', '"b"', 1
            ),
            "a `client_id` of its own",
        ),
    ],
)
def test_a_wrong_key_is_named_with_what_was_expected(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    assert says in str(caught.value)


def test_every_key_is_documented() -> None:
    """A docstring or a comment after each field but the self-evident."""
    source = "".join(
        path.read_text("utf-8")
        for path in (
            Path("edge/config.py"),
            Path("edge/log/config.py"),
            Path("edge/uplink/config.py"),
            *Path("edge/sources").rglob("*.py"),
        )
    )
    for key in (
        "linger_ms",
        "quota_bytes",
        "wal_bytes_max",
        "ack_timeout_s",
        "inflight_frames_max",
        "drain_s",
        "poll_s",
        "interval_s",
    ):
        assert '"""' in source.partition(f"    {key}:")[2].splitlines()[1], key


@pytest.mark.parametrize(
    ("send", "beside", "is_good"),
    [(False, False, True), (True, True, True), (True, False, False), (False, True, False)],
)
def test_a_sketch_says_whether_the_readings_are_sent_too(
    tmp_path: Path, send: bool, beside: bool, is_good: bool
) -> None:
    source = {"type": "host_metrics", "stream": "host", "send": send}
    wanted = {
        "device": "d",
        "data_dir": tmp_path,
        "source": [source],
        "sketch": [{"stream": "host", "fields": ["cpu"], "beside": beside}],
    }
    if is_good:
        assert AgentConfig.checked(wanted).sketch[0].beside is beside
    else:
        with pytest.raises(ValueError, match=r"is sent, as `beside` says|would count twice"):
            AgentConfig.checked(wanted)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "broker.example",
        "192.0.2.7",
        "2001:db8::7",
        "fe80::1%eth0",
        "bröker.example",
        "a_b",
        "a" * 63,
    ],
)
def test_a_name_or_an_address_is_a_host(tmp_path: Path, host: str) -> None:
    assert loaded(tmp_path, GOOD + f'[mqtt]\nhost = "{host}"\n').mqtt.host == host


def test_two_sources_of_one_stream_and_broker_have_names_of_their_own(tmp_path: Path) -> None:
    source = '[[source]]\ntype = "mqtt_subscribe"\nstream = "s"\ntopic = "a/+"\n'
    found = loaded(tmp_path, GOOD + source + source.replace('"a/+"', '"b/#"\nclient_id = "second"'))
    assert len({one.owns() for one in found.source}) == 2
    assert (
        len(
            {
                one.owns()
                for one in loaded(tmp_path, GOOD + source + source.replace('"s"', '"other"')).source
            }
        )
        == 2
    )
