"""Frames that nobody will ever take: kept on the device for people, within a bound, whatever else
lies there.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.edge.log.keeping.work import FrameKey, OutFrame
from edgewake.edge.uplink.quarantine import QUARANTINE_NAME, Quarantine
from tests.examples import examples


def frame(number: int, size: int = 100, stream: str = "speed") -> OutFrame:
    return OutFrame(FrameKey(stream, 7, number), b"x" * size, "type", 3, None)


def kept(directory: Path) -> dict[str, int]:
    """Name → bytes of what is there."""
    folder = directory / QUARANTINE_NAME
    return (
        {entry.name: entry.stat().st_size for entry in folder.iterdir() if entry.is_file()}
        if folder.exists()
        else {}
    )


def keep(quarantine: Quarantine, each: OutFrame, at: int) -> None:
    """Keep it, as if nothing else had happened in its second."""
    quarantine.keep(each, why="why", now_ms=at)


def test_a_frame_is_kept_with_what_it_is_and_why_and_byte_for_byte(tmp_path: Path) -> None:
    Quarantine(tmp_path).keep(
        OutFrame(FrameKey("speed", 7, 3), b'{"a":\n1}\0', "type", 5, None),
        why="too large",
        now_ms=1234,
    )
    head, _, payload = (tmp_path / QUARANTINE_NAME / "speed.7.3").read_bytes().partition(b"\n")
    assert payload == b'{"a":\n1}\0'
    said = {
        "stream": "speed",
        "epoch": 7,
        "frame": 3,
        "readings": 5,
        "content_type": "type",
        "why": "too large",
        "at": 1234,
    }
    assert orjson.loads(head) == said


def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    keep(Quarantine(tmp_path / "a" / "b"), frame(1), 0)
    folder = tmp_path / "a" / "b" / QUARANTINE_NAME
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "speed.7.1").stat().st_mode) == 0o600


def test_a_frame_that_is_kept_twice_is_there_once(tmp_path: Path) -> None:
    for _ in range(2):
        keep(Quarantine(tmp_path), frame(1), 0)
    assert list(kept(tmp_path)) == ["speed.7.1"]


@settings(max_examples=examples(20))
@given(st.lists(st.integers(1, 900), max_size=25), st.integers(1000, 4000))
def test_the_bound_holds_and_what_went_was_older_than_what_stayed(
    sizes: list[int], bytes_max: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        quarantine = Quarantine(directory, bytes_max=bytes_max)
        for number, size in enumerate(sizes):
            keep(quarantine, frame(number, size), 0)
            os.utime(directory / QUARANTINE_NAME / f"speed.7.{number}", ns=(number, number))
            assert sum(kept(directory).values()) <= bytes_max
        numbers = sorted(int(each.rpartition(".")[2]) for each in kept(directory))
        assert numbers == list(range(len(sizes) - len(numbers), len(sizes)))


def test_just_the_bound_is_kept_and_one_byte_more_makes_room(tmp_path: Path) -> None:
    keep(Quarantine(tmp_path), frame(1), 0)
    (size,) = kept(tmp_path).values()
    os.utime(tmp_path / QUARANTINE_NAME / "speed.7.1", ns=(1, 1))
    keep(Quarantine(tmp_path, bytes_max=2 * size), frame(2), 0)
    assert sorted(kept(tmp_path)) == ["speed.7.1", "speed.7.2"]
    os.utime(tmp_path / QUARANTINE_NAME / "speed.7.2", ns=(2, 2))
    keep(Quarantine(tmp_path, bytes_max=3 * size - 1), frame(3), 0)
    assert sorted(kept(tmp_path)) == ["speed.7.2", "speed.7.3"]


def test_a_frame_larger_than_the_bound_is_kept_alone(tmp_path: Path) -> None:
    """The latest is shown in any case: one packet is at most a megabyte."""
    quarantine = Quarantine(tmp_path, bytes_max=500)
    for number, size in ((1, 100), (2, 1000)):
        keep(quarantine, frame(number, size), 0)
    assert list(kept(tmp_path)) == ["speed.7.2"]


def test_a_folder_that_somebody_made_there_is_left_alone_and_keeps_nothing_out(
    tmp_path: Path,
) -> None:
    folder = tmp_path / QUARANTINE_NAME / "looked at"
    folder.mkdir(parents=True)
    (folder / "speed.7.1").write_bytes(b"x" * 10_000)
    quarantine = Quarantine(tmp_path, bytes_max=1000)
    for number in range(5):
        keep(quarantine, frame(number, 500), 0)
    assert list(kept(tmp_path)) == ["speed.7.4"]
    assert (folder / "speed.7.1").exists()


def test_a_link_that_leads_nowhere_keeps_nothing_out(tmp_path: Path) -> None:
    (tmp_path / QUARANTINE_NAME).mkdir()
    (tmp_path / QUARANTINE_NAME / "gone").symlink_to("nowhere")
    keep(Quarantine(tmp_path, bytes_max=1000), frame(1), 0)
    assert "speed.7.1" in kept(tmp_path)


def test_a_place_that_cannot_be_written_is_an_error_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / QUARANTINE_NAME).write_text("a file")
    with pytest.raises(OSError, match=QUARANTINE_NAME):
        keep(Quarantine(tmp_path), frame(1), 0)
