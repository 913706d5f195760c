"""Decides what a lane's failure means and what to do about it. Pure.

supervision/supervision.py acts on it.

A query is at fault only if its own computing fails twice for the same readings, and fails again
when it runs alone over them. Any other failure (a full disk, Kafka away, a lost worker) is waited
for, and its cause reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeVar

from edgewake.cloud.analysis.results.batch_commit import Offsets

T = TypeVar("T")


class Fault(StrEnum):
    """The side at fault for a failure."""

    SURROUNDINGS = "surroundings"
    """A disk, Kafka or a worker: it is waited for, and no query is blamed."""
    FENCED = "fenced"
    """Another process computes this lane: this one must end."""
    STATE_LOST = "state_lost"
    """Files of the state are missing or torn: it can be built again from the stream."""
    OVERTAKEN = "overtaken"
    """Retention removed readings before they were computed: the rest is computed, and its rows say
    that they may lack some."""
    SUSPECT = "suspect"
    """An exception while readings were computed: possibly a query's fault."""


class Step(StrEnum):
    """The reaction to a failure."""

    RETRY = "retry"
    END = "end"
    REBUILD = "rebuild"
    BISECT = "bisect"


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a lane ended by itself."""

    fault: Fault
    cause: str
    reached: Offsets | None = None
    """The end of the failed batch; None where no batch had begun."""
    batch: int = -1


@dataclass(frozen=True, slots=True)
class Trouble:
    """The failures of a lane since it last finished a batch."""

    failures: int = 0
    suspected: Offsets | None = None
    """End of the batch that last failed with a suspicion."""
    state_lost: bool = False
    """Could the state not be loaded the last time?"""


_SURROUNDINGS: Final = (
    "java.io.",
    "java.nio.",
    "java.net.",
    "java.util.concurrent.TimeoutException",
    "java.util.concurrent.CancellationException",
    "java.lang.OutOfMemoryError",
    "org.rocksdb.",
    "org.apache.kafka.",
    "org.apache.hadoop.",
    "org.apache.spark.sql.execution.streaming.",
    "org.apache.spark.shuffle.",
    "org.apache.spark.storage.",
)
"""Prefixes of Java's names of exceptions that no query's text can cause."""
_OVERTAKEN: Final = ("OffsetOutOfRange", "failOnDataLoss", "data may have been lost", "DATA_LOSS")
_STATE_LOST: Final = (
    "CANNOT_LOAD_STATE_STORE",
    "CANNOT_READ_STREAMING_STATE_FILE",
    "STATE_STORE_CANNOT_READ",
)
_NO_SPACE: Final = "No space left"
_NO_ROOM: Final = ("OutOfMemory", "spark.driver.maxResultSize")
"""Messages of a batch that was too large: a smaller one is tried (checkpoints/unfinished.py)."""
_LOST_WORKER: Final = ("ExecutorLostFailure", "Executor heartbeat timed out", "Python worker")


def classify(causes: Sequence[str]) -> Fault:
    """Judge an exception of Spark by its chain of causes, each written as `class: message`."""
    if any(word in cause for cause in causes for word in _OVERTAKEN):
        return Fault.OVERTAKEN
    if any(word in cause for cause in causes for word in _STATE_LOST) and not any(
        _NO_SPACE in cause for cause in causes
    ):
        return Fault.STATE_LOST
    if any(cause.startswith(_SURROUNDINGS) for cause in causes) or any(
        word in cause for cause in causes for word in (*_LOST_WORKER, *_NO_ROOM)
    ):
        return Fault.SURROUNDINGS
    return Fault.SUSPECT


def step(trouble: Trouble, failure: Failure) -> tuple[Trouble, Step]:
    """The reaction to a failure, and the failures to remember."""
    lost = failure.fault is Fault.STATE_LOST
    after = replace(trouble, failures=trouble.failures + 1, state_lost=lost)
    if failure.fault is Fault.FENCED:
        return after, Step.END
    if failure.fault is Fault.OVERTAKEN or (lost and trouble.state_lost):
        return after, Step.REBUILD
    if failure.fault is not Fault.SUSPECT or failure.reached is None:
        return after, Step.RETRY
    if trouble.suspected == failure.reached:
        return after, Step.BISECT
    return replace(after, suspected=failure.reached), Step.RETRY


def find_failing(queries: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Bisect a batch's queries; return those that fail on their own.

    It takes about two runs for each doubling of their number, for each of them.
    """
    if not queries or not fails(queries):
        return []
    if len(queries) == 1:
        return list(queries)
    middle = len(queries) // 2
    return [*find_failing(queries[:middle], fails), *find_failing(queries[middle:], fails)]
