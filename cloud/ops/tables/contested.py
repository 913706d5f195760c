"""Detects things that two gateways send for at once, by mistake or with bad intent. Pure.

A thing that moves is sent by one gateway and then by another. A backlog of the former gateway comes
late and is recognized by its event times. Where fresh readings of both alternate, both send for the
thing.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

from edgewake.protocol.ops.device import DeviceSeen

TURNS: Final = 4
"""Alternations that count as contested, A B A B: a moving thing may well go and return."""
WITHIN_MS: Final = 60_000
"""ms within which these alternations occur, and for which they are reported; a gateway reports
every 5 s."""
FRESH_MS: Final = 30_000
"""A newest reading older than this at its arrival belongs to a backlog."""
THINGS_MAX: Final = 1_000
"""The most things watched: those whose gateway changed last."""


class Contested:
    """The gateways that sent for each thing, in order."""

    def __init__(self) -> None:
        self._turns: OrderedDict[str, deque[tuple[int, str]]] = OrderedDict()
        """Thing → (Kafka's clock in ms, gateway), the latest last."""

    def note(self, seen: DeviceSeen) -> None:
        """Applies a gateway's report of a thing."""
        if not seen.via or seen.newest is None or seen.last_seen - seen.newest > FRESH_MS:
            return
        turns = self._turns.get(seen.device)
        if turns is None:
            turns = self._turns[seen.device] = deque(maxlen=TURNS)
        if turns and turns[-1][1] == seen.via:
            return
        turns.append((seen.last_seen, seen.via))
        self._turns.move_to_end(seen.device)
        while len(self._turns) > THINGS_MAX:
            self._turns.popitem(last=False)

    def forget(self, thing: str) -> None:
        """Forgets a thing that was removed."""
        self._turns.pop(thing, None)

    def now(self, now_ms: int) -> dict[str, list[str]]:
        """Returns the contested things and their gateways."""
        return {
            thing: sorted({gateway for _, gateway in turns})
            for thing, turns in self._turns.items()
            if len(turns) == TURNS and now_ms - turns[0][0] <= WITHIN_MS
        }
