"""Spark's checkpoint of a lane: reads it, repairs it after a power cut, and removes it.

    offsets/N   where batch N ends; written before it runs       commits/N   batch N is done
    state/O/P/  files of operator O, partition P; those of version N+1 are the state after batch N

Spark syncs none of these files. After a power cut the newest ones may be missing, empty or torn,
and Spark then refuses to start, or runs a new batch under an old number. `mend` removes what is
torn at the end and every state that belongs to a batch that is not done; the batch is replanned,
and batch_commit says what of it is new. What is torn before the end cannot be mended: the state is
built again.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.results.batch_commit import Offsets, is_ahead
from edgewake.cloud.analysis.spark.settings import StateStore, is_local
from edgewake.cloud.queries.lane_kind import APART
from edgewake.protocol.errors import EdgewakeError, LocalError, Unavailable

_HALF_WRITTEN: Final = ".*.tmp*"
"""What Spark writes until it gives a file its name; of one that was killed they stay, and Spark
never looks at them again."""
_STATE_FILE: Final = re.compile(r"(\d+)(?:_[^.]*)?\.(?:changelog|zip|delta|snapshot)")


def offsets_of(checkpoint: Path, batch: int) -> Offsets:
    """Where a batch ends. Raises LocalError."""
    path = checkpoint / "offsets" / str(batch)
    found = _offsets(path)
    if found is None:
        raise LocalError(f"{path}: expected a batch's offsets as Spark writes them")
    return found


def sync_offsets(checkpoint: Path, batch: int) -> None:
    """Sync a batch's offsets to disk before its results are committed.

    Otherwise a power cut could lose what they were made of.
    """
    for path, flags in (
        (checkpoint / "offsets" / str(batch), os.O_RDONLY),
        (checkpoint / "offsets", os.O_RDONLY | os.O_DIRECTORY),
    ):
        descriptor = os.open(path, flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def has_begun(checkpoint: Path) -> bool:
    """Is there a state to go on from?"""
    return any((checkpoint / "offsets").glob("[0-9]*"))


def is_done(checkpoint: Path, batch: int) -> bool:
    """Has Spark noted the end of the batch? Otherwise it runs it again at the next start."""
    return (checkpoint / "commits" / str(batch)).exists()


def unfinished(checkpoint: Path) -> int | None:
    """The batch that is planned and not done, if any."""
    last = max(_batches(checkpoint / "offsets"), default=-1)
    return last if last > max(_batches(checkpoint / "commits"), default=-1) else None


def forget_plan(checkpoint: Path, batch: int) -> None:
    """Forget the plan of an unfinished batch: Spark plans it again at the next start."""
    if batch == 0:
        _remove_state(checkpoint)
    _remove(
        [
            checkpoint / "offsets" / str(batch),
            *(path for path in _state_files(checkpoint) if _version(path) > batch),
        ]
    )


def offsets_if_known(checkpoint: Path, batch: int) -> Offsets | None:
    """As `offsets_of`; None where the note of them is not there or is torn."""
    try:
        return offsets_of(checkpoint, batch)
    except EdgewakeError:
        return None


def check_workers(config: AnalysisConfig, checkpoint: Path, batch: int) -> None:
    """Runs before anything of the batch is emitted.

    Raises Unavailable where a worker keeps its state elsewhere: it would be lost with it.
    """
    if not is_local(config.master):
        lost = partition_without_state(checkpoint, batch, config.state_partitions)
        if lost is not None:
            raise Unavailable(
                f"{lost}: a worker wrote the state of batch {batch} elsewhere: shared_dir must be "
                "the same folder for all"
            )


def partition_without_state(checkpoint: Path, batch: int, partitions: int) -> Path | None:
    """Return a partition whose state after the batch is not here; None: all are.

    A worker wrote it where only that worker sees it.
    """
    for operator in (checkpoint / "state").glob("[0-9]*"):
        for partition in range(partitions):
            folder = operator / str(partition)
            if not any(
                _STATE_FILE.fullmatch(path.name) for path in folder.glob(f"{batch + 1}[._]*")
            ):
                return folder
    return None


def mend(checkpoint: Path, emitted: Offsets) -> str | None:
    """Make a checkpoint one that Spark can go on from, or remove it.

    Returns what was wrong, None where nothing was.

    It is removed where it is damaged before its end, and where it is done with more than was
    `emitted`: what its state has beyond that would never be said. Files that were never finished go
    without a word: any kill may leave some.
    """
    if not checkpoint.exists():
        return None
    for path in checkpoint.rglob(_HALF_WRITTEN):
        path.unlink()
    planned, done = _batches(checkpoint / "offsets"), _batches(checkpoint / "commits")
    kept_planned = _without_torn_end(
        planned, lambda batch: _offsets(checkpoint / "offsets" / str(batch)) is not None
    )
    last_planned = max(kept_planned, default=-1)
    kept_done = _without_torn_end(
        done,
        lambda batch: batch <= last_planned and _is_commit(checkpoint / "commits" / str(batch)),
    )
    last_done = max(kept_done, default=-1)
    why = _damage(checkpoint, kept_planned, last_planned, last_done)
    if why is None and last_done >= 0 and is_ahead(offsets_of(checkpoint, last_done), emitted):
        why = "it is ahead of what was emitted"
    if why is not None:
        shutil.rmtree(checkpoint)
        return f"removed: {why}"
    if last_done < 0:
        _remove_state(checkpoint)
    torn = [checkpoint / "offsets" / str(batch) for batch in planned if batch not in kept_planned]
    torn += [checkpoint / "commits" / str(batch) for batch in done if batch not in kept_done]
    if torn:
        torn += [path for path in _state_files(checkpoint) if _version(path) > last_done + 1]
    _remove(torn)
    return f"{len(torn)} files after batch {last_done} removed" if torn else None


def _remove_state(checkpoint: Path) -> None:
    """Remove the state of a checkpoint in which no batch is done.

    Spark refuses for ever to plan the first one beside any state.
    """
    shutil.rmtree(checkpoint / "state", ignore_errors=True)


def remove_other_format(checkpoint: Path, form: int, store: StateStore) -> bool:
    """Remove a checkpoint whose state has other columns than ours or is in another store.

    It is built again from the stream.

    Spark would refuse other columns. It would go on with the store that the checkpoint was begun
    with, whatever its settings say now. The file `format` says which columns a lane's state has
    and, where it is not `memory`, its store; without the file the columns are those of format 1.
    """
    mark = checkpoint / "format"
    ours = str(form) if store == "memory" else f"{form} {store}"
    found = mark.read_text("ascii") if mark.exists() else None
    is_other = checkpoint.exists() and (found or "1") != ours
    if is_other:
        shutil.rmtree(checkpoint)
    checkpoint.mkdir(parents=True, exist_ok=True)
    if found != ours:  # a kill within the writing would cost the whole checkpoint
        mark.write_text(ours, "ascii")
    return is_other


def copied(checkpoint: Path, other: Path, identity: str) -> None:
    """Copy a checkpoint to `other`, for another Spark query whose UUID is `identity`.

    Raises OSError.

    No Spark query may run on `checkpoint`. Those who keep house there may still be at it: what they
    write last names what they wrote before, and lies higher up, so it is listed first; what they
    remove the last batch does not need.
    """
    shutil.rmtree(other, ignore_errors=True)
    listed = sorted(checkpoint.rglob("*"), key=lambda path: len(path.parts))
    other.mkdir(parents=True)
    for path in listed:
        place = other / path.relative_to(checkpoint)
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        else:
            with suppress(FileNotFoundError):
                shutil.copyfile(path, place)
    (other / ".metadata.crc").unlink(missing_ok=True)
    (other / "metadata").write_bytes(orjson.dumps({"id": identity}))


def remove_unused(
    folder: Path, *, queried: Container[str], kinds: Container[str], isolated: Container[str] = ()
) -> list[tuple[str, str]]:
    """Remove the states of lanes that nobody needs; return their places and lanes.

    They are of streams that no query reads (running or not), or of an unknown kind. `folder`:
    <place>/<lane>, each a checkpoint; `isolated`: isolated queries (label).
    """
    removed = []
    for checkpoint in list(folder.glob("*/*")):
        place, lane = checkpoint.parts[-2:]
        streams, _, label = place.partition(APART)
        stream = streams.partition("+")[0]  # of two streams the first is the query's
        if stream not in queried or lane not in kinds or (label and label not in isolated):
            shutil.rmtree(checkpoint, ignore_errors=True)
            with suppress(OSError):  # another lane of the place has its own there
                checkpoint.parent.rmdir()
            removed.append((place, lane))
    return sorted(removed)


def _remove(files: Iterable[Path]) -> None:
    for path in files:
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def _damage(
    checkpoint: Path, planned: Iterable[int], last_planned: int, last_done: int
) -> str | None:
    """Why Spark could not go on from these files."""
    if not _is_json(checkpoint / "metadata"):
        return "its metadata is torn" if last_planned >= 0 else None
    if any(_offsets(checkpoint / "offsets" / str(batch)) is None for batch in planned):
        return "a batch before the last one is torn"
    return (
        None
        if last_planned - last_done in (0, 1)
        else f"batch {last_planned} is planned and {last_done} done"
    )


def _without_torn_end(batches: list[int], is_whole: Callable[[int], bool]) -> set[int]:
    kept = sorted(batches)
    while kept and not is_whole(kept[-1]):
        kept.pop()
    return set(kept)


def _batches(folder: Path) -> list[int]:
    return (
        [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
        if folder.exists()
        else []
    )


def _state_files(checkpoint: Path) -> list[Path]:
    return [
        path for path in (checkpoint / "state").glob("*/*/*") if _STATE_FILE.fullmatch(path.name)
    ]


def _version(path: Path) -> int:
    match = _STATE_FILE.fullmatch(path.name)
    assert match is not None
    return int(match.group(1))


def _offsets(path: Path) -> Offsets | None:
    """The source's line, which is the last: {topic: {partition: offset}}.

    None for a file that is incomplete.
    """
    try:
        _, _, *sources = path.read_bytes().splitlines()
        return {
            str(topic): {int(partition): int(offset) for partition, offset in partitions.items()}
            for topic, partitions in orjson.loads(sources[-1]).items()
        }
    except (OSError, ValueError, IndexError, AttributeError, TypeError):
        return None


def _is_commit(path: Path) -> bool:
    lines = path.read_bytes().splitlines()
    return len(lines) >= 2 and _parses(lines[1])


def _is_json(path: Path) -> bool:
    return path.exists() and _parses(path.read_bytes())


def _parses(text: bytes) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except ValueError:
        return False
