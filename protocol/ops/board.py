"""A board: cards that a person put together, as it stands on `ew.boards` (key: name)."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from edgewake.protocol.names import DEVICE_PATTERN, FIELD_PATTERN, STREAM_PATTERN
from edgewake.protocol.ops.device_note import Group

COLUMNS: Final = 12
"""Columns of a board's grid."""
ROWS_MAX: Final = 200
"""Rows of a board's grid."""
CARDS_MAX: Final = 40
"""Cards of a board: more is another board."""

LINES_MAX: Final = 6
"""Lines of one chart: as many colours of series as the pages have."""

MEMBERS_MAX: Final = 1_000
"""Devices of a group that a card shows, the first by name: a page draws no more of one stream."""
Kind = Literal["value", "gauge", "state", "chart", "bars", "top", "table", "map", "text"]
WITH_FIELD: Final = frozenset({"value", "gauge", "state", "chart", "bars", "top"})
"""Kinds that show one field."""

Name = Annotated[str, StringConstraints(pattern=f"^{STREAM_PATTERN.pattern}$")]
FieldName = Annotated[str, StringConstraints(pattern=f"^{FIELD_PATTERN.pattern}$")]
DeviceName = Annotated[str, StringConstraints(pattern=f"^{DEVICE_PATTERN.pattern}$")]


class Card(BaseModel):
    """One card. `source` is a stream or a query; a text has none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind
    source: Name | None = None
    field: FieldName | None = None
    """The field that is shown; tables, maps and texts have none."""
    fields: tuple[FieldName, ...] = ()
    """More fields that a chart shows, each as a line of its own."""
    device: DeviceName | None = None
    """Only this one; without it and without a group all."""
    devices: tuple[DeviceName, ...] = ()
    """Devices that a chart shows in place of one, each as lines of its own."""
    group: Group | None = None
    """Only the devices in this group."""
    low: float | None = None
    """Where a gauge begins; without it at the least that it shows."""
    high: float | None = None
    """Where a gauge ends; without it at the most that it shows."""
    title: Annotated[str, StringConstraints(max_length=100)] = ""
    text: Annotated[str, StringConstraints(max_length=2000)] = ""
    x: Annotated[int, Field(ge=0, lt=COLUMNS)] = 0
    y: Annotated[int, Field(ge=0, lt=ROWS_MAX)] = 0
    w: Annotated[int, Field(ge=1, le=COLUMNS)] = 4
    h: Annotated[int, Field(ge=1, le=20)] = 2

    @model_validator(mode="after")
    def _shows_something(self) -> Self:
        if (self.kind == "text") != (self.source is None):
            raise ValueError(f"source: a card of kind {self.kind} has {_one(self.kind)}")
        if self.kind in WITH_FIELD and self.field is None:
            raise ValueError(f"field: a card of kind {self.kind} shows one field")
        if self.group is not None and (self.device is not None or self.source is None):
            raise ValueError("group: expected instead of a device, on a card with a source")
        if self.x + self.w > COLUMNS:
            raise ValueError(f"x and w: expected at most {COLUMNS} columns together")
        return self

    @model_validator(mode="after")
    def _has_lines(self) -> Self:
        if not (self.fields or self.devices):
            return self
        if self.kind != "chart":
            raise ValueError("fields and devices: expected on a chart alone")
        if self.devices and (self.device is not None or self.group is not None):
            raise ValueError("devices: expected instead of a device or a group")
        fields, devices = (self.field, *self.fields), self.devices or (None,)
        if len({*fields}) < len(fields) or len({*devices}) < len(devices):
            raise ValueError("fields and devices: expected each once")
        if len(fields) * len(devices) > LINES_MAX:
            raise ValueError(f"fields and devices: expected at most {LINES_MAX} lines together")
        return self

    @model_validator(mode="after")
    def _has_a_scale(self) -> Self:
        ends = (self.low, self.high)
        if self.kind != "gauge" and ends != (None, None):
            raise ValueError("low and high: expected on a gauge alone")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError("low and high: expected low < high")
        return self


def _one(kind: str) -> str:
    return "none" if kind == "text" else "one: a stream or a query"


class BoardText(BaseModel):
    """A board as people write it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: Annotated[str, StringConstraints(max_length=100)] = ""
    cards: Annotated[tuple[Card, ...], Field(max_length=CARDS_MAX)] = ()


class Board(BoardText):
    """A board that is kept."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: Name
    version: int
    changed_at: int
    """ms since 1970 UTC."""
    changed_by: str
