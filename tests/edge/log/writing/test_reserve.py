"""The reserve: all of it is there, or it is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgewake.edge.log.writing.reserve import RESERVE_NAME, Reserve

SIZE = 1 << 20


def allocated(path: Path) -> int:
    return path.stat().st_blocks * 512


@pytest.mark.parametrize("left", [0, 5, SIZE // 2, SIZE + 1, 3 * SIZE])
def test_one_of_another_size_becomes_what_is_asked_for(tmp_path: Path, left: int) -> None:
    """A crash between its making and its filling leaves an empty one; a new configuration asks for
    more or less.
    """
    path = tmp_path / RESERVE_NAME
    path.write_bytes(bytes(left))
    assert Reserve(tmp_path, SIZE).keep()
    assert path.stat().st_size == SIZE <= allocated(path)


def test_one_that_was_put_back_without_its_space_gets_it(tmp_path: Path) -> None:
    """Copies leave out what holds nothing."""
    path = tmp_path / RESERVE_NAME
    with path.open("wb") as file:
        file.truncate(SIZE)
    assert allocated(path) < SIZE, "the fault did not fire"
    assert Reserve(tmp_path, SIZE).keep()
    assert allocated(path) >= SIZE


def test_where_there_is_no_space_there_is_none_and_nothing_is_left_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / RESERVE_NAME).write_bytes(b"too small")
    monkeypatch.setattr(os, "posix_fallocate", full)
    assert not Reserve(tmp_path, SIZE).keep()
    assert not (tmp_path / RESERVE_NAME).exists()


def test_none_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / RESERVE_NAME).write_bytes(bytes(SIZE))
    assert Reserve(tmp_path, 0).keep()
    assert not (tmp_path / RESERVE_NAME).exists()


def test_it_is_given_up_and_had_again(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path, SIZE)
    assert reserve.keep()
    reserve.give_up()
    reserve.give_up()
    assert not (tmp_path / RESERVE_NAME).exists()
    assert reserve.keep()
    assert (tmp_path / RESERVE_NAME).stat().st_size == SIZE


@pytest.mark.parametrize("size", [0, SIZE - 1, 2 * SIZE, None])
def test_one_that_somebody_changed_or_deleted_meanwhile_is_had_again(
    tmp_path: Path, size: int | None
) -> None:
    path, reserve = tmp_path / RESERVE_NAME, Reserve(tmp_path, SIZE)
    assert reserve.keep()
    if size is None:
        path.unlink()
    else:
        os.truncate(path, size)
    assert reserve.keep()
    assert path.stat().st_size == SIZE <= allocated(path)
