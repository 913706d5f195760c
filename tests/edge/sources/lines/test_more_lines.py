"""CSV, InfluxDB's line protocol, datagrams, programs, and answers that do not end."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from edgewake.edge.sources.lines import udp_lines
from edgewake.edge.sources.lines.exec import ExecConfig
from edgewake.edge.sources.lines.file_tail import FileTailConfig
from edgewake.edge.sources.lines.line_format import cell
from edgewake.edge.sources.lines.udp_lines import UdpLinesConfig
from edgewake.edge.sources.web.http_lines import HttpLinesConfig
from tests.edge.sources.cage import caged, served
from tests.services import wait_until

T_MS = 1_772_352_930_000


async def test_csv_is_tailed_a_header_passed_over_and_a_torn_row_refused(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    rows = 'ts;temp;room\n2026-03-01T08:15:30Z;"21,5";hall\n1;2\n2026-03-01T08:15:31Z;;"a;b"\n'
    file.write_text(rows + "ts;temp;room\n")
    config = FileTailConfig.checked(
        {"type": "file_tail", "stream": "s", "path": str(file), "format": "csv", "poll_s": 0.01,
         "columns": ["ts", "temp", "room"], "separator": ";", "time": {"field": "ts"}}
    )  # fmt: skip
    async with caged(tmp_path / "log", config) as one:
        await one.until(lambda: len(one.times()) == 2, "two rows")
        with file.open("a") as more:
            more.write("2026-03-01T08:15:32Z;22;hall\n")
        await one.until(lambda: len(one.times()) == 3, "the third")
        assert one.column("temp") == [21.5, None, 22]
        assert one.column("room") == ["hall", "a;b", "hall"]
        assert one.times() == [T_MS, T_MS + 1000, T_MS + 2000]
        assert one.intake.refused == {"shape": 1}


def test_a_cell_is_a_number_where_it_is_one() -> None:
    assert [cell(text) for text in ("1", " -2.5 ", "", "1,5", "x", "1e3")] == [
        1, -2.5, None, "1,5", "x", 1000.0,
    ]  # fmt: skip
    assert [cell(text, decimal_comma=True) for text in ("1,5", "1.000,5")] == [1.5, "1.000,5"]


def test_columns_belong_to_csv() -> None:
    with pytest.raises(ValueError, match="columns"):
        FileTailConfig.checked({"type": "file_tail", "stream": "s", "path": "/x", "format": "csv"})
    with pytest.raises(ValueError, match="columns"):
        FileTailConfig.checked({"type": "file_tail", "stream": "s", "path": "/x", "columns": ["a"]})


async def test_line_protocol_comes_in_datagrams(tmp_path: Path) -> None:
    port = _free_udp_port()
    config = UdpLinesConfig.checked({"type": "udp_lines", "stream": "s", "port": port})
    async with caged(tmp_path, config) as one:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.connect(("127.0.0.1", port))

            def is_heard() -> bool:
                with suppress(ConnectionRefusedError):
                    sender.send(b"# a comment\nnonsense\n")
                return bool(one.intake.refused)

            await one.until(is_heard, "the port")
            lines = f"cpu,host=a usage=1.5 {T_MS}000000\ncpu,host=b usage=2i {T_MS + 1}000000"
            sender.send(lines.encode())
        await one.until(lambda: one.column("usage") == [1.5, 2], "both points")
        assert (one.column("measurement"), one.column("host")) == (["cpu", "cpu"], ["a", "b"])
        assert one.times() == [T_MS, T_MS + 1]
        assert set(one.intake.refused) == {"shape"}


def _free_udp_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


async def test_datagrams_that_find_no_room_are_counted_by_their_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tests.edge.sources.sink import MemorySink, intake_of

    monkeypatch.setattr(udp_lines, "WAITING_BYTES_MAX", 10)
    intake = intake_of(MemorySink())
    waiting = udp_lines.Waiting(intake)
    waiting.datagram_received(b"12345", None)
    waiting.datagram_received(b"a b=1\nc d=2\n", None)
    assert (await waiting.next(), intake.refused) == ([b"12345"], {"quota": 2})
    waiting.datagram_received(b"1234567890", None)
    assert await waiting.next() == [b"1234567890"], "control: room again"


def program(tmp_path: Path, text: str, **more: object) -> ExecConfig:
    file = tmp_path / "program.py"
    file.write_text(text)
    return ExecConfig.checked(
        {"type": "exec", "stream": "s", "command": [sys.executable, str(file)], **more}
    )


async def test_each_line_of_a_program_that_runs_on_is_a_reading(tmp_path: Path) -> None:
    text = (
        "import time\nfor n in range(3):\n    print('{\"n\": %d}' % n, flush=True)\n"
        "print('no json', flush=True)\ntime.sleep(600)\n"
    )
    async with caged(tmp_path / "log", program(tmp_path, text)) as one:
        await one.until(lambda: one.column("n") == [0, 1, 2], "three lines")
        await one.until(lambda: one.intake.refused == {"json": 1}, "the refusal")
        assert one.supervisor.failures == 0


async def test_a_program_is_started_at_intervals_and_one_that_fails_is_said(
    tmp_path: Path,
) -> None:
    count = tmp_path / "count"
    text = (
        f"import sys\nfrom pathlib import Path\nfile = Path({str(count)!r})\n"
        "n = int(file.read_text()) if file.exists() else 0\nfile.write_text(str(n + 1))\n"
        "if n == 1:\n    sys.exit('the sensor is away')\nprint(n, n * 1.5, sep=',')\n"
    )
    config = program(tmp_path, text, interval_s=0.1, format="csv", columns=["n", "x"])
    async with caged(tmp_path / "log", config) as one:
        await one.failed("exit code 1: the sensor is away")
        await one.until(lambda: one.column("n")[:3] == [0, 2, 3], "the runs after it")


async def test_nothing_is_left_of_a_program_that_is_not_over_in_time(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    text = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}} ')\ntime.sleep(600)\n"
    )
    config = program(tmp_path, text, interval_s=0.1, timeout_s=1.0)
    async with caged(tmp_path / "log", config) as one:
        await one.failed("not over after 1 s")
        first = [int(pid) for pid in pids.read_text().split()]
        assert len(first) == 2
    left = [int(pid) for pid in pids.read_text().split()]
    for pid in {*first, *left}:
        await asyncio.to_thread(wait_until, lambda pid=pid: not _runs(pid), f"the end of {pid}")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"


async def test_a_program_that_is_not_there_is_said(tmp_path: Path) -> None:
    config = ExecConfig.checked({"type": "exec", "stream": "s", "command": ["/no/such/program"]})
    async with caged(tmp_path, config) as one:
        await one.failed("/no/such/program")


async def test_an_answer_that_does_not_end_is_read_as_it_comes_and_asked_for_again(
    tmp_path: Path,
) -> None:
    asked = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in (b'{"n": %d}\n{"n"' % asked, b": 10}\n"):
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
        if asked == 1:
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return
        await reader.read()

    async with served(handler) as port:
        config = HttpLinesConfig.checked(
            {"type": "http_lines", "stream": "s", "url": f"http://127.0.0.1:{port}/"}
        )
        async with caged(tmp_path, config) as one:
            await one.until(lambda: one.column("n") == [1, 10, 2, 10], "both answers")
            assert "the answer ended" in (one.supervisor.error or "")
            assert one.supervisor.failures == 1
