"""What of a micro-batch is new, and which checkpoint can be gone on from."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.analysis.checkpoints.checkpoint import (
    forget_plan,
    mend,
    offsets_of,
    remove_unused,
)
from edgewake.cloud.analysis.plan.combined_topics import CombinedTopics
from edgewake.cloud.analysis.results.batch_commit import Novelty, furthest, novelty

EMITTED = {"a": {0: 5, 1: 7}}


@pytest.mark.parametrize(
    ("reached", "expected"),
    [
        ({"a": {0: 5, 1: 7}}, Novelty.NONE),
        ({"a": {0: 5, 1: 7, 2: 0}}, Novelty.NONE),
        ({"a": {0: 4, 1: 7}}, Novelty.NONE),
        ({"a": {0: 6, 1: 7}}, Novelty.ALL),
        ({"a": {0: 5, 1: 7}, "b": {0: 1}}, Novelty.ALL),
        ({"a": {0: 9, 1: 6}}, Novelty.MIXED),
        ({"a": {0: 9}}, Novelty.MIXED),
    ],
)
def test_a_batch_is_compared_with_what_was_emitted(
    reached: dict[str, dict[int, int]], expected: Novelty
) -> None:
    assert novelty(EMITTED, reached) is expected


def test_what_was_emitted_never_goes_back() -> None:
    assert furthest(EMITTED, {"a": {0: 9, 1: 6}, "b": {0: 1}}) == {"a": {0: 9, 1: 7}, "b": {0: 1}}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Batches 0 to 3 are done and emitted."""
    root = tmp_path / "checkpoint"
    for folder in ("offsets", "commits", "state/0/0"):
        (root / folder).mkdir(parents=True)
    (root / "metadata").write_text('{"id":"x"}')
    for batch in range(4):
        (root / "offsets" / str(batch)).write_text(
            f'v1\n{{"batchWatermarkMs":0}}\n{{"s":{{"0":{batch + 1}}}}}'
        )
        (root / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        (root / "state/0/0" / f"{batch + 1}.changelog").write_text("x")
    return root


def left(root: Path) -> tuple[list[str], list[str], list[str]]:
    offsets, commits, state = (
        sorted(path.name for path in (root / name).glob("*"))
        for name in ("offsets", "commits", "state/0/0")
    )
    return offsets, commits, state


ALL_OF_IT = {"s": {0: 4}}


def test_a_whole_checkpoint_is_left_alone(checkpoint: Path, tmp_path: Path) -> None:
    before = left(checkpoint)
    assert mend(checkpoint, ALL_OF_IT) is None
    assert mend(tmp_path / "none", {}) is None
    assert left(checkpoint) == before


def test_what_a_killed_spark_had_half_written_goes_and_nothing_else(checkpoint: Path) -> None:
    before = left(checkpoint)
    half = [
        checkpoint / place
        for place in (
            "offsets/.4.a1.tmp",
            "commits/.3.a1.tmp",
            "state/0/0/.5.changelog.a1.tmp",
            ".metadata.a1.tmp",
        )
    ]
    for path in half:
        path.write_text("v1")
    assert left(checkpoint) != before
    assert mend(checkpoint, ALL_OF_IT) is None
    assert left(checkpoint) == before
    assert [path for path in half if path.exists()] == []


@pytest.mark.parametrize("lost", ["gone", "empty", "torn"])
@pytest.mark.parametrize("folder", ["offsets", "commits"])
def test_what_is_torn_at_the_end_goes_with_the_state_of_the_batch(
    checkpoint: Path, folder: str, lost: str
) -> None:
    newest = checkpoint / folder / "3"
    if lost == "gone":
        newest.unlink()
    else:
        newest.write_text("" if lost == "empty" else "v1\n{")
    mend(checkpoint, ALL_OF_IT)
    planned = ["0", "1", "2"] if folder == "offsets" else ["0", "1", "2", "3"]
    state = [
        f"{version}.changelog"
        for version in ((1, 2, 3, 4) if (folder, lost) == ("commits", "gone") else (1, 2, 3))
    ]
    assert left(checkpoint) == (planned, ["0", "1", "2"], state), (
        "a batch that was only not noted as done runs again as it is"
    )


def test_a_checkpoint_that_is_damaged_before_its_end_is_removed(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "1").write_text("")
    assert "before the last" in str(mend(checkpoint, ALL_OF_IT))
    assert not checkpoint.exists()


def test_a_checkpoint_with_two_batches_not_done_is_removed(checkpoint: Path) -> None:
    (checkpoint / "commits" / "3").unlink()
    (checkpoint / "commits" / "2").unlink()
    assert mend(checkpoint, ALL_OF_IT) == "removed: batch 3 is planned and 1 done"


def test_a_checkpoint_that_is_ahead_of_what_was_emitted_is_removed(checkpoint: Path) -> None:
    """Its state holds readings that no batch will bring again."""
    assert mend(checkpoint, {"s": {0: 3}}) == "removed: it is ahead of what was emitted"


def test_where_no_batch_is_done_no_state_stays(checkpoint: Path) -> None:
    """Spark refuses to plan the first batch beside one, at each start."""
    for folder in ("offsets", "commits"):
        for path in (checkpoint / folder).iterdir():
            path.unlink()
    mend(checkpoint, {})
    assert not (checkpoint / "state").exists()
    (checkpoint / "state" / "0" / "_metadata").mkdir(parents=True)
    (checkpoint / "offsets" / "0").write_bytes(b"v1\n{}\n{}")
    forget_plan(checkpoint, 0)
    assert not (checkpoint / "state").exists()


def test_a_checkpoint_without_metadata_is_removed(checkpoint: Path) -> None:
    (checkpoint / "metadata").write_text("")
    assert mend(checkpoint, ALL_OF_IT) == "removed: its metadata is torn"


def test_offsets_are_read_topic_by_topic(checkpoint: Path) -> None:
    assert offsets_of(checkpoint, 3) == ALL_OF_IT


def test_states_that_nobody_needs_are_removed_and_those_of_kinds_that_are_no_more(
    tmp_path: Path,
) -> None:
    for place in ("a/plain", "a/summary", "b/plain", "b/sketch", "gone/plain"):
        (tmp_path / place / "offsets").mkdir(parents=True)
    assert remove_unused(tmp_path, queried={"a"}, kinds={"plain", "sketch"}) == [
        ("a", "summary"), ("b", "plain"), ("b", "sketch"), ("gone", "plain"),
    ]  # fmt: skip
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*")) == ["a/plain"]
    assert remove_unused(tmp_path / "nowhere", queried=(), kinds=()) == []


def test_the_state_of_a_lane_of_two_streams_goes_with_the_queries_of_the_first(
    tmp_path: Path,
) -> None:
    for place in ("a+b", "b+a"):
        (tmp_path / place / "pair").mkdir(parents=True)
    assert remove_unused(tmp_path, queried={"a"}, kinds={"pair"}) == [("b+a", "pair")]
    assert (tmp_path / "a+b" / "pair").exists()


@given(st.integers(1, 3), st.integers(0, 200), st.integers(0, 2))
def test_a_partition_has_one_number_whichever_topic_it_is_of(
    topics: int, partition: int, which: int
) -> None:
    sources = CombinedTopics(tuple("abc"[:topics]))
    name = "abc"[which % topics]
    assert sources.place(sources.number(name, partition)) == (name, partition)
    assert sources.flat({name: {partition: 7}, "other": {0: 1}}) == {
        sources.number(name, partition): 7
    }
