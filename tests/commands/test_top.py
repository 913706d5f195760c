"""`edgewake top`: what it draws, and that it draws a running system."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rich.console import Console

from edgewake.cloud.commands import top as top_command
from edgewake.cloud.commands.common.api_client import OpsApi
from edgewake.cloud.commands.common.problems import sentence
from edgewake.cloud.commands.top import (
    PROBLEMS_MAX,
    ROWS_MAX,
    busiest,
    drawn,
    hop_row,
    look_again,
    slowest,
)
from tests.commands.test_status import run
from tests.ops.conftest import Writer
from tests.ops.service import KEY, Ops, running
from tests.ops.test_app import declare
from tests.services import PATIENCE_S, Kafka, free_ports

STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
STREAMS = re.compile(r"streams +([0-9]+), ")


@pytest.fixture(scope="module")
def ops(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ops]:
    with running(kafka.bootstrap, tmp_path_factory.mktemp("top")) as service:
        yield service


def text_of(found: dict[str, Any], now_ms: int = 0) -> str:
    console = Console(width=120, record=True, file=None, quiet=False)
    with console.capture() as shown:
        console.print(drawn(found, now_ms))
    return shown.get()


def found(**more: Any) -> dict[str, Any]:
    overview = {"problems": [], "devices": {}, "queries": {}, "dead_letters": {}, "parts": []}
    overview |= {"streams": 0, "readings_per_s": 1234.5, "leases": 0, "hops": []}
    return {"overview": overview | more, "streams": [], "queries": []}


def test_what_is_wrong_stands_first_and_has_a_bound():
    problems = [
        {"kind": "part", "text": f"problem {number}\x1b[2J"} for number in range(PROBLEMS_MAX + 3)
    ]
    shown = text_of(found(problems=problems))
    assert shown.index("problem 0") < shown.index("flow")
    assert "… and 3 more" in shown
    assert "\x1b[2J" not in shown
    assert "all is well" in text_of(found())
    assert "1,234.5 readings/s" in text_of(found())


def test_a_terminal_says_what_to_type_next_where_a_page_has_a_link():
    refused = {"kind": "dead_letters", "name": "json", "text": "3 messages were refused"}
    assert sentence(refused) == "3 messages were refused: edgewake dead-letters list --reason json"
    part = {"kind": "part", "name": "bridge-1", "text": "part bridge-1 is failed"}
    assert sentence(part) == "part bridge-1 is failed"


def test_the_busiest_streams_and_the_slowest_queries_are_shown():
    streams = [
        {"name": f"s{n}", "readings_per_s": 50.0 * n, "records_per_s": 20.0 - n}
        for n in range(ROWS_MAX + 5)
    ]
    streams.append({"name": "silent", "readings_per_s": None, "records_per_s": None})
    assert [one["name"] for one in busiest(streams)][:2] == ["s14", "s13"]
    assert "700" in text_of(found() | {"streams": busiest(streams)})
    assert len(busiest(streams)) == ROWS_MAX
    query = {"readings_per_s": 2.5, "watermark": 60_000, "state": "running"}
    queries = [query | {"name": "slow", "lag": 1234}, query | {"name": "new", "lag": None}]
    assert [one["name"] for one in slowest(queries)] == ["slow", "new"]
    shown = text_of(found() | {"queries": slowest(queries)}, now_ms=90_000)
    assert "1,234" in shown
    assert "30 s behind" in shown


def test_each_hop_has_its_rate_and_its_delay():
    hop = {"name": "sequencer", "per_s": 81.5, "behind": 20, "delay_s": 0.25, "count": 2}
    assert hop_row(hop | {"state": "well"}) == ("sequencer", "81.5", "0.2 s", "2 running", "well")
    unknown = {"name": "push", "per_s": None, "behind": None, "delay_s": None, "count": 3}
    assert hop_row(unknown | {"state": "unknown"}) == ("push", "–", "–", "3 leases", "unknown")
    assert "81.5" in text_of(found(hops=[hop | {"state": "well"}]))


def test_what_waits_at_a_hop_that_stands_still_is_counted():
    stands = {"name": "sequencer", "per_s": 0.0, "behind": 12_345, "delay_s": None, "count": 0}
    assert hop_row(stands | {"state": "bad"})[2] == "12,345 wait"
    assert hop_row(stands | {"state": "well", "behind": 0})[2] == "–"


def test_a_server_that_is_away_is_said_above_what_was_seen_last(
    monkeypatch: pytest.MonkeyPatch,
):
    (port,) = free_ports(1)
    api = OpsApi(f"http://127.0.0.1:{port}", "k", False)
    before = found(streams=7)
    for _ in range(2):
        before = look_again(api, before)
        shown = text_of(before)
        assert "does not answer" in shown
        assert "seen before" in shown
        assert "all is well" not in shown
        assert "7, 1,234.5 readings/s" in shown
    monkeypatch.setattr(top_command, "look", lambda _: found())
    assert "all is well" in text_of(look_again(api, before))


@pytest.mark.services
def test_it_draws_a_running_system_once(ops: Ops):
    shown = run(ops, "top", "--once", "--table")
    assert shown.returncode == 0, shown.stderr
    assert "slowest queries" in shown.stdout
    assert "overview" in json.loads(run(ops, "top", "--once", "--json").stdout)


class Screen:
    """A terminal of its own, and what a command draws on it."""

    def __init__(self, ops: Ops, *arguments: str) -> None:
        self.primary, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 70, 160, 0, 0))
        environment = {
            "EDGEWAKE_OPS_URL": ops.url,
            "EDGEWAKE_OPS_KEY": KEY,
            "PATH": "/usr/bin",
            "TERM": "xterm",
        }
        command = [sys.executable, "-m", "edgewake.deploy.cli", *arguments]
        self.process = subprocess.Popen(
            command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment
        )
        os.close(terminal)
        self.seen = ""

    def until(self, text: str) -> None:
        """Read on until this was drawn."""
        self._until(lambda: text in self.seen, repr(text))

    def until_streams(self, at_least: int) -> int:
        """Read on until it says that there are so many; how many it says last."""
        self._until(lambda: self._streams()[-1:] >= [at_least], f"{at_least} streams")
        return self._streams()[-1]

    def _until(self, is_drawn: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_drawn():
            assert time.monotonic() < deadline, f"not drawn: {what}: {self.seen[-2000:]}"
            self._read()

    def _streams(self) -> list[int]:
        return [int(count) for count in STREAMS.findall(STYLE.sub("", self.seen))]

    def _read(self) -> None:
        if select.select([self.primary], [], [], 0.2)[0]:
            self.seen += os.read(self.primary, 65_536).decode(errors="replace")

    def end(self) -> int:
        """As Ctrl + C does; what it exits with."""
        deadline = time.monotonic() + PATIENCE_S
        self.process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # nobody is at its other end any more
            while time.monotonic() < deadline:
                self._read()
        self.process.kill()
        return self.process.wait()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.primary)


@pytest.mark.services
def test_on_a_terminal_it_is_drawn_again_and_leaves_the_screen_as_it_was(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
):
    with contextlib.closing(Screen(ops, "top", "--every", "0.5")) as screen:
        screen.until("slowest queries")
        assert "\x1b[?1049h" in screen.seen, "it has a screen of its own"
        before = screen.until_streams(0)
        declare(writer, unique("seen_later"))
        screen.until_streams(before + 1)
        assert screen.end() == 0
        assert screen.seen.count("\x1b[?1049l") == 1
        assert "Traceback" not in screen.seen
        assert "Aborted" not in screen.seen
