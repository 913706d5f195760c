"""A chain: processors in order, from one stream to another.

    chain = build(config)
    applied = chain.apply(chain.resume(kept), readings)       # pure
    commit(cursor, applied.state, applied.readings)           # by whoever calls, in one transaction

The state holds that of every processor, the number of each processor's remarks on its input, and a
digest of the chain's configuration: a chain that was changed meanwhile does not take over the old
state, and starts again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final

import orjson

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.config import ChainConfig
from edgewake.edge.processors.processor import Processor, Remark, State
from edgewake.protocol.frames.frame import FIELDS_MAX, STRING_CHARS_MAX, TIME_MS_MAX, Scalar

TEXT_CHARS_MAX: Final = 64 * 1024
"""Characters of all texts of a reading that a chain makes, as of one that a source brings. One with
more is left out, with a remark."""


@dataclass(frozen=True, slots=True)
class ChainState:
    """The state that a chain remembers."""

    digest: str
    """The digest of its configuration."""
    states: Sequence[State]
    """One per processor."""
    remarks: Sequence[Mapping[str, int]]
    """One per processor: how often it said what."""
    readings_in: int = 0
    readings_out: int = 0

    def encode(self) -> bytes:
        """The state as JSON."""
        return orjson.dumps(
            {
                "digest": self.digest,
                "states": self.states,
                "remarks": self.remarks,
                "in": self.readings_in,
                "out": self.readings_out,
            }
        )


def decode_state(body: bytes) -> ChainState | None:
    """A state from its bytes; None where they cannot be read: the chain starts again."""
    try:
        found: Any = orjson.loads(body)
        if not (isinstance(found["states"], list) and isinstance(found["remarks"], list)):
            return None
        return ChainState(
            found["digest"], found["states"], found["remarks"], found["in"], found["out"]
        )
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None


@dataclass(frozen=True, slots=True)
class ChainApplied:
    """What a batch led to."""

    state: ChainState
    readings: Sequence[Reading]


class Chain:
    """One chain, ready to be applied. It keeps nothing between two calls."""

    def __init__(self, config: ChainConfig, processors: Sequence[Processor]) -> None:
        self.stream = config.stream
        self.into = config.into
        self._processors = processors
        self._names = [
            f"{place} {processor.type}" for place, processor in enumerate(config.processor, 1)
        ]
        self._digest = sha256(orjson.dumps(config)).hexdigest()[:16]

    def begin(self) -> ChainState:
        """The state before the first reading."""
        return ChainState(
            self._digest,
            [processor.initial for processor in self._processors],
            [{} for _ in self._processors],
        )

    def resume(self, kept: bytes | None) -> ChainState:
        """A kept state, or the first one without a state or with that of another configuration."""
        state = None if kept is None else decode_state(kept)
        if (
            state is None
            or state.digest != self._digest
            or not len(state.states) == len(state.remarks) == len(self._processors)
        ):
            return self.begin()
        return state

    def apply(self, state: ChainState, readings: Sequence[Reading]) -> ChainApplied:
        """The state after these readings, and what was made of them."""
        states, remarks, flowing = [], [], readings
        for processor, before, said in zip(
            self._processors, state.states, state.remarks, strict=True
        ):
            after, flowing, more = processor.apply(before, flowing)
            states.append(after)
            remarks.append(dict(Counter(said) + more) if more else said)
        made = [(min(max(0, t), TIME_MS_MAX), fields) for t, fields in flowing if _fits(fields)]
        if len(made) < len(flowing):
            remarks[-1] = dict(
                Counter(remarks[-1]) + Counter({Remark.TOO_LARGE: len(flowing) - len(made)})
            )
        return ChainApplied(
            ChainState(
                state.digest,
                states,
                remarks,
                state.readings_in + len(readings),
                state.readings_out + len(made),
            ),
            made,
        )

    def kept(self, state: ChainState, bytes_max: int) -> tuple[ChainState, bytes]:
        """The state and its bytes.

        Where these are more than `bytes_max`, the largest of its parts forget something, with a
        remark.
        """
        first = self.begin().states
        while len(body := state.encode()) > bytes_max and state.states != first:
            states, remarks = list(state.states), list(state.remarks)
            sizes = [
                len(orjson.dumps(each)) if each != least else 0
                for each, least in zip(states, first, strict=True)
            ]
            largest = sizes.index(max(sizes))
            states[largest] = self._processors[largest].reduced(states[largest])
            remarks[largest] = dict(
                Counter(remarks[largest]) + Counter({Remark.STATE_FORGOTTEN: 1})
            )
            state = replace(state, states=states, remarks=remarks)
        return state, body

    def counts(self, state: ChainState) -> dict[str, Any]:
        """For the status: exact, as they are part of the state."""
        said = {
            name: dict(remarks)
            for name, remarks in zip(self._names, state.remarks, strict=True)
            if remarks
        }
        return {
            "stream": self.stream,
            "into": self.into,
            "in": state.readings_in,
            "out": state.readings_out,
            "remarks": said,
        }


def _fits(fields: Mapping[str, Scalar]) -> bool:
    """May this be a reading? Its names and numbers are good; it can only have become too large."""
    texts = [len(value) for value in fields.values() if isinstance(value, str)]
    return (
        0 < len(fields) <= FIELDS_MAX
        and max(texts, default=0) <= STRING_CHARS_MAX
        and sum(texts) <= TEXT_CHARS_MAX
    )
