"""Things that two gateways send for at once: by mistake, or because one of them is hostile. Pure.

A thing that moves is heard by one gateway and then by another. What an old one had kept comes late,
and is told apart by its event times. Where fresh readings come by turns, both speak for it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

from edgewake.protocol.ops.device import DeviceSeen

TURNS: Final = 4
"""A B A B: there and back again is what a thing may do that moves."""
WITHIN_MS: Final = 60_000
"""ms within which these turns come, and how long they are told; a gateway reports every 5 s."""
FRESH_MS: Final = 30_000
"""A newest reading older than this when it came had been kept."""
THINGS_MAX: Final = 1_000
"""Things that are watched, those whose gateway changed last."""


class Contested:
    """Who spoke for a thing, by turns."""

    def __init__(self) -> None:
        self._turns: OrderedDict[str, deque[tuple[int, str]]] = OrderedDict()
        """(Kafka's clock in ms, gateway) by thing, the latest last."""

    def note(self, seen: DeviceSeen) -> None:
        """A report of a thing by one gateway."""
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
        """It was removed."""
        self._turns.pop(thing, None)

    def now(self, now_ms: int) -> dict[str, list[str]]:
        """Things for which gateways speak by turns, and these gateways."""
        return {
            thing: sorted({gateway for _, gateway in turns})
            for thing, turns in self._turns.items()
            if len(turns) == TURNS and now_ms - turns[0][0] <= WITHIN_MS
        }
