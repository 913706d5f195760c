"""Lines that come over TCP, from servers that hang up in the middle, say nothing, or say too much;
and what each format makes of a line.
"""

from __future__ import annotations

import asyncio
from codecs import BOM_UTF8

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.intake.intake import BUNDLE_MIN
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.sources.lines.gpsd import WATCH
from edgewake.edge.sources.lines.json_objects import readings_of_objects
from edgewake.edge.sources.lines.line_format import LineFormat, LineReader
from edgewake.edge.sources.lines.lines import Line, LineSplitter
from edgewake.edge.sources.lines.tcp_lines import TcpLines, TcpLinesConfig
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.frames.frame import READING_BYTES_MAX
from tests.edge.sources.cage import Handler, served
from tests.edge.sources.lines.test_nmea import RMC, sentence
from tests.edge.sources.sink import MemorySink, intake_of, running


def source(port: int, line_format: LineFormat = LineFormat.JSON, **more: object) -> TcpLines:
    return TcpLines(
        TcpLinesConfig(
            type="tcp_lines", stream="s", host="127.0.0.1", port=port, format=line_format, **more
        )
    )  # type: ignore[arg-type]


def saying(*pieces: bytes, heard: list[bytes] | None = None, hello: int = 0) -> Handler:
    """Says these, one by one, and hangs up."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if heard is not None:
            heard.append(await reader.readexactly(hello))
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()
        await writer.wait_closed()

    return handler


async def taken(
    said: bytes, line_format: LineFormat = LineFormat.JSON, field: str = "n"
) -> tuple[list[object], dict[str, int]]:
    """Values of a field, and what was refused, of a server that says this and hangs up."""
    async with served(saying(said)) as port, running(source(port, line_format)) as one:
        error = await one.error()
    assert isinstance(error, Unavailable)
    assert "closed by the server" in str(error)
    return one.sink.values(field), dict(one.intake.refused)


@pytest.mark.parametrize(
    ("said", "values", "refused"),
    [
        (b'{"n": 1}', [1], {}),
        (b'{"n": 1}\n{"n": 2}', [1, 2], {}),
        (b'{"n": 1}\r\n{"n": 2}\r', [1, 2], {}),
        (b'{"n": 1}\n{"n": ', [1], {"json": 1}),
        (b'{"n": 1}\n', [1], {}),
        (b'{"n": 1}\n   ', [1], {}),
        (b"", [], {}),
        (BOM_UTF8 + b'{"n": 1}\n', [1], {}),
        (b'{"n": 1}\n' + b"x" * (READING_BYTES_MAX + 100), [1], {"oversize": 1}),
    ],
    ids=[
        "one object",
        "the last without an end",
        "CR at the end",
        "half an object",
        "all whole",
        "spaces",
        "nothing",
        "a byte order mark",
        "too long",
    ],
)
async def test_a_last_line_without_an_end_counts_where_it_shows_that_it_is_whole(
    said: bytes, values: list[object], refused: dict[str, int]
) -> None:
    assert await taken(said) == (values, refused)


async def test_half_a_text_looks_like_a_whole_one_and_is_refused() -> None:
    assert await taken(b"level 213\nlevel 21", LineFormat.TEXT, "line") == (
        ["level 213"],
        {"shape": 1},
    )


@pytest.mark.parametrize("cut", [1, 20, len(sentence(RMC)) - 1])
async def test_half_a_sentence_is_refused_and_a_whole_one_is_taken(cut: int) -> None:
    whole = sentence(RMC)
    assert await taken(whole + b"\r\n" + whole, LineFormat.NMEA, "course_deg") == ([84.4, 84.4], {})
    assert await taken(whole + b"\r\n" + whole[:cut], LineFormat.NMEA, "course_deg") == (
        [84.4],
        {"shape": 1},
    )


async def test_each_connection_begins_with_a_line_of_its_own() -> None:
    """What was cut off before is not put before what comes now."""
    async with served(saying(b'{"n": 1}\n{"a":', b' "')) as port:
        same, sink = source(port), MemorySink()
        for _ in range(2):
            async with running(same, sink) as one:
                assert isinstance(await one.error(), Unavailable)
    assert sink.values() == [1, 1]


@pytest.mark.parametrize(
    ("line_format", "hello", "said"),
    [
        (LineFormat.GPSD, "", WATCH.encode()),
        (LineFormat.GPSD, "?POLL;\n", b"?POLL;\n"),
        (LineFormat.JSON, "go\n", b"go\n"),
    ],
    ids=[
        "gpsd is asked to watch",
        "gpsd is asked for what was configured",
        "any other says what was configured",
    ],
)
async def test_what_is_said_first(line_format: LineFormat, hello: str, said: bytes) -> None:
    heard: list[bytes] = []
    async with (
        served(saying(heard=heard, hello=len(said))) as port,
        running(source(port, line_format, hello=hello)) as one,
    ):
        await one.error()
    assert heard == [said]


async def test_a_server_that_says_nothing_is_left_after_its_time() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with served(handler) as port, running(source(port, silence_s=0.02)) as one:
        error = await one.error()
    assert isinstance(error, Unavailable)
    assert "nothing heard" in str(error)


async def test_while_the_log_is_full_a_server_waits_and_nothing_is_lost() -> None:
    sink = MemorySink()
    sink.is_full = True
    lines = b"".join(b'{"n": %d}\n' % n for n in range(1000))
    async with (
        served(saying(lines, lines)) as port,
        running(source(port), sink, Policy.BLOCK) as one,
    ):
        await one.until(lambda: sink.waiting)
        assert sink.readings == []
        sink.free()
        await one.error()
    assert sink.values() == [*range(1000)] * 2
    assert sink.lost == {}


# formats


@pytest.mark.parametrize(
    ("line_format", "line", "fields"),
    [
        (LineFormat.TEXT, b"warm", {"line": "warm"}),
        (LineFormat.TEXT, b"  warm \t", {"line": "  warm \t"}),
        (LineFormat.TEXT, "21 °C".encode(), {"line": "21 °C"}),
        (LineFormat.TEXT, "21 °C".encode("latin-1"), {"line": "21 \ufffdC"}),
        (LineFormat.TEXT, b"a\0b", None),
        (LineFormat.TEXT, b"x" * 10_000, None),
        (LineFormat.JSON, b'{"a": 1}', {"a": 1}),
        (LineFormat.JSON, b' {"a": 1} ', {"a": 1}),
        (LineFormat.JSON, b'[{"a": 1}]', None),
        (LineFormat.JSON, b"1", None),
        (LineFormat.JSON, b'{"a": 1} {"a": 2}', None),
        (LineFormat.JSON, b"{'a': 1}", None),
        (LineFormat.GPSD, b'{"class":"TPV","lat":1.5}', {"report": "TPV", "position_lat": 1.5}),
        (LineFormat.GPSD, b'{"class":"TPV","lat":1e999}', None),
    ],
)
def test_what_a_line_of_a_format_is(
    line_format: LineFormat, line: bytes, fields: dict[str, object] | None
) -> None:
    sink = MemorySink()
    found = LineReader(line_format, ("a",) if line_format is LineFormat.CSV else ()).readings(
        intake_of(sink), [Line(line, len(line))]
    )
    assert [reading[1] for reading in found] == ([] if fields is None else [fields])
    assert sum(sink.lost.values()) == (fields is None)


@pytest.mark.parametrize("line_format", list(LineFormat))
def test_a_line_past_its_bound_is_one_loss_in_every_format(line_format: LineFormat) -> None:
    sink = MemorySink()
    intake = intake_of(sink)
    assert (
        list(
            LineReader(line_format, ("a",)).readings(intake, [Line(b"", 10**6, too_long=True)] * 3)
        )
        == []
    )
    assert (dict(intake.refused), sink.lost) == ({"oversize": 3}, {"refused": 3})


GOOD = st.integers(0, 10**6).map(lambda n: b'{"n": %d}' % n)
BAD = st.sampled_from(
    [
        b"nonsense",
        b"[]",
        b"{}",
        b'{"n": nan}',
        b'{"n": "\\u0000"}',
        b'{"t": 1790000000000}',
        b"\xff",
        b'{"n": {}',
    ]
)


@given(st.lists(st.one_of(GOOD, GOOD, GOOD, BAD), max_size=4 * BUNDLE_MIN), st.integers(1, 40))
def test_however_lines_are_cut_into_pieces_the_good_ones_are_taken_in_order_and_the_others_counted(
    lines: list[bytes], cut: int
) -> None:
    """Many at once are checked by whole columns, a few one by one: nobody can tell the
    difference.
    """
    data = b"".join(line + b"\n" for line in lines)
    sink = MemorySink()
    intake, splitter = intake_of(sink), LineSplitter()
    found = [
        reading[1]["n"]
        for at in range(0, len(data), cut)
        for reading in readings_of_objects(intake, splitter.feed(data[at : at + cut]))
    ]
    whole = [
        reading[1]["n"]
        for reading in readings_of_objects(intake_of(MemorySink()), LineSplitter().feed(data))
    ]
    good = [
        int(line.split()[1].strip(b"}"))
        for line in lines
        if line.startswith(b'{"n": ') and line[6:7].isdigit()
    ]
    assert found == whole == good
    assert sum(sink.lost.values()) == len(lines) - len(good)
