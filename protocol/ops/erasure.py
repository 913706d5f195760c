"""An erasure, as a row of `ew.erasures`: what to remove for good, and its progress.

One operations server works on a row at a time (`worker`), and writes it after every step, so
another goes on where one died. The lake and the analysis keep files of their own: each looks at the
row, does its part when its step has come, and says so in a row beside it, `id|part`.

What came after the request is not erased: a stream that is sent to again starts from nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from edgewake.protocol import topics
from edgewake.protocol.sketches import sketch

OPEN_MAX: Final = 20
"""Erasures that are under way; one more is refused. Each reads whole topics, one after another."""
ROWS_MAX: Final = 500
"""Erasures that are remembered; beyond it the oldest that has ended is forgotten."""

TELLING: Final = (topics.LATE, topics.SHED, topics.stream_topic(sketch.STREAM))
"""Topics whose readings tell of others' streams and queries, by name."""
NO_NAMES: Final = frozenset({"of_field", "kind", "sketch"})
"""Fields of them whose texts name none: a field may be called as a stream is."""


class Step(StrEnum):
    """What is done now; in this order, and a stream has other steps than a device."""

    QUERIES = "queries"
    """Queries that read the stream are removed."""
    SCAN = "scan"
    """Where the last of it lies in each topic."""
    TOPICS = "topics"
    """The topics of the stream and of those queries are deleted, its row in the catalogue too."""
    LAKE = "lake"
    """Parquet of readings, results, hours and days."""
    LOG = "log"
    """Topics that hold others' readings too are cut behind the last of it."""
    SUMMARIES = "summaries"
    """Their rows are removed, here and on all operations servers."""
    SETTLE = "settle"
    """The analysis may have a minute of it in hand; then once more."""
    ANALYSIS = "analysis"
    """Parquet of minutes."""
    DONE = "done"


STEPS: Final[dict[str, tuple[Step, ...]]] = {
    "stream": (
        Step.QUERIES, Step.SCAN, Step.TOPICS, Step.LAKE, Step.LOG, Step.SUMMARIES, Step.SETTLE,
        Step.ANALYSIS, Step.DONE,
    ),
    "device": (Step.SCAN, Step.LAKE, Step.SETTLE, Step.LOG, Step.SUMMARIES, Step.DONE),
}  # fmt: skip
"""For a device the lake comes before the log is cut: it must have others' readings by then."""


class Cut(BaseModel):
    """The last of it in a partition that holds others' records, too."""

    model_config = ConfigDict(frozen=True)

    topic: str
    topic_id: str
    """Kafka's: a topic of that name that was made later is left alone."""
    partition: int
    through: int
    """The offset behind the last of it."""
    records: int
    """Records of it."""
    others: int
    """Records of others before its last one: they leave Kafka with it."""


class Erasure(BaseModel):
    """An erasure (key on `ew.erasures`: id)."""

    model_config = ConfigDict(frozen=True)

    id: str
    what: Literal["stream", "device"]
    """A stream with all that was made of it, or the readings of one device in all streams."""
    name: str
    queries: tuple[str, ...] = ()
    """Removed with the stream: they read it, or read results of one that does."""
    asked_at: int
    """ms since 1970 UTC; what came later stays."""
    asked_by: str
    step: Step
    detail: str = ""
    """What it waits for."""
    topics: dict[str, str] = {}
    """Topics to delete, as they were when it was asked for: name → Kafka's id."""
    cuts: tuple[Cut, ...] = ()
    deleted_at: int | None = None
    """When its topics were deleted, ms; later rows in the lake belong to the stream that started
    afterwards."""
    has_lake: bool = False
    has_minutes: bool = False
    """The analysis summed it up, so it has minutes of it in Parquet."""
    summaries: int = 0
    """Rows of summaries that were removed."""
    files: int = 0
    """Files of the lake that held some of it: deleted, or rewritten without it."""
    rows: int = 0
    """Rows that were in them."""
    left: tuple[str, ...] = ()
    """What is not gone when it is done, each with what becomes of it, in words."""
    worker: str = ""
    """The operations server that works on it."""
    updated_at: int = Field(ge=0)

    @property
    def is_open(self) -> bool:
        """Is there something left to do?"""
        return self.step is not Step.DONE

    @property
    def following(self) -> Step:
        """The step after this one."""
        steps = STEPS[self.what]
        return steps[steps.index(self.step) + 1]


class Report(BaseModel):
    """What a part did of an erasure (key on `ew.erasures`: id|part)."""

    model_config = ConfigDict(frozen=True)

    files: int = 0
    rows: int = 0
    at: int


def report_key(erasure: str, part: str) -> str:
    """The key of a part's report."""
    return f"{erasure}|{part}"
