"""What `doctor` says of each part, and what to do about it."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from edgewake.edge import status as status_file
from edgewake.edge.commands import doctor as module
from edgewake.edge.commands.doctor import Finding, examine
from edgewake.edge.config import AgentConfig
from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.writing.reserve import RESERVE_NAME
from edgewake.protocol.broker import BrokerConfig
from edgewake.protocol.clock import CLOCK_FLOOR_MS, FakeClock
from edgewake.protocol.errors import LocalError
from tests.edge.helpers import opened, put
from tests.services import free_ports

MIB = 1 << 20
LOG = LogConfig(
    quota_bytes=100 * MIB, consumer_bytes=10 * MIB, wal_bytes_max=8 * MIB, reserve_bytes=2 * MIB
)


@pytest.fixture(autouse=True)
def brokers(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What is said of a broker, by host; others are away."""
    known: dict[str, str] = {}

    def look(broker: BrokerConfig) -> str:
        if broker.host not in known:
            raise LocalError(f"{broker.host}: away")
        return known[broker.host]

    monkeypatch.setattr(module, "look", look)
    return known


def found(directory: Path, *, now_ms: int | None = None, **keys: Any) -> dict[str, Finding]:
    config = AgentConfig(device="d", data_dir=directory, **({"log": LOG} | keys))
    return {
        one.what: one
        for one in examine(config, FakeClock() if now_ms is None else FakeClock(now_ms))
    }


@pytest.mark.parametrize(
    ("now_ms", "good"),
    [(0, False), (CLOCK_FLOOR_MS - 1, False), (CLOCK_FLOOR_MS, True)],
    ids=["1970", "a moment before 2026", "2026"],
)
def test_a_clock_before_this_program_was_written_was_never_set(
    tmp_path: Path, now_ms: int, good: bool
) -> None:
    one = found(tmp_path, now_ms=now_ms)["clock"]
    assert (one.good, one.said) == (
        good,
        "set"
        if good
        else "a time before 2026, so it was never set: install chrony or systemd-timesyncd",
    )


def test_every_broker_is_looked_at_in_its_order(tmp_path: Path, brokers: dict[str, str]) -> None:
    brokers |= {"first": "well", "third": "well, too"}
    fallbacks = tuple(BrokerConfig(host=host) for host in ("second", "third"))
    one = found(tmp_path, mqtt=BrokerConfig(host="first"), fallback=fallbacks)
    assert list(one) == ["clock", "directory", "log", "agent", "broker", "fallback 1", "fallback 2"]
    assert [one[name].good for name in ("broker", "fallback 1", "fallback 2")] == [
        True,
        False,
        True,
    ]
    assert one["fallback 1"].said == "second: away"


def test_what_was_never_started_is_well(tmp_path: Path) -> None:
    one = found(tmp_path / "not" / "yet")
    assert (one["log"].said, one["agent"].said) == (
        "none yet: it is made when the agent first runs",
        "never ran here",
    )
    assert (one["directory"].good, str(tmp_path / "not" / "yet") in one["directory"].said) == (
        True,
        True,
    )
    assert list(tmp_path.iterdir()) == [], "nothing is changed"


