"""The cursor's file: usable at the start, of these streams, replaced as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.edge.client.cursor_file import CursorFile
from edgewake.protocol.cursor import Cursor, CursorCodec, CursorKeys, StreamPosition, stream_hash
from edgewake.protocol.errors import ConfigError

CODEC = CursorCodec(CursorKeys({1: b"k" * 32}, 1))


def cursor_of(*streams: str) -> str:
    return CODEC.encode(Cursor(tuple(StreamPosition(stream_hash(name), b"gene", ((1, 0),)) for name in streams)))


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
def test_the_cursor_of_other_streams_is_refused_and_stays(tmp_path: Path, streams: list[str]) -> None:
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
