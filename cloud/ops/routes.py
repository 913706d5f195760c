"""What the routes of the operations API share: what they stand on, pages of a list, path parameters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Generic, TypeVar

from fastapi import Path, Query
from prometheus_client import CollectorRegistry
from pydantic import BaseModel

from edgewake.cloud.ops.auth import Tickets
from edgewake.cloud.ops.catalogue_editor import CatalogueEditor
from edgewake.cloud.ops.dead_letters import DeadLetterIndex
from edgewake.cloud.ops.event_ring import EventRing
from edgewake.cloud.ops.kafka_lookup import KafkaLookup
from edgewake.cloud.ops.queries import Registry
from edgewake.cloud.ops.tables import OpsTables
from edgewake.protocol.clock import Clock
from edgewake.protocol.names import DEVICE_PATTERN, STREAM_PATTERN

PAGE_DEFAULT: Final = 100
PAGE_MAX: Final = 500
"""Items of a list in one answer."""
OFFSET_MAX: Final = 2**62
"""Kafka's offsets are signed 64-bit; what is larger is refused before Kafka is asked."""

T = TypeVar("T", bound=BaseModel)


class Page(BaseModel, Generic[T]):
    """A part of a list, in order of name."""

    items: list[T]
    next: str | None
    """`after` of the next page; null at the end."""
    total: int


Limit = Annotated[int, Query(ge=1, le=PAGE_MAX)]
After = Annotated[str | None, Query(max_length=64)]
QueryName = Annotated[str, Path(pattern=f"^{STREAM_PATTERN.pattern}$")]
DeviceName = Annotated[str, Path(pattern=f"^{DEVICE_PATTERN.pattern}$")]
Offset = Annotated[int, Path(ge=0, le=OFFSET_MAX)]


@dataclass(frozen=True)
class Services:
    """What the API stands on."""

    tables: OpsTables
    registry: Registry
    editor: CatalogueEditor
    lookup: KafkaLookup
    letters: DeadLetterIndex
    ring: EventRing
    tickets: Tickets
    clock: Clock
    metrics: CollectorRegistry
    ready: asyncio.Event


def page_of(items: Sequence[T], name: Callable[[T], str], after: str | None, limit: int) -> Page[T]:
    """The page after `after` of a list that is sorted by `name`."""
    rest = [item for item in items if after is None or name(item) > after]
    chosen = rest[:limit]
    return Page(items=chosen, next=name(chosen[-1]) if len(rest) > limit else None, total=len(items))