def free(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(
        os,
        "statvfs",
        lambda _: os.statvfs_result((4096, 4096, 10**9, 10**9, size // 4096, 1, 1, 1, 0, 255)),
    )


@pytest.mark.parametrize(
    ("free_mib", "good"),
    [(120, True), (119, False), (110, False), (0, False)],
    ids=["all that it may take", "a little less", "without what consumers may hold", "nothing"],
)
def test_a_new_log_needs_room_for_all_that_it_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_mib: int, good: bool
) -> None:
    free(monkeypatch, free_mib * MIB)
    one = found(tmp_path)["directory"]
    assert (one.good, one.said) == (
        good,
        f"{tmp_path}, {free_mib} MiB free"
        if good
        else f"{free_mib} MiB are free at {tmp_path}, the log may take 120: lower log.quota_bytes",
    )


@pytest.mark.parametrize(
    ("free_mib", "is_kept", "good"),
    [(2, False, True), (1, False, False), (1, True, True), (0, True, True)],
    ids=[
        "room to keep some aside",
        "no room for that",
        "some is kept aside",
        "full, and some is kept aside",
    ],
)
def test_a_log_that_is_there_needs_what_is_kept_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_mib: int, is_kept: bool, good: bool
) -> None:
    with opened(tmp_path) as events:
        put(events, range(3))
    if is_kept:
        (tmp_path / RESERVE_NAME).write_bytes(b"x")
    free(monkeypatch, free_mib * MIB)
    one = found(tmp_path)["directory"]
    assert one.good is good, one.said
    assert (
        good or "nothing is kept aside for a full disk (log.reserve_bytes): free some" in one.said
    )


def test_a_folder_that_is_a_file_or_may_not_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    assert (
        found(tmp_path / "file")["directory"].said
        == f"{tmp_path / 'file'} is not a directory: expected one in `data_dir`"
    )
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    assert found(tmp_path / "new")["directory"].said == f"{tmp_path} cannot be written by this user"


RUNNING: dict[str, Any] = {
    "pid": os.getpid(),
    "interval_s": 10,
    "written_at": FakeClock().now_ms(),
    "connection": "streaming",
}


@pytest.mark.parametrize(
    ("status", "good", "says"),
    [
        ({}, True, "runs, streaming"),
        ({"connection": "waiting"}, True, "runs, waiting"),
        ({"pid": -1}, True, "not running"),
        ({"written_at": 0}, True, "not running"),
        (
            {"sources": {"1 gps": {"state": "running", "error": "OSError: before"}}},
            True,
            "runs, streaming",
        ),
        ({"sources": {"1 gps": {"state": "ended", "error": None}}}, True, "runs, streaming"),
        (
            {
                "sources": {
                    "1 a": {"state": "waiting", "error": "OSError: x"},
                    "2 b": {"state": "waiting", "error": "OSError: y"},
                }
            },
            False,
            "runs, but these sources fail: 1 a (OSError: x), 2 b (OSError: y)",
        ),
    ],
    ids=[
        "connected",
        "without a broker",
        "ended",
        "long silent",
        "failed once",
        "has read all",
        "two fail",
    ],
)
def test_the_agent_itself(tmp_path: Path, status: dict[str, Any], good: bool, says: str) -> None:
    with opened(tmp_path) as events:
        put(events, range(3))
    status_file.write(tmp_path, RUNNING | status)
    one = found(tmp_path)
    assert (one["agent"].good, one["agent"].said) == (good, says)
    assert one["log"].said == "sound: 3 readings wait or are kept for consumers"


def test_what_cannot_be_looked_at_is_a_finding_and_the_rest_is_looked_at(
    tmp_path: Path, brokers: dict[str, str]
) -> None:
    brokers["127.0.0.1"] = "well"
    (tmp_path / "events.db").write_bytes(b"no database" * 1000)
    one = found(tmp_path)
    assert (one["log"].good, one["agent"].good, one["broker"].good) == (False, False, True)
    assert "file is not a database" in one["log"].said


def test_each_finding_is_told_as_soon_as_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log of gigabytes is looked through for minutes: what was found before stands there
    meanwhile.
    """
    looked: list[str] = []
    monkeypatch.setattr(module, "_log", lambda _config: looked.append("log") or "sound")
    findings = examine(AgentConfig(device="d", data_dir=tmp_path), FakeClock())
    assert ([next(findings).what, next(findings).what], looked) == (["clock", "directory"], [])
    assert (next(findings).what, looked) == ("log", ["log"])


def sources(directory: Path, *of: dict[str, Any]) -> list[Finding]:
    config = AgentConfig.checked(
        {
            "device": "d",
            "data_dir": directory,
            "source": [{"stream": f"s{n}"} | one for n, one in enumerate(of)],
        }
    )
    return [one for one in examine(config, FakeClock()) if one.what.startswith("source ")]


def test_it_says_something_of_each_source_while_the_agent_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("{}")
    free, closed = free_ports(2)
    with socket.create_server(("127.0.0.1", 0)) as there:
        taken = there.getsockname()[1]
        said = sources(
            tmp_path / "data",
            {"type": "file_tail", "path": str(tmp_path / "log.jsonl")},
            {"type": "file_tail", "path": str(tmp_path / "later.jsonl")},
            {"type": "file_tail", "path": "/no/such/folder/x"},
            {"type": "serial_lines", "path": str(tmp_path)},
            {"type": "http_intake", "port": free},
            {"type": "http_intake", "port": taken},
            {"type": "tcp_lines", "port": taken, "host": "127.0.0.1", "format": "json"},
            {"type": "http_poll", "url": f"http://127.0.0.1:{closed}/x"},
            {
                "type": "sse_pull",
                "url": f"http://127.0.0.1:{taken}/",
                "token_file": str(tmp_path / "none"),
            },
            {"type": "host_metrics"},
        )
    assert [one.good for one in said] == [
        True,
        True,
        False,
        False,
        True,
        False,
        True,
        False,
        False,
        True,
    ]
    words = [
        "2 bytes",
        "not there yet",
        "does not exist",
        "is a directory",
        "free to listen",
        "taken by another",
        "takes connections",
        "refused",
    ]
    assert [word for word, one in zip(words, said, strict=False) if word not in one.said] == []
    assert "none" in said[8].said
    assert [one.what for one in said][:2] == ["source 1 file_tail", "source 2 file_tail"]


def test_while_the_agent_runs_its_sources_are_asked_and_not_looked_at(tmp_path: Path) -> None:
    """It has the port itself: to look whether it is free would say that it is taken."""
    with opened(tmp_path), socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
        counts = {"state": "running", "taken": 7, "error": None}
        status = {
            "written_at": FakeClock().now_ms(),
            "interval_s": 10,
            "pid": os.getpid(),
            "connection": "streaming",
        }
        status_file.write(tmp_path, status | {"sources": {"1 http_intake s0": counts}})
        (one,) = sources(tmp_path, {"type": "http_intake", "port": port})
    assert (one.good, one.said) == (True, "running, 7 taken")
