"""A query that takes the analysis down whenever it is planned is found, and the others start."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.analysis.supervision.start_record import StartRecord


def test_who_was_begun_twice_and_never_ran_is_taken_out_at_the_third_start(tmp_path: Path) -> None:
    path = tmp_path / "kept" / "starts.json"
    for _ in range(2):
        record = StartRecord(path)
        assert record.taken_out() is None
        record.begun(["old@1", "bad@5"])
        record.ran(["old@1"])  # the process is killed here
    assert StartRecord(path).taken_out() == "bad@5"
    assert StartRecord(path).taken_out() is None, "once"


def test_of_several_the_youngest_goes_first_until_the_rest_starts(tmp_path: Path) -> None:
    path = tmp_path / "starts.json"
    labels, out = ["a@1", "b@2", "c@3"], []
    for _ in range(6):
        record = StartRecord(path)
        taken = record.taken_out()
        out += [taken] if taken is not None else []
        record.begun([label for label in labels if label not in out])
        if "b@2" in out:  # it was the one
            record.ran([label for label in labels if label not in out])
    assert out == ["c@3", "b@2"]


def test_who_has_run_is_never_suspected_and_a_clean_end_suspects_nobody(tmp_path: Path) -> None:
    path = tmp_path / "starts.json"
    first = StartRecord(path)
    first.begun(["a@1"])
    first.ran(["a@1"])
    for _ in range(3):
        record = StartRecord(path)
        assert record.taken_out() is None
        record.begun(["a@1", "b@2"])
        record.end()


def test_a_query_that_is_registered_no_more_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "starts.json"
    for _ in range(2):
        record = StartRecord(path)
        record.begun(["a@1"])
        record.keep([])
    assert StartRecord(path).taken_out() is None


@pytest.mark.parametrize("left", [b"", b"{", b"[1]", b"\xff"])
def test_half_a_file_suspects_nobody(tmp_path: Path, left: bytes) -> None:
    path = tmp_path / "starts.json"
    path.write_bytes(left)
    record = StartRecord(path)
    assert record.taken_out() is None
    record.begun(["a@1"])
    assert StartRecord(path).taken_out() is None


@given(st.lists(st.sampled_from(["kill", "end", "run"]), max_size=12))
def test_two_kills_without_a_run_between_are_needed(steps: list[str]) -> None:
    import tempfile

    kills, out = 0, False
    with tempfile.TemporaryDirectory() as folder:
        for step in steps:
            record = StartRecord(Path(folder) / "starts.json")
            out = record.taken_out() is not None
            assert out == (kills >= 2)
            if out:
                return None
            record.begun(["a@1"])
            if step == "run":
                return record.ran(["a@1"])
            if step == "end":
                record.end()
            kills = kills + 1 if step == "kill" else 0
    return None
