"""What a chain remembers of each thing behind this device: a state for each, as if it were alone.

All of it is one state of the chain's consumer, so it has one bound. Beyond, the thing unused
longest is forgotten: its windows begin again with its next reading, and that is counted. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.chain import Chain, ChainState, decode_state
from edgewake.protocol.json_text import compact

OWN = ""
"""The place of the device itself among its things."""
_GONE = "gone"


class ThingStates:
    """The states of one chain, by thing; one task's."""

    def __init__(self, chain: Chain, kept: bytes | None, bytes_max: int) -> None:
        """Go on from what `encode` gave; what cannot be read, or is of another chain, is empty."""
        self._chain = chain
        self._bytes_max = bytes_max
        found = _decoded(kept)
        self._forgotten = _whole(found.get("forgotten"))
        """How often a thing was forgotten."""
        self._gone = _figures(found.get(_GONE))
        """Readings in and out, and remarks, of things that were forgotten."""
        self._bodies: dict[str, bytes] = {}
        """By thing, the one unused longest first."""
        self._states: dict[str, ChainState] = {}
        self.is_resumed = False
        """Was there a state of this chain?"""
        for thing, state in _of_things(found):
            if self._chain.resume(state.encode()) == state:
                self._states[thing] = state
                self._bodies[thing] = compact(state.encode())
                self.is_resumed = True

    def apply(self, thing: str, readings: Sequence[Reading]) -> list[Reading]:
        """What is made of a thing's readings."""
        applied = self._chain.apply(self._states.get(thing) or self._chain.begin(), readings)
        self._bodies.pop(thing, None)
        self._states[thing], body = self._chain.kept(applied.state, self._bytes_max // 2)
        self._bodies[thing] = compact(body)
        return list(applied.readings)

    def encode(self) -> bytes:
        """The state to commit, of at most the bound; things are forgotten for it."""
        while True:
            body = orjson.dumps(
                {
                    "things": {thing: orjson.Fragment(one) for thing, one in self._bodies.items()},
                    _GONE: self._gone,
                    "forgotten": self._forgotten,
                }
            )
            excess = len(body) - self._bytes_max
            if excess <= 0 or len(self._bodies) <= 1:
                return body
            self._forget(excess)

    def _forget(self, excess: int) -> None:
        """Give up the states least lately used, `excess` bytes of them."""
        while excess > 0 and len(self._bodies) > 1:
            thing = next(iter(self._bodies))
            excess -= len(self._bodies.pop(thing))
            self._gone = _sum(self._gone, self._chain.counts(self._states.pop(thing)))
            self._forgotten += 1

    def counts(self) -> dict[str, Any]:
        """For the status, of all things together."""
        found = self._gone
        for state in self._states.values():
            found = _sum(found, self._chain.counts(state))
        return {
            "stream": self._chain.stream,
            "into": self._chain.into,
            **found,
            "things": len(self._states.keys() - {OWN}),
            "things_forgotten": self._forgotten,
        }


def _decoded(kept: bytes | None) -> Mapping[str, Any]:
    try:
        found = orjson.loads(kept or b"null")
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _of_things(found: Mapping[str, Any]) -> list[tuple[str, ChainState]]:
    things = found.get("things")
    if not isinstance(things, dict):
        return []
    states = ((thing, decode_state(orjson.dumps(one))) for thing, one in things.items())
    return [(thing, state) for thing, state in states if state is not None]


def _whole(value: Any) -> int:
    return value if type(value) is int else 0


def _figures(found: Any) -> dict[str, Any]:
    figures = found if isinstance(found, dict) else {}
    said = figures.get("remarks")
    return {
        "in": _whole(figures.get("in")),
        "out": _whole(figures.get("out")),
        "remarks": said if isinstance(said, dict) else {},
    }


def _sum(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    remarks: dict[str, dict[str, int]] = {}
    for said in (one["remarks"], other["remarks"]):
        for processor, counts in said.items():
            both = Counter(remarks.get(processor, {})) + Counter(counts)
            remarks[processor] = dict(both)
    return {
        "in": one["in"] + other["in"],
        "out": one["out"] + other["out"],
        "remarks": remarks,
    }
