"""`edgewake tail` as a user runs it."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from tests.access.world import Server
from tests.feeds import DEADLINE_S, Feed, declare
from tests.services import PATIENCE_S, wait_until

TAIL = [sys.executable, "-m", "edgewake.deploy.cli", "tail"]


def tail(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TAIL, *arguments], capture_output=True, text=True, timeout=2 * DEADLINE_S, check=False
    )


def test_piped_it_prints_json_lines_and_keeps_its_place(
    access_a: Server, access_b: Server, feed: Feed, tmp_path: Path
) -> None:
    feed.send(n=5)
    place = str(tmp_path / "place")
    first = tail(
        feed.name,
        "--server",
        access_a.url,
        "--from",
        "earliest",
        "--count",
        "2",
        "--cursor-file",
        place,
    )
    second = tail(feed.name, "--server", access_b.url, "--count", "3", "--cursor-file", place)
    assert [json.loads(line)["n"] for line in (first.stdout + second.stdout).splitlines()] == [
        1,
        2,
        3,
        4,
        5,
    ]
    assert (first.returncode, second.returncode) == (0, 0)
    assert "(resumed)" in second.stderr


def test_filters_and_columns_are_passed_on(access_a: Server, feed: Feed) -> None:
    feed.send(n=5)
    done = tail(
        feed.name,
        "--server",
        access_a.url,
        "--from",
        "earliest",
        "--count",
        "2",
        "--where",
        "n > 3",
        "--select",
        "n",
    )
    assert done.stdout == '{"n":4.0}\n{"n":5.0}\n'


def test_an_unknown_stream_is_one_sentence_and_exit_1(access_a: Server, feed: Feed) -> None:
    done = tail(feed.name + "x", "--server", access_a.url)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("edgewake tail: no stream or query is named")
    assert feed.name in done.stderr


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_ctrl_c_ends_it_cleanly_and_the_place_is_kept(
    access_a: Server, feed: Feed, tmp_path: Path, number: int
) -> None:
    feed.send(n=2)
    place, out = tmp_path / "place", tmp_path / "out"
    command = [
        *TAIL,
        feed.name,
        "--server",
        access_a.url,
        "--from",
        "earliest",
        "--cursor-file",
        str(place),
    ]
    with (
        out.open("wb") as file,
        subprocess.Popen(command, stdout=file, stderr=subprocess.PIPE) as child,
    ):
        wait_until(lambda: out.read_bytes().count(b"\n") == 2, "both lines are there")
        child.send_signal(number)
        assert child.wait(DEADLINE_S) == 0
        assert child.stderr is not None
        assert b"Traceback" not in child.stderr.read()
    assert place.read_text().startswith("v2.")


def test_a_reader_that_closes_the_pipe_ends_it_quietly(access_a: Server, feed: Feed) -> None:
    feed.send(n=500, frames=20)
    line = " ".join([*TAIL, feed.name, "--server", access_a.url, "--from", "earliest"])
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line} | head -1"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert json.loads(done.stdout)["n"] == 1
    assert (done.returncode, "Traceback" in done.stderr, "BrokenPipe" in done.stderr) == (
        0,
        False,
        False,
    )


def test_on_a_terminal_it_shows_a_table(access_a: Server, feed: Feed) -> None:
    feed.send(device="car-7", n=2)
    primary, terminal = pty.openpty()
    command = [*TAIL, feed.name, "--server", access_a.url, "--from", "earliest", "--count", "2"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "40"}
    with subprocess.Popen(
        command, stdout=terminal, stderr=subprocess.DEVNULL, env=environment
    ) as child:
        os.close(terminal)
        seen = b""
        try:
            while piece := os.read(primary, 65536):
                seen += piece
        except OSError:  # the terminal's other end is closed
            pass
        assert child.wait(DEADLINE_S) == 0
    os.close(primary)
    assert b"car-7" in seen
    assert b"device" in seen


@pytest.mark.parametrize(
    "bad",
    [
        "127.0.0.1:8700",
        pytest.param("http://no-such-host.invalid:8700", marks=pytest.mark.long),
    ],
)
def test_a_wrong_server_is_one_sentence_and_exit_2(bad: str) -> None:
    done = tail("s", "--server", bad)
    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (2, "", False)
    assert bad in done.stderr


def test_a_cursor_file_of_another_stream_or_that_cannot_be_written_is_refused_at_once(
    access_a: Server, new_feed: Callable[..., Feed], tmp_path: Path
) -> None:
    one, other, file = new_feed(), new_feed(), str(tmp_path / "cursor")
    one.send(n=1)
    assert (
        tail(
            one.name,
            "--server",
            access_a.url,
            "--from",
            "earliest",
            "--count",
            "1",
            "--cursor-file",
            file,
        ).returncode
        == 0
    )
    for arguments, why in (
        ([other.name, "--cursor-file", file], "was saved for other streams"),
        ([one.name, "--cursor-file", str(tmp_path / "no" / "cursor")], "cannot be written"),
    ):
        done = tail(*arguments, "--server", access_a.url)
        assert (done.returncode, done.stdout) == (2, "")
        assert why in done.stderr


@pytest.mark.long
def test_on_gap_stop_ends_it_with_the_gap(
    access_a: Server, access_b: Server, new_feed: Callable[..., Feed], tmp_path: Path
) -> None:
    feed, file = new_feed(partitions=1), str(tmp_path / "cursor")
    for _ in range(10):
        feed.send(n=1)
    words = (feed.name, "--server", access_b.url, "--cursor-file", file)
    assert (
        tail(
            feed.name,
            "--server",
            access_a.url,
            "--cursor-file",
            file,
            "--from",
            "earliest",
            "--count",
            "1",
        ).returncode
        == 0
    )
    feed.trim(0, 10)
    for _ in range(2):  # the second run is answered 204
        done = tail(*words, "--on-gap", "stop")
        assert (done.returncode, done.stdout) == (0, "")
    assert "retention" in tail(*words, "--on-gap", "earliest", "--count", "1").stderr


def test_a_filter_that_can_hardly_be_meant_is_warned_of(
    access_a: Server, new_feed: Callable[..., Feed], kafka_config: KafkaConfig
) -> None:
    feed = new_feed()
    declare(kafka_config, Stream(name=feed.name, fields={"n": FieldInfo(type=FieldType.NUMBER)}))

    def is_known() -> bool:
        listed = httpx.get(f"{access_a.url}/v1/streams").json()["streams"]
        return any(
            one["name"] == feed.name and "n" in one["fields"]
            for one in listed
            if one["kind"] == "stream"
        )

    wait_until(is_known, "the catalogue has it")
    feed.send(n=1)
    done = tail(
        feed.name,
        "--server",
        access_a.url,
        "--from",
        "earliest",
        "--where",
        "nn = 1 OR n = 1",
        "--count",
        "1",
    )
    assert "warning: no stream that is asked for has a field 'nn'; did you mean n?" in done.stderr
