"""Lines from a serial port (a pty) and from a TCP server, in every format."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from edgewake.edge.sources.lines.file_tail import FileTailConfig
from edgewake.edge.sources.lines.line_format import LineFormat
from edgewake.edge.sources.lines.tcp_lines import TcpLinesConfig
from tests.edge.sources.cage import Handler, caged, served
from tests.edge.sources.lines.test_nmea import RMC, sentence

VTG = "GPVTG,054.7,T,034.4,M,005.5,N,010.2,K"


def tcp(port: int, line_format: LineFormat, **more: object) -> TcpLinesConfig:
    return TcpLinesConfig(
        type="tcp_lines", stream="s", host="127.0.0.1", port=port, format=line_format, **more
    )  # type: ignore[arg-type]


def saying(*pieces: bytes) -> Handler:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        await reader.read()

    return handler


async def test_sentences_over_tcp_cut_anywhere_and_damaged_ones_among_them(tmp_path: Path) -> None:
    text = (
        sentence(RMC)
        + b"\r\n"
        + sentence(VTG)[:-1]
        + b"\r\n"
        + sentence("GPGSV,1")
        + b"\r\n"
        + sentence(VTG)
        + b"\r\n"
    )
    pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
    async with served(saying(*pieces)) as port, caged(tmp_path, tcp(port, LineFormat.NMEA)) as one:
        await one.until(lambda: one.column("course_deg") == [84.4, 54.7], "both good ones")
        assert one.intake.refused == {"shape": 1}
        assert one.times()[0] == 764426119000


async def test_gpsd_is_asked_to_watch(tmp_path: Path) -> None:
    said: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'{"class":"VERSION","release":"3.22"}\n')
        said.append(await reader.readline())
        writer.write(b'{"class":"TPV","mode":3,"lat":1.5,"lon":2.5}\n')
        await reader.read()

    async with served(handler) as port, caged(tmp_path, tcp(port, LineFormat.GPSD)) as one:
        await one.until(lambda: one.column("position_lat") == [1.5], "a position")
    assert said == [b'?WATCH={"enable":true,"json":true}\n']


@pytest.mark.parametrize(
    ("pieces", "refused"),
    [
        ((b"x" * 200_000 + b'\n{"n":1}\n',), {"oversize": 1}),
        ((b'\xff\xfe\n{"n":1}\n',), {"json": 1}),
        ((b'\n\n\r\n{"n":1}\n',), {}),
    ],
    ids=["a huge line", "no UTF-8", "empty lines"],
)
async def test_lines_that_are_none_cost_themselves_only(
    tmp_path: Path, pieces: tuple[bytes, ...], refused: dict[str, int]
) -> None:
    async with served(saying(*pieces)) as port, caged(tmp_path, tcp(port, LineFormat.JSON)) as one:
        await one.until(lambda: one.column("n") == [1], "the good one")
        assert one.intake.refused == refused


async def test_a_server_that_is_silent_or_gone_is_asked_again(tmp_path: Path) -> None:
    async with (
        served(saying(b'{"n":1}\n')) as port,
        caged(tmp_path, tcp(port, LineFormat.JSON, silence_s=0.3)) as one,
    ):
        await one.failed("nothing heard")
        await one.until(lambda: one.intake.taken >= 2, "another connection")

    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with served(closing) as port, caged(tmp_path / "2", tcp(port, LineFormat.TEXT)) as one:
        await one.failed("closed by the server")


async def test_a_file_of_sentences_is_followed_as_any_other(tmp_path: Path) -> None:
    file = tmp_path / "nmea.log"
    file.write_bytes(sentence(RMC) + b"\r\n" + sentence(VTG) + b"\r\n")
    to = FileTailConfig(
        type="file_tail", stream="s", path=file, format=LineFormat.NMEA, poll_s=0.01
    )
    async with caged(tmp_path / "log", to, answering=False) as one:
        await one.until(lambda: one.column("course_deg") == [84.4, 54.7], "both")
    with file.open("ab") as more:
        more.write(sentence("GPVTG,1.5,T,,M,,N,,K") + b"\r\n")
    async with caged(tmp_path / "log", to, answering=False) as one:
        await one.until(
            lambda: one.column("course_deg") == [84.4, 54.7, 1.5], "the third, and no other twice"
        )
