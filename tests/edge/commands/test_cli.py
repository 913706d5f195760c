"""The agent's command: set up, examine, look into the log and copy it."""

from __future__ import annotations

import json
import os
import pwd
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from edgewake.edge import status as status_file
from edgewake.edge.commands.cli import agent
from edgewake.edge.commands.first_config import SOURCES, configuration_text
from edgewake.edge.config import AgentConfig
from edgewake.edge.log.tables.schema import LOG_NAME
from edgewake.edge.sources.config import BUILT_IN
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.config import load
from tests.edge.helpers import Sent, opened, put, reading
from tests.services import free_ports


def call(*arguments: str | Path, answers: str | None = None) -> Result:
    return CliRunner().invoke(agent, [str(each) for each in arguments], input=answers)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Of an agent whose log holds thirty readings."""
    path = tmp_path / "agent.toml"
    (port,) = free_ports(1)
    path.write_text(f'device = "d1"\ndata_dir = "{tmp_path}/data"\n[mqtt]\nport = {port}\n')
    with opened(tmp_path / "data") as events:
        put(events, range(20))
        put(events, range(10), stream="other")
    return path


def test_a_first_configuration_is_asked_for_written_and_usable(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    done = call("init", path, answers="shed\nbroker.example:8883\n")
    assert done.exit_code == 0, done.output
    found = load(AgentConfig, path)
    assert (found.device, found.mqtt.host, found.mqtt.port, found.source[0].type) == (
        "shed",
        "broker.example",
        8883,
        "host_metrics",
    )
    assert path.stat().st_mode & 0o777 == 0o600
    again = call("init", path, "--device", "other", "--broker", "b:1")
    assert (again.exit_code, "exists already" in again.output) == (1, True)
    assert (
        call(
            "init",
            path,
            "--device",
            "other",
            "--broker",
            "b:1",
            "--force",
            "--source",
            "json_lines",
        ).exit_code
        == 0
    )
    assert load(AgentConfig, path).device == "other"


@pytest.mark.parametrize("kind", BUILT_IN)
def test_every_kind_of_source_has_a_first_table_that_is_one(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(configuration_text("d", "h:1", str(tmp_path), [kind]))
    assert load(AgentConfig, path).source[0].type == kind
    assert set(SOURCES) == set(BUILT_IN)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--device", "a/b", "--broker", "h:1"), "device = 'a/b'"),
        (("--device", "d", "--broker", "h"), "expected host:port"),
        (("--device", "d", "--broker", "h:99999"), "mqtt.port"),
        (("--device", "d", "--broker", "h:1", "--source", "x"), "expected one of"),
        (("--device", 'd"\nx = "', "--broker", "h:1"), "device"),
    ],
)
def test_what_cannot_be_used_is_not_written(
    tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    done = call("init", tmp_path / "agent.toml", *arguments)
    assert done.exit_code in (1, 2)
    assert says in done.output
    assert list(tmp_path.iterdir()) == []


def test_a_sound_log_is_verified_counted_and_exported(config: Path) -> None:
    done = call("log", "verify", "--config", config)
    assert (done.exit_code, "30 readings" in done.output, "0 faults" in done.output) == (
        0,
        True,
        True,
    )
    rows = [
        json.loads(line) for line in call("log", "stats", "--config", config).output.splitlines()
    ]
    assert [(row["stream"], row["readings"]) for row in rows] == [("other", 10), ("speed", 20)]
    rows = [
        json.loads(line)
        for line in call(
            "log", "--config", config, "export", "--stream", "speed"
        ).output.splitlines()
    ]
    assert [(row["position"], row["n"], row["t"]) for row in rows] == [
        (n + 1, n, reading(n)[0]) for n in range(20)
    ]
    assert len(call("log", "export", "--config", config).output.splitlines()) == 30
    assert (
        call("log", "show", "--config", config).output
        == call("log", "--config", config).output
        != ""
    )


def test_a_flipped_bit_is_found_by_verify_doctor_and_export(config: Path, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "data" / LOG_NAME) as db:
        db.execute(
            "UPDATE batches SET body = replace(body, '\"n\"', '\"m\"') WHERE first = 1 AND "
            "length(body) > 0 AND stream = 1"
        )
        assert db.execute("SELECT changes()").fetchone() == (1,)
    db.close()
    done = call("log", "verify", "--config", config)
    assert (
        done.exit_code,
        "1 faults" in done.output,
        "readings from position 1" in done.output,
    ) == (3, True, True)
    assert "BAD   log: 1 faults" in call("doctor", "--config", config).output
    rows = [
        json.loads(line) for line in call("log", "export", "--config", config).output.splitlines()
    ]
    assert [row for row in rows if "damaged" in row] != []


def test_a_page_of_garbage_is_a_fault_and_no_crash(config: Path, tmp_path: Path) -> None:
    path = tmp_path / "data" / LOG_NAME
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    damaged = bytearray(path.read_bytes())
    damaged[3 * 1024 : 5 * 1024] = b"\xa5" * 2048
    path.write_bytes(damaged)
    done = call("log", "verify", "--config", config)
    assert done.exit_code in (1, 3), done.output


def test_a_backup_is_made_while_the_agent_writes_and_what_it_holds_is_sent_when_it_is_put_back(
    config: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    with opened(tmp_path / "data") as events:
        put(events, range(20, 25))
        assert call("log", "backup", copy, "--config", config).exit_code == 0
        put(events, range(25, 30))
    assert call("log", "backup", copy, "--config", config).exit_code == 1, "it is there already"
    assert copy.stat().st_mode & 0o777 == 0o600
    (tmp_path / "restored").mkdir()
    copy.rename(tmp_path / "restored" / LOG_NAME)
    sent = Sent()
    with opened(tmp_path / "restored", sent=sent, seed=2) as events:
        events.start_sending()
        sent.until(3)
        assert events.epoch_began
        assert sorted(sent.ns()) == sorted([*range(25), *range(10)])  # type: ignore[type-var]


@pytest.mark.parametrize("command", ["verify", "stats", "export", "show"])
def test_where_there_is_no_log_that_is_said(tmp_path: Path, command: str) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(f'device = "d1"\ndata_dir = "{tmp_path}/nothing"\n')
    done = call("log", command, "--config", path)
    assert (done.exit_code, "no event log yet" in done.output) == (1, True)
    assert call("log", command).exit_code == 2


def test_the_doctor_says_what_is_wrong_and_what_is_good(config: Path, tmp_path: Path) -> None:
    done = call("doctor", "--config", config)
    assert done.exit_code == 1
    assert "good  log: sound: 30 readings" in done.output
    assert "BAD   broker: 127.0.0.1:" in done.output
    assert "does the broker run?" in done.output
    status = {
        "pid": 1,
        "interval_s": 10,
        "written_at": SystemClock().now_ms(),
        "connection": "streaming",
    }
    failing = {"sources": {"1 gps": {"state": "waiting", "error": "OSError: gone"}}}
    status_file.write(tmp_path / "data", status | failing)
    assert (
        "BAD   agent: runs, but these sources fail: 1 gps (OSError: gone)"
        in call("doctor", "--config", config).output
    )


def test_the_commands_in_the_document_are_those_that_there_are() -> None:
    document = Path("docs/agent.md").read_text("utf-8")
    shown = set(re.findall(r"^\| `edgewake-agent ([a-z]+(?: [a-z]+)?)", document, re.MULTILINE))
    log = agent.commands["log"]
    assert isinstance(log, click.Group)
    assert shown == (set(agent.commands) - {"log"}) | {f"log {name}" for name in log.commands}


@contextmanager
def as_a_stranger(*closed: Path) -> Iterator[None]:
    """As another user than the agent's: root becomes nobody, others lose their own rights."""
    is_root = os.geteuid() == 0
    modes = [(path, path.stat().st_mode) for path in closed]
    for path in closed:
        path.chmod(0o700 if is_root else 0)
    try:
        if is_root:
            os.seteuid(pwd.getpwnam("nobody").pw_uid)
        yield
    finally:
        if is_root:
            os.seteuid(0)
        for path, mode in modes:
            path.chmod(mode)


