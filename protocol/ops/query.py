"""A continuous query's registration and its progress, as rows of `ew.queries` and `ew.progress`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict

from edgewake.protocol.topics import query_topic

QUERY_CHARS_MAX: Final = 20_000
"""Characters of a query file. A longer one is refused, where it is registered and where it is
read."""


class Registration(BaseModel):
    """A registered query (key on `ew.queries`: name; a tombstone removes it)."""

    model_config = ConfigDict(frozen=True)

    name: str
    text: str
    """The whole .sql file, header included."""
    paused: bool = False
    registered_at: int
    """ms since 1970 UTC; tells this registration from others of the name."""
    claim: str = ""
    """What stands for it on `ew.streams`, where it must have its name before it is registered
    (`claim_of`)."""

    @property
    def label(self) -> str:
        """Name and registration: two registrations of a name are two queries for the analysis."""
        return f"{self.name}@{self.registered_at}"

    @property
    def topic(self) -> str:
        """Kafka topic of its results."""
        return query_topic(self.name, self.registered_at)


def claim_of(registered_at: int, writer: str) -> str:
    """A claim to a name that no other writer makes.

    Two may register a name in the same millisecond.
    """
    return f"{registered_at}-{writer}"


def claimed_at(claim: str) -> int | None:
    """The time at which a claim was made, ms since 1970; None for a claim of another form."""
    text = claim.partition("-")[0]
    return int(text) if text.isascii() and text.isdigit() else None


class QueryState(StrEnum):
    """The state of a query."""

    STARTING = "starting"
    RUNNING = "running"
    RETRYING = "retrying"
    """Something that it needs is away or full, `detail` says what; it runs again by itself."""
    PAUSED = "paused"
    REFUSED = "refused"
    FAILED = "failed"


class Reached(BaseModel):
    """The progress of a query in one of the streams that it reads."""

    model_config = ConfigDict(frozen=True)

    offsets: dict[int, int] = {}
    """Partition of the stream's topic → first offset not yet computed."""
    joined_at_offsets: dict[int, int] = {}
    """Partition of the stream's topic → first offset that this query was asked; what is before it
    was computed without the query. A partition that is missing here was computed from its
    beginning."""


class Progress(BaseModel):
    """The progress of a query (key on `ew.progress`: query).

    Written in the same transaction as the batch's results.
    """

    model_config = ConfigDict(frozen=True)

    query: str
    stream: str
    """The stream of FROM."""
    state: QueryState
    registered_at: int | None = None
    """Which registration this is about; None where it could not be read."""
    quarantined: bool = False
    """It cannot compute some readings (state failed): it stays out until it is registered again, or
    paused and resumed."""
    keys: tuple[str, ...] = ()
    """Its group columns: with the window they name a row, whose highest revision is the truth."""
    measures: dict[str, tuple[str, ...]] = {}
    """Column → the fields, as `stream.field`, whose values it has and whose unit is its own."""
    detail: str = ""
    """Why it was refused or failed, and what to do."""
    batch: int = -1
    """The `revision` of its latest rows."""
    watermark: int | None = None
    """Event time in ms up to which every window is final."""
    reached: dict[str, Reached] = {}
    """By stream: all that the query reads, but for the tables that each reading is joined with."""
    lag: int | None = None
    """Records of these streams not yet computed."""
    readings_per_s: float | None = None
    state_rows: int | None = None
    """Rows of state that Spark keeps of open windows, of all queries of its lane together; None
    where Spark keeps none, does not count them (RocksDB), or said nothing yet."""
    state_bytes: int | None = None
    """The memory that these take; None where Spark keeps none, or said nothing yet."""
    late: int = 0
    """Readings counted as late since the query was registered."""
    kept: float = 1.0
    """The share of readings that the query takes now; less than 1 only where its header says
    `shed`."""
    shed: int = 0
    """Readings left out since the query was registered, one for each window that it belongs to."""
    isolated: bool = False
    """It delayed others, so it has a lane of its own until it is registered again; `detail` says
    why."""
    stands: bool = False
    """Its event time waits for something, so that no window becomes final; `detail` says for
    what."""
    updated_at: int
    """ms since 1970 UTC."""


def units_of(
    measures: Mapping[str, Sequence[str]], unit_of: Callable[[str, str], str]
) -> dict[str, str]:
    """Column → unit, of those whose fields all have the same one.

    `unit_of(stream, field)`: as the catalogue says now; empty where it is not known.
    """
    found = {}
    for name, sources in measures.items():
        units = {unit_of(*one.split(".", 1)) for one in sources}
        if len(units) == 1 and "" not in units:
            found[name] = units.pop()
    return found
