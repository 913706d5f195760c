"""What `edgewake tail` and `edgewake send` make of what they are told; nothing that a stream holds
is a command to a terminal.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from edgewake.edge.client.follow import Connected, Lost, Received
from edgewake.edge.client.send import Address
from edgewake.edge.client.table import COLUMNS_MAX, columns_of, merged, shown, table_of
from edgewake.edge.client.tail import Lines, Screen
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.leases.lease import Subscription
from tests.examples import examples


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:8710", "127.0.0.1", 8710),
        ("broker.example:1", "broker.example", 1),
        ("mqtt://broker:65535", "broker", 65_535),
        ("[::1]:1883", "::1", 1883),
        ("mqtt://[fe80::1]:1883", "fe80::1", 1883),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, host: str, port: int) -> None:
    assert Address.parse(text) == (host, port)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "broker",
        "broker:",
        ":1883",
        "broker:0",
        "broker:65536",
        "broker:-1",
        "broker:+1",
        "broker: 1",
        "broker:1e3",
        "broker:²",
        "a:b:c",
    ],
)
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:8710"):
        Address.parse(text)


def test_an_endless_address_is_not_repeated_whole() -> None:
    with pytest.raises(ConfigError) as refused:
        Address.parse("x" * 10_000)
    assert len(str(refused.value)) < 300


# lines


def data(text: str) -> Received:
    return Received("", text, "v2.a")


def test_each_event_is_one_line_of_its_own_text() -> None:
    out = io.StringIO()
    with Lines(out) as lines:
        lines.show(data('{"n": 1}'))
        lines.show(data('{"n":2,"text":"a\\nb"}'))
    assert out.getvalue() == '{"n": 1}\n{"n":2,"text":"a\\nb"}\n'


def test_an_event_that_a_server_sent_on_several_lines_is_one_line_still() -> None:
    """Who reads lines of JSON would find halves of objects."""
    out = io.StringIO()
    with Lines(out) as lines:
        lines.show(data('{\n  "n": 1\n}'))
        lines.show(data('{\r"n": 2}'))
    assert [orjson.loads(line) for line in out.getvalue().split("\n")[:-1]] == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("kind", ["watermark", "checkpoint", "final", "anything"])
def test_what_is_neither_data_nor_a_warning_is_not_shown(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = io.StringIO()
    Lines(out).show(Received(kind, "{}", "v2.a"))
    assert (out.getvalue(), capsys.readouterr().err) == ("", "")


@pytest.mark.parametrize(
    ("received", "says"),
    [
        (Received("gap", '{"lost":5}', "c"), 'edgewake tail: gap: {"lost":5}\n'),
        (Received("warning", '{"detail":"slow"}', "c"), "edgewake tail: warning: slow\n"),
        (Received("warning", "{}", "c"), "edgewake tail: warning: {}\n"),
        (Received("warning", "nonsense", "c"), "edgewake tail: warning: nonsense\n"),
        (Received("warning", "[1]", "c"), "edgewake tail: warning: [1]\n"),
        (Received("gap", '{"a":"\x1b]0;x\x07"}', "c"), 'edgewake tail: gap: {"a":"�]0;x�"}\n'),
        (
            Received("warning", '{"detail":"a\\u001b[2Jb\\nc"}', "c"),
            "edgewake tail: warning: a�[2Jb�c\n",
        ),
    ],
    ids=[
        "a gap",
        "a warning",
        "one without a sentence",
        "one that is not JSON",
        "one that is no object",
        "an escape in a gap",
        "an escape in a warning",
    ],
)
def test_what_goes_beside_the_data_is_one_sentence_whatever_the_server_wrote(
    received: Received, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = io.StringIO()
    Lines(out).show(received)
    assert (out.getvalue(), capsys.readouterr().err) == ("", says)


@pytest.mark.parametrize(
    ("notice", "says"),
    [
        (Connected("http://a", "resumed"), "connected to http://a (resumed)"),
        (Connected("http://a", ""), "connected to http://a (live)"),
        (Connected("http://a", "x\x1b[2Jy"), "connected to http://a (x�[2Jy)"),
        (Lost("http://a", "500 Oh", 1.26), "lost http://a: 500 Oh; again in 1.3 s"),
        (Lost("http://a", "500 \x1b[2J\n", 0.0), "lost http://a: 500 �[2J�; again in 0.0 s"),
    ],
)
def test_how_the_connection_is_is_one_sentence(
    notice: Connected | Lost, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Lines(io.StringIO()).notice(notice)
    assert capsys.readouterr().err == f"edgewake tail: {says}\n"


# the table


@pytest.mark.parametrize("text", ["nonsense", "[1]", "5", '{"n": "[/red]"}', '{"[/n]": 1}'])
def test_the_table_takes_whatever_a_server_sends_and_names_what_is_no_object(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Screen(Subscription(streams=("s",))) as screen:
        screen.notice(Lost("http://a", "500 [/b] \x1b[2J", 1.0))
        screen.show(data(text))
    seen = capsys.readouterr()
    assert "\x1b[2J" not in seen.out + seen.err
    assert (text in seen.err) == (not text.startswith("{"))


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=60),
    st.lists(st.integers(), max_size=3),
)
NAMES = st.sampled_from(
    [
        "device",
        "t",
        "window_start",
        "stream",
        "query",
        "seq",
        "revision",
        "speed",
        "temperature_of_the_oil",
        "a",
        "b",
        "c",
        "d",
    ]
)
ROWS = st.lists(st.dictionaries(NAMES, VALUES, min_size=1), min_size=1, max_size=6)


@settings(max_examples=examples(20))
@given(ROWS, st.integers(1, 200), st.booleans())
# Takes no cell of its own: the line has more characters than cells.
@example([{"device": "\u1067"}], 19, True)
def test_any_rows_fit_into_any_width_and_no_line_holds_what_moves_a_terminal(
    rows: Sequence[Mapping[str, object]], width: int, several: bool
) -> None:
    out = io.StringIO()
    Console(file=out, width=width, height=50, force_terminal=False, color_system=None).print(
        table_of(rows, width=width, several=several)
    )
    text = out.getvalue()
    assert all(cell_len(line) <= width for line in text.split("\n"))
    assert all(char.isprintable() or char == "\n" for char in text)


@settings(max_examples=examples(40))
@given(ROWS, st.integers(1, 300))
def test_columns_are_names_of_the_rows_each_once_and_at_least_one(
    rows: Sequence[Mapping[str, object]], width: int
) -> None:
    found = columns_of(rows, width)
    assert 1 <= len(found) <= COLUMNS_MAX
    assert len(set(found)) == len(found)
    assert set(found) <= {name for row in rows for name in row}
    wider = columns_of(rows, width + 50)
    assert wider[: len(found)] == found, "more width adds columns and changes none"


@given(st.dictionaries(NAMES, VALUES.filter(lambda value: value == value), min_size=1))
def test_a_row_of_several_streams_shows_each_of_its_own_fields(row: Mapping[str, object]) -> None:
    found = merged(row)
    assert found["stream"] == row.get("stream", row.get("query"))
    for name in row:
        if name not in (
            "device",
            "t",
            "window_start",
            "window_end",
            "stream",
            "query",
            "epoch",
            "seq",
            "received_at",
            "revision",
            "final",
        ):
            assert f"{name}=" in str(found["fields"])


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("t", 0, "00:00:00.000"),
        (
            "t",
            1_790_000_000_123,
            datetime.fromtimestamp(1_790_000_000, UTC).strftime("%H:%M:%S") + ".123",
        ),
        ("t", 253_402_300_799_999, "23:59:59.999"),
        ("t", 253_402_300_800_000, "253402300800000"),
        ("t", -1, "-1"),
        ("t", True, "True"),
        ("t", "soon", "soon"),
        ("t", 1.5, "1.5"),
        ("n", 1_790_000_000_123, "1790000000123"),
        ("n", 0.1 + 0.2, "0.30000000000000004"),
        ("lat", 53.34981, "53.34981"),
        ("co", 0.00527, "0.00527"),
        ("n", 12.0, "12"),
        ("n", 1e300, "1e+300"),
        ("n", None, ""),
        ("n", False, "False"),
        ("n", "a\tb\x7f\u202ec", "a�b��c"),
        ("n", "[red]x[/red]", "\\[red]x\\[/red]"),
    ],
)
def test_a_value_is_shown_for_people_and_moves_nothing(name: str, value: object, text: str) -> None:
    assert shown(name, value) == text
