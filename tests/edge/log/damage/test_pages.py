"""A database file is read page by page without SQLite: what SQLite wrote is found, and no damage
leads astray or hangs.
"""

from __future__ import annotations

import shutil
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.edge.log.consumer import STATE_BYTES_MAX
from edgewake.edge.log.damage import pages
from edgewake.edge.log.damage.pages import RECORD_BYTES_MAX, DamagedError, Pages, Row, rows
from edgewake.edge.uplink.config import UplinkConfig
from tests.examples import examples

PAGE = 1024
FRAME = 24 + PAGE
MAGIC = b"SQLite format 3\x00"


def found_in(path: Path, page_size: int = PAGE) -> list[Row]:
    """All records of a file."""
    with closing(Pages(path, page_size=page_size)) as found:
        return [row for number in found.numbers() for row in rows(found, number)]


def database(path: Path, values: list[tuple[Any, ...]], *, page_size: int = PAGE) -> None:
    """A file with a table like the log's, whose key comes first."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"PRAGMA page_size = {page_size}")
        db.execute("CREATE TABLE of (key INTEGER PRIMARY KEY, value) WITHOUT ROWID")
        db.executemany("INSERT INTO of VALUES (?, ?)", values)


def with_wal(path: Path, turns: int = 3) -> bytearray:
    """A file and a write-ahead log of one commit a turn, each of another row, as a crash leaves
    them; the bytes of the latter.
    """
    whole = path.with_name("whole")
    with closing(sqlite3.connect(whole, isolation_level=None)) as db:
        db.executescript(
            f"PRAGMA page_size = {PAGE}; PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0"
        )
        db.execute("CREATE TABLE of (key INTEGER PRIMARY KEY, value) WITHOUT ROWID")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for turn in range(1, turns + 1):
            db.execute("INSERT INTO of VALUES (?, ?)", (turn, "committed"))
        shutil.copy(whole, path)
        wal = path.with_name("whole-wal").read_bytes()
    path.with_name(f"{path.name}-wal").write_bytes(wal)
    return bytearray(wal)


VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=2000),
    st.binary(max_size=4000),
)


@given(st.lists(VALUES, max_size=30), st.sampled_from([512, 1024, 4096]))
@settings(max_examples=examples(30))
def test_every_record_of_every_type_and_length_is_found_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, values: list[object], page_size: int
) -> None:
    path = tmp_path_factory.mktemp("pages") / "log.db"
    written = [(key, value) for key, value in enumerate(values)]
    database(path, written, page_size=page_size)
    assert (
        sorted(
            row for row in found_in(path, page_size=1) if len(row) == 2 and isinstance(row[0], int)
        )
        == written
    )  # type: ignore[type-var]


@pytest.mark.parametrize(
    "value",
    [
        0,
        1,
        -1,
        127,
        128,
        -129,
        2**15,
        2**23,
        -(2**23) - 1,
        2**31,
        2**47,
        -(2**47) - 1,
        2**63 - 1,
        -(2**63),
        1.5,
        -1e300,
        "",
        b"",
    ],
)
def test_every_width_of_a_number_is_read(tmp_path: Path, value: object) -> None:
    database(tmp_path / "log.db", [(7, value)])
    assert (7, value) in found_in(tmp_path / "log.db")


@pytest.mark.parametrize(
    "length",
    [0, 1, 200, *range(215, 242), 1000, *range(1019, 1023), *range(1236, 1262), 3000, 100_000],
)
def test_a_record_is_whole_at_each_length_at_which_it_goes_on_in_another_page(
    tmp_path: Path, length: int
) -> None:
    database(tmp_path / "log.db", [(7, bytes(range(256)) * (length // 256) + bytes(length % 256))])
    ((_, body),) = [row for row in found_in(tmp_path / "log.db") if row[0] == 7]
    assert isinstance(body, bytes)
    assert len(body) == length


@pytest.mark.parametrize(
    ("header", "size"),
    [
        (MAGIC + struct.pack(">H", 1024), 1024),
        (MAGIC + struct.pack(">H", 512), 512),
        (MAGIC + struct.pack(">H", 1), 65_536),
        (MAGIC + struct.pack(">H", 256), None),
        (MAGIC + struct.pack(">H", 1025), None),
        (MAGIC + struct.pack(">H", 0), None),
        (MAGIC + b"\x04", None),
        (b"SQLite format 4\x00" + struct.pack(">H", 1024), None),
        (b"", None),
    ],
)
def test_the_page_size_is_the_headers_where_that_can_be_one(
    header: bytes, size: int | None
) -> None:
    assert pages._page_size(header) == size


def test_a_file_that_lost_its_header_is_read_with_the_page_size_that_is_said(
    tmp_path: Path,
) -> None:
    database(tmp_path / "log.db", [(n, "x" * 50) for n in range(100)])
    data = (tmp_path / "log.db").read_bytes()
    (tmp_path / "log.db").write_bytes(bytes(PAGE) + data[PAGE:])
    assert len(found_in(tmp_path / "log.db", page_size=PAGE)) == 100
    assert len(found_in(tmp_path / "log.db", page_size=4 * PAGE)) < 100


def test_the_last_page_of_a_file_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    database(tmp_path / "log.db", [(n, "x" * 50) for n in range(100)])
    data = (tmp_path / "log.db").read_bytes()
    (tmp_path / "log.db").write_bytes(data[:-1])
    with closing(Pages(tmp_path / "log.db", page_size=PAGE)) as found:
        assert list(found.numbers()) == list(range(1, len(data) // PAGE + 1))
        assert list(rows(found, len(data) // PAGE)) == []


# the write-ahead log


def test_of_the_write_ahead_log_the_newest_committed_bytes_of_a_page_count(tmp_path: Path) -> None:
    with_wal(tmp_path / "log.db")
    assert sorted(found_in(tmp_path / "log.db")) == [
        (1, "committed"),
        (2, "committed"),
        (3, "committed"),
    ]


def test_what_was_not_committed_is_not_there(tmp_path: Path) -> None:
    """The machine stopped before the last frame, which says that the transaction is whole."""
    wal = with_wal(tmp_path / "log.db")
    struct.pack_into(">I", wal, len(wal) - FRAME + 4, 0)
    (tmp_path / "log.db-wal").write_bytes(wal)
    assert sorted(found_in(tmp_path / "log.db")) == [(1, "committed"), (2, "committed")]


def test_what_is_left_of_an_earlier_turn_of_the_file_is_not_read(tmp_path: Path) -> None:
    wal = with_wal(tmp_path / "log.db")
    wal[len(wal) - FRAME + 8] ^= 1
    (tmp_path / "log.db-wal").write_bytes(wal)
    assert sorted(found_in(tmp_path / "log.db")) == [(1, "committed"), (2, "committed")]


@pytest.mark.parametrize("left", [0, 31, 32, 32 + 23, 32 + 24, 32 + 24 + 1])
def test_a_write_ahead_log_that_ends_within_its_first_frame_says_nothing_that_was_not_written(
    tmp_path: Path, left: int
) -> None:
    wal = with_wal(tmp_path / "log.db")
    (tmp_path / "log.db-wal").write_bytes(wal[:left])
    assert found_in(tmp_path / "log.db") == []


def test_a_flipped_bit_in_a_page_number_costs_that_page_and_no_walk_over_two_billion(
    tmp_path: Path,
) -> None:
    """No frame is formed while a damaged log is read: it would have taken a day."""
    wal = with_wal(tmp_path / "log.db")
    wal[len(wal) - FRAME] |= 0x7F
    (tmp_path / "log.db-wal").write_bytes(wal)
    with closing(Pages(tmp_path / "log.db", page_size=PAGE)) as found:
        numbers = list(found.numbers())
        assert max(numbers) >= 0x7F000000, "the fault did not fire"
        assert len(numbers) <= 1 + (tmp_path / "log.db").stat().st_size // PAGE
    assert (1, "committed") in found_in(tmp_path / "log.db")


def test_a_page_that_only_the_write_ahead_log_has_is_read_too(tmp_path: Path) -> None:
    with_wal(tmp_path / "log.db", turns=60)
    assert len(found_in(tmp_path / "log.db")) == 60


# hostile bytes


def page_with(*, cells: int = 1, at: int = 100, cell: bytes = b"", kind: int = 0x0A) -> bytes:
    """One leaf of an index whose only cell has these bytes."""
    page = bytearray(PAGE)
    page[0] = kind
    struct.pack_into(">H", page, 3, cells)
    struct.pack_into(">H", page, 8 if kind == 0x0A else 12, at)
    page[at : at + len(cell)] = cell
    return bytes(page[:PAGE])


HOSTILE: dict[str, bytes] = {
    "a cell outside of the page": page_with(at=PAGE - 1, cell=b"\x05"),
    "more cells than a page has bytes": page_with(cells=0xFFFF),
    "a length above all bounds": page_with(cell=b"\xff" * 9),
    "a length just above the bound": page_with(cell=b"\x82\x80\x80\x01"),
    "a header longer than its record": page_with(cell=b"\x02\x7f\x01"),
    "a header of no length": page_with(cell=b"\x01\x00"),
    "a type that is not in use": page_with(cell=b"\x02\x02\x0a"),
    "another one": page_with(cell=b"\x02\x02\x0b"),
    "one that another type makes up for": page_with(cell=b"\x03\x03\x0a\x01"),
    "a text that is not UTF-8": page_with(cell=b"\x03\x02\x0f\xff"),
    "a record that is longer than its values": page_with(cell=b"\x04\x02\x01\x07\x07"),
    "a number that is cut off by the record's end": page_with(cell=b"\x03\x02\x06\x01"),
    "overflow into no page": page_with(cell=b"\x8f\x50" + bytes(500)),
    "a page of another kind": page_with(kind=0x0D, cell=b"\x02\x02\x01\x07"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_no_record_is_left_out_and_the_next_page_is_read(tmp_path: Path, what: str) -> None:
    database(tmp_path / "log.db", [(7, "sound")])
    data = (tmp_path / "log.db").read_bytes()
    (tmp_path / "log.db").write_bytes(data[:PAGE] + HOSTILE[what] + data[PAGE:])
    assert [row for row in found_in(tmp_path / "log.db") if row != ()] == [(7, "sound")]


def test_a_chain_of_pages_that_leads_back_to_itself_ends_at_the_length_of_its_record(
    tmp_path: Path,
) -> None:
    circle = struct.pack(">I", 2) + b"\x00" * (PAGE - 4)
    size = 200_000
    cell = bytes([0x80 | size >> 14, 0x80 | size >> 7 & 0x7F, size & 0x7F])
    local = 103 + (size - 103) % (PAGE - 4)
    local = local if local <= 231 else 103
    leaf = bytearray(page_with(at=100, cell=cell))
    struct.pack_into(">I", leaf, 103 + local, 2)
    (tmp_path / "log.db").write_bytes(bytes(leaf) + circle)
    with closing(Pages(tmp_path / "log.db", page_size=PAGE)) as found:
        reads = counted(found)
        assert len(list(rows(found, 1))) <= 1
    assert 100 < len(reads) <= 2 + size // (PAGE - 4)


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_record_of_the_greatest_length_is_put_together_and_one_byte_more_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beyond: int
) -> None:
    database(tmp_path / "log.db", [(7, bytes(20_000))])
    monkeypatch.setattr(pages, "RECORD_BYTES_MAX", payload_size(tmp_path / "log.db") - beyond)
    assert len(found_in(tmp_path / "log.db")) == 1 - beyond


def test_the_bound_leaves_room_for_the_largest_row_of_the_log() -> None:
    assert 2 * UplinkConfig().frame_bytes_max < RECORD_BYTES_MAX
    assert 2 * STATE_BYTES_MAX <= RECORD_BYTES_MAX


def payload_size(path: Path) -> int:
    """Of the only record, whose cell is the only one of the second page."""
    with closing(Pages(path, page_size=PAGE)) as found:
        page = found.read(2)
    return pages._varint(page, struct.unpack_from(">H", page, 8)[0])[0]


def counted(found: Pages) -> list[int]:
    """Numbers of the pages that are read from now on."""
    reads: list[int] = []
    read: Callable[[int], bytes] = found.read

    def noted(number: int) -> bytes:
        reads.append(number)
        return read(number)

    found.read = noted  # type: ignore[method-assign]
    return reads


@given(st.binary(max_size=3 * PAGE), st.binary(max_size=3 * FRAME), st.booleans())
@settings(max_examples=examples(60))
def test_any_bytes_are_read_to_their_end(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, wal: bytes, is_index: bool
) -> None:
    path = tmp_path_factory.mktemp("pages") / "log.db"
    path.write_bytes(b"\x0a" + data if is_index else data)
    path.with_name("log.db-wal").write_bytes(wal)
    for row in found_in(path):
        assert isinstance(row, tuple)


@pytest.mark.parametrize(
    ("data", "value", "end"),
    [
        (b"\x00", 0, 1),
        (b"\x7f", 127, 1),
        (b"\x81\x00", 128, 2),
        (b"\xff\x7f", 16_383, 2),
        (b"\xff" * 9, 2**64 - 1, 9),
    ],
)
def test_a_length_has_one_to_nine_bytes(data: bytes, value: int, end: int) -> None:
    assert pages._varint(data + b"\x55", 0) == (value, end)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 8])
def test_a_length_that_is_cut_off_is_none(data: bytes) -> None:
    with pytest.raises((IndexError, DamagedError)):
        pages._varint(data, 0)
