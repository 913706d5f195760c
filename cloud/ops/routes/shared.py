"""What routes of the operations API share: services, pages of lists, path parameters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Final, Generic, TypeVar

from fastapi import Path, Query, Request
from prometheus_client import CollectorRegistry
from pydantic import BaseModel

from edgewake.cloud.health import Health
from edgewake.cloud.lake.asking import Asking
from edgewake.cloud.ops.credentials.desk import CredentialDesk
from edgewake.cloud.ops.history.audit_log import AuditLog
from edgewake.cloud.ops.history.problem_desk import ProblemDesk
from edgewake.cloud.ops.letters.dead_letters import DeadLetterIndex
from edgewake.cloud.ops.letters.letter_replayer import LetterReplayer
from edgewake.cloud.ops.login.auth import Access
from edgewake.cloud.ops.login.keys import Holder
from edgewake.cloud.ops.lookups.fault_control import FaultControl
from edgewake.cloud.ops.lookups.kafka_lookup import KafkaLookup
from edgewake.cloud.ops.lookups.push_proxy import PushProxy
from edgewake.cloud.ops.lookups.retention import RetentionDesk
from edgewake.cloud.ops.lookups.summary_reads import SummaryReads
from edgewake.cloud.ops.maps.map_desk import MapDesk
from edgewake.cloud.ops.services.alert_desk import AlertDesk
from edgewake.cloud.ops.services.board_desk import BoardDesk
from edgewake.cloud.ops.services.catalogue_editor import CatalogueEditor
from edgewake.cloud.ops.services.client_desk import ClientDesk
from edgewake.cloud.ops.services.device_commands import DeviceCommands
from edgewake.cloud.ops.services.eraser import EraserDesk
from edgewake.cloud.ops.services.named_desk import NamedDesk
from edgewake.cloud.ops.services.previews import PreviewDesk
from edgewake.cloud.ops.services.queries import QueryService
from edgewake.cloud.ops.services.repairs import RepairDesk
from edgewake.cloud.ops.services.replies import Replies
from edgewake.cloud.ops.services.system_look import SystemLook
from edgewake.cloud.ops.tables.event_ring import EventRing
from edgewake.cloud.ops.tables.past import Past
from edgewake.cloud.ops.tables.table_writer import TableWriter
from edgewake.cloud.ops.tables.tables import OpsTables
from edgewake.cloud.rights.principal import Action, Principal
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol.clock import Clock
from edgewake.protocol.frames.stream import Stream
from edgewake.protocol.names import DEVICE_PATTERN, STREAM_PATTERN

PAGE_DEFAULT: Final = 100
PAGE_MAX: Final = 500
"""The most items of a list in one answer."""
OFFSET_MAX: Final = 2**62
"""The largest offset: Kafka's offsets are signed 64-bit, and larger ones are refused here."""

T = TypeVar("T", bound=BaseModel)


class Page(BaseModel, Generic[T]):
    """A page of a list, sorted by name."""

    items: list[T]
    next: str | None
    """The `after` of the next page; null at the end."""
    total: int


Limit = Annotated[int, Query(ge=1, le=PAGE_MAX)]
After = Annotated[str | None, Query(max_length=64)]
QueryName = Annotated[str, Path(pattern=f"^{STREAM_PATTERN.pattern}$")]
AskedStream = Annotated[str | None, Query(pattern=f"^{STREAM_PATTERN.pattern}$")]
DeviceName = Annotated[str, Path(pattern=f"^{DEVICE_PATTERN.pattern}$")]
Offset = Annotated[int, Path(ge=0, le=OFFSET_MAX)]


@dataclass(frozen=True)
class Services:
    """The services that the API's routes use."""

    tables: OpsTables
    alerts: AlertDesk
    system: SystemLook
    boards: BoardDesk
    named: NamedDesk
    maps: MapDesk
    clients: ClientDesk
    audit: AuditLog
    eraser: EraserDesk
    registry: QueryService
    repairs: RepairDesk
    previews: PreviewDesk
    down: DeviceCommands
    requests: Replies
    editor: CatalogueEditor
    retention: RetentionDesk
    writer: TableWriter
    lookup: KafkaLookup
    letters: DeadLetterIndex
    replayer: LetterReplayer
    ring: EventRing
    past: Past
    problems: ProblemDesk
    access: Access
    clock: Clock
    metrics: CollectorRegistry
    ready: asyncio.Event
    health: Health
    summaries: SummaryReads
    asking: Asking
    credentials: CredentialDesk | None = None
    """Issues credentials to devices; None where this server does not."""
    broker: str = ""
    """host:port at which devices reach the MQTT broker."""
    certificate_broker: str = ""
    """host:port at which devices with a certificate reach the MQTT broker."""
    http_intake: str = ""
    """Address at which devices reach the bridge by HTTP."""
    enrolling_url: str = ""
    """Address at which devices with a claim code reach this API; empty: only this machine can reach
    it."""
    access_urls: tuple[str, ...] = ()
    """Addresses at which clients reach access servers."""
    faults: FaultControl | None = None
    """Injects faults; None where that is off."""
    push: PushProxy | None = None
    """Makes deliveries to webhooks; None where no push proxy is known."""


def reader_of(request: Request, *, is_change: bool = False) -> Principal | None:
    """The principal to whose grants an answer is narrowed; None: who asks has the whole."""
    holder: Holder = request.state.holder
    return holder.reader(is_change=is_change)


def is_hidden(request: Request, device: str, *, is_change: bool = False) -> bool:
    """Are commands and requests of this device none of the asker's business?"""
    reader = reader_of(request, is_change=is_change)
    return reader is not None and not reader.may_command(device)


def stream_of(
    services: Services, name: str, reader: Principal | None = None, action: Action = Action.READ
) -> Stream:
    """A stream of the catalogue. Raises Problem(404), also where `reader` may not know of it."""
    found = services.tables.streams.get(name)
    if found is None or not (reader is None or reader.may(action, name)):
        raise Problem(404, "no_such_stream", f"no stream {name!r} is in the catalogue")
    return found


def some_devices(stream: str, way: str) -> Problem:
    """The answer to who may see some devices of a stream and asks of all."""
    return Problem(
        403,
        "some_devices",
        f"your grants of {stream!r} are of some devices, and this is of all of them, which nothing "
        f"narrows: name one, as {way}",
    )


def page_of(names: Iterable[str], make: Callable[[str], T], *, limit: int, total: int) -> Page[T]:
    """Makes a page of sorted `names`; `make` is called for the items on it only."""
    chosen = list(islice(names, limit + 1))
    return Page(
        items=[make(name) for name in chosen[:limit]],
        next=chosen[limit - 1] if len(chosen) > limit else None,
        total=total,
    )


def names_after(names: Iterable[str], after: str | None) -> list[str]:
    """Returns the names after `after`, sorted; for tables of at most a thousand rows."""
    return sorted(name for name in names if after is None or name > after)
