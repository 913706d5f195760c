"""Collects the state of the whole system: parts, queries, dead letters, and problems."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from edgewake.cloud.ops.letters import dead_letters
from edgewake.cloud.ops.letters.dead_letters import DeadLetterIndex, Filter
from edgewake.cloud.ops.lookups.kafka_lookup import KafkaLookup
from edgewake.cloud.ops.services.problems import (
    KEYS_NAMED,
    LOSS_AGE_MS,
    KnownProblem,
    dead_by_reason,
    device_problems,
    loss_problems,
    problems_of,
    unit_problems,
)
from edgewake.cloud.ops.services.queries import QueryService, QueryView
from edgewake.cloud.ops.tables.device_table import Mark
from edgewake.cloud.ops.tables.part_table import PartView
from edgewake.cloud.ops.tables.past import Past
from edgewake.cloud.ops.tables.tables import OpsTables
from edgewake.protocol.clock import Clock

LETTERS_LOOKED_AT: Final = 100
"""The number of newest dead letters that are counted by reason."""


@dataclass(frozen=True, slots=True)
class Look:
    """The state of the system at one moment."""

    problems: Sequence[KnownProblem]
    parts: Sequence[PartView]
    queries: Sequence[QueryView]
    dead: Mapping[str, int]
    """Dead letters of the last hour by reason, among the newest hundred."""


@dataclass(frozen=True, slots=True)
class SystemLook:
    """Collects the state of the system."""

    tables: OpsTables
    registry: QueryService
    letters: DeadLetterIndex
    lookup: KafkaLookup
    clock: Clock
    past: Past
    ready: asyncio.Event

    async def look(self) -> Look:
        """Returns the current state. Raises Unavailable."""
        newest = await self.lookup.run(
            lambda session: dead_letters.page(
                session,
                self.letters,
                before=None,
                limit=LETTERS_LOOKED_AT,
                wanted=Filter(None, None),
            )
        )
        tables = self.tables
        dead = dead_by_reason(newest.items, now_ms=self.clock.now_ms())
        queries = [self.registry.view(row) for row in tables.queries.values()]
        parts = [tables.parts[name] for name in sorted(tables.parts)]
        found = problems_of(
            parts, queries, list(tables.leases.values()), dead, is_ready=self.ready.is_set()
        )
        devices, now_ms = tables.devices, self.clock.now_ms()
        held = (devices.get(name, now=now_ms) for name in devices.names_with(Mark.HELD, KEYS_NAMED))
        of_devices = device_problems(
            devices.marked[Mark.WAITING],
            devices.names_with(Mark.WAITING, KEYS_NAMED),
            devices.contested.now(now_ms),
            devices.marked[Mark.HELD],
            [one for one in held if one is not None],
        )
        of_units = unit_problems(tables.streams.values())
        hour_ago = self.clock.now_ms() - LOSS_AGE_MS
        of_losses = loss_problems(self.past.since(hour_ago, "loss"))
        return Look([*found, *of_devices, *of_units, *of_losses], parts, queries, dead)