READING = (
    "status",
    "status --json",
    "log show",
    "log verify",
    "log stats",
    "log export",
    "requests",
    "log backup COPY",
    "doctor",
    "check",
)


@pytest.mark.parametrize("command", READING)
def test_who_may_not_read_the_agents_files_is_told_so(
    config: Path, tmp_path: Path, command: str
) -> None:
    words = command.replace("COPY", str(tmp_path / "copy")).split()
    call(*words, "--config", config)  # what it needs is imported
    (tmp_path / "copy").unlink(missing_ok=True)
    with as_a_stranger(tmp_path / "data", tmp_path):
        done = call(*words, "--config", config)
    assert done.exit_code in (1, 2), done.output
    assert isinstance(done.exception, SystemExit)
    assert "Permission denied" in done.output
    assert config.name in done.output or "data" in done.output


@pytest.mark.parametrize("command", [command for command in READING if command != "check"])
def test_who_may_read_the_configuration_and_not_the_log_is_told_so(
    config: Path, tmp_path: Path, command: str
) -> None:
    words = command.replace("COPY", str(tmp_path / "copy")).split()
    call(*words, "--config", config)
    (tmp_path / "copy").unlink(missing_ok=True)
    given = load(AgentConfig, config)
    with pytest.MonkeyPatch.context() as patch, as_a_stranger(tmp_path / "data"):
        for module in (
            "edgewake.edge.commands.cli.load_config",
            "edgewake.edge.commands.config_file.load_config",
        ):
            patch.setattr(module, lambda _file: given)
        done = call(*words, "--config", config)
    assert done.exit_code == 1, done.output
    assert isinstance(done.exception, SystemExit)
    assert "ermission denied" in done.output
    assert str(tmp_path / ("copy" if "COPY" in command else "data")) in done.output


def test_the_doctor_says_that_nothing_is_kept_aside_for_a_full_disk(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "good  directory" in call("doctor", "--config", config).output
    nearly_full = os.statvfs_result((4096, 4096, 1000, 500, 500, 100, 100, 100, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _path: nearly_full)
    assert "BAD   directory: 1 MiB are free" in call("doctor", "--config", config).output


def test_check_names_all_that_reads_the_log(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(
        f'device = "d"\ndata_dir = "{tmp_path}"\n[[source]]\ntype = "json_lines"\nstream = '
        '"heat"\nsend = false\n'
        '[[absence]]\nname = "quiet"\nstream = "heat"\ninto = "silences"\nafter_s = 5\n'
        '[[sketch]]\nstream = "heat"\nfields = ["x"]\nkinds = ["numbers", "count_min"]\n'
    )
    done = call("check", "--config", path)
    assert done.exit_code == 0
    assert (
        "chains: none, absences: heat → silences, sketches: heat (numbers count_min), actions: none"
        in done.output
    )


def test_it_says_its_version_and_helps_by_a_letter() -> None:
    from importlib.metadata import version

    said = CliRunner().invoke(agent, ["--version"], prog_name="edgewake-agent")
    assert (said.exit_code, said.stdout) == (0, f"edgewake-agent, version {version('edgewake')}\n")
    for command in ([], ["status"], ["log", "show"], ["requests"]):
        helped = CliRunner().invoke(agent, [*command, "-h"])
        assert (helped.exit_code, "Usage:" in helped.stdout) == (0, True)
