"""The key file: which key signs, rotation without a restart, and a key of our own where none is
configured.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.cloud.log.cursor_keys import KeyFile, parse_keys, state_key_file
from edgewake.protocol.cursor import Cursor
from edgewake.protocol.errors import ConfigError

A, B = "aa" * 32, "bb" * 32


def written(path: Path, text: str) -> Path:
    """Replace the file as a whole, as a careful operator does."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)
    return path


def test_the_file_says_which_key_signs() -> None:
    keys = parse_keys(f"# ours\n1 {A} sign\n\n2 {B} verify # the next one\n")
    assert (keys.signing, dict(keys.secrets)) == (1, {1: bytes.fromhex(A), 2: bytes.fromhex(B)})


def test_a_key_alone_signs() -> None:
    assert parse_keys(f"7 {A}\n").signing == 7


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "0 keys are marked"),
        (f"1 {A}\n2 {B}\n", "0 keys are marked"),
        (f"1 {A} sign\n2 {B} sign\n", "2 keys are marked"),
        (f"1 {A} verify\n", "0 keys are marked"),
        ("1 xyz\n", "line 1: expected `kid hexkey`"),
        ("1\n", "line 1"),
        (f"1 {A} sing\n", "line 1"),
        (f"1 {A} sign\n1 {B} verify\n", "line 2: .*each kid once"),
        ("1 abcd\n", "16 bytes"),
        (f"256 {A}\n", "ids 0-255"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_line(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_keys(text)


def test_a_key_is_rotated_without_a_restart(tmp_path: Path) -> None:
    path = written(tmp_path / "keys", f"1 {A}\n")
    one, other = KeyFile(path), KeyFile(path)
    for text in (f"1 {A} sign\n2 {B} verify\n", f"1 {A} verify\n2 {B} sign\n"):
        written(path, text)
        one.look()  # the other server has not looked yet
        assert other.codec.decode(one.codec.encode(Cursor(()))) == Cursor(())
        assert one.codec.decode(other.codec.encode(Cursor(()))) == Cursor(())
        other.look()
    assert one.codec.keys.signing == 2


@pytest.mark.parametrize("text", ["", "nonsense\n"])
def test_a_change_that_cannot_be_used_leaves_the_keys_as_they_were(
    tmp_path: Path, text: str
) -> None:
    path = written(tmp_path / "keys", f"1 {A}\n")
    file = KeyFile(path)
    written(path, text)
    file.look()
    assert file.codec.keys.signing == 1
    path.unlink()
    file.look()
    assert file.codec.keys.signing == 1


def test_without_a_configured_file_a_restart_finds_the_same_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cursor = KeyFile(state_key_file()).codec.encode(Cursor(()))
    assert KeyFile(state_key_file()).codec.decode(cursor) == Cursor(())
    assert [path.name for path in (tmp_path / "edgewake").iterdir()] == ["cursor.key"]
    assert (tmp_path / "edgewake" / "cursor.key").stat().st_mode & 0o777 == 0o600


def test_a_state_folder_that_cannot_be_written_is_no_reason_not_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "file" / "below"))
    assert KeyFile(state_key_file()).codec.keys.signing == 1
