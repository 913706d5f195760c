"""The cursor's file: usable at the start, of these streams, replaced as a whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from edgewake.edge.client.cursor_file import CursorFile
from edgewake.protocol.cursor import Cursor, CursorCodec, CursorKeys, StreamPosition, stream_hash
from edgewake.protocol.errors import ConfigError

CODEC = CursorCodec(CursorKeys({1: b"k" * 32}, 1))


def cursor_of(*streams: str) -> str:
    return CODEC.encode(
        Cursor(tuple(StreamPosition(stream_hash(name), b"gene", ((1, 0),)) for name in streams))
    )


def test_what_was_saved_is_read(tmp_path: Path) -> None:
    file = CursorFile(tmp_path / "cursor")
    assert file.read(["a"]) == ""
    file.save(cursor_of("a"))
    assert CursorFile(tmp_path / "cursor").read(["a"]) == cursor_of("a")
    assert [path.name for path in tmp_path.iterdir()] == ["cursor"]


def test_a_stream_more_is_welcome(tmp_path: Path) -> None:
    (tmp_path / "cursor").write_text(cursor_of("a"))
    assert CursorFile(tmp_path / "cursor").read(["a", "b"]) == cursor_of("a")


@pytest.mark.parametrize("streams", [["b"], ["a"]])
def test_the_cursor_of_other_streams_is_refused_and_stays(
    tmp_path: Path, streams: list[str]
) -> None:
    (tmp_path / "cursor").write_text(cursor_of("a", "b", "c"))
    with pytest.raises(ConfigError, match="was saved for other streams"):
        CursorFile(tmp_path / "cursor").read(streams)
    assert (tmp_path / "cursor").read_text() == cursor_of("a", "b", "c")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"two words", b"x" * 20_000])
def test_what_is_no_cursor_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cursor").write_bytes(content)
    with pytest.raises(ConfigError, match="cursor"):
        CursorFile(tmp_path / "cursor").read(["a"])


def test_a_file_that_cannot_be_written_is_noticed_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        CursorFile(tmp_path / "missing" / "cursor").read(["a"])


def test_without_a_file_nothing_is_saved() -> None:
    file = CursorFile(None)
    file.save("v2.x")
    assert file.read(["a"]) == ""


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path, kind: str) -> None:
    """Reading a pipe would wait for somebody who writes to it."""
    path = tmp_path / "cursor"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(ConfigError, match="is not a file"):
        CursorFile(path).read(["a"])


def test_of_a_huge_file_no_more_is_read_than_a_cursor_has(tmp_path: Path) -> None:
    path = tmp_path / "cursor"
    with path.open("wb") as file:
        file.truncate(1 << 26)
    with pytest.raises(ConfigError, match="is not a cursor"):
        CursorFile(path).read(["a"])


@pytest.mark.parametrize("content", [b"", b"\n", b"  \r\n"])
def test_an_empty_file_is_a_beginning(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cursor").write_bytes(content)
    assert CursorFile(tmp_path / "cursor").read(["a"]) == ""


def test_a_cursor_that_did_not_change_costs_no_write(tmp_path: Path) -> None:
    file = CursorFile(tmp_path / "cursor")
    file.read(["a"])
    file.save(cursor_of("a"))
    (tmp_path / "cursor").unlink()
    file.save(cursor_of("a"))
    assert not (tmp_path / "cursor").exists()
    file.save(cursor_of("b"))
    assert (tmp_path / "cursor").read_text() == cursor_of("b") + "\n"


def test_no_cursor_is_never_saved_over_one(tmp_path: Path) -> None:
    """A stream that ended before its first event gives none."""
    (tmp_path / "cursor").write_text(cursor_of("a"))
    file = CursorFile(tmp_path / "cursor")
    file.read(["a"])
    file.save("")
    assert (tmp_path / "cursor").read_text().strip() == cursor_of("a")


def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    file = CursorFile(tmp_path / "cursor")
    file.read(["a"])
    file.save(cursor_of("a"))
    assert stat.S_IMODE((tmp_path / "cursor").stat().st_mode) == 0o600
