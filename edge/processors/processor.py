"""The port of a processor: a pure function (state, readings) → (state, readings, remarks).

A processor keeps nothing between two calls; all that it remembers is its state, a small JSON value
that is committed together with the readings it made and with the cursor of those it read. So its
output depends on its input alone: not on how the input was cut into batches, not on the clock of
the machine, not on when it was killed. A state that went through JSON is the same state.

What a processor cannot use (a field that is missing or no number, a time that goes backwards) harms
nothing: each processor states its rule, and a remark counts how often it was applied. The counts
are part of the chain's state, so they are exact too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.expression import is_number
from edgewake.protocol.frames.frame import Scalar

State: TypeAlias = Any
"""JSON: null, true, false, texts, finite numbers, lists, and objects with texts as keys. Never
changed in place."""

NUMBER_MAX: Final = 1e140
"""The largest magnitude that is calculated with; a larger value is not taken for a number: squares
and sums of smaller ones stay finite, and JSON can carry them."""


class Remark:
    """Why a rule for unusual input was applied; a word in the status."""

    MISSING = "missing"
    """The field that the processor works on is missing or null."""
    NOT_A_NUMBER = "not_a_number"
    """It is a text or a truth value, or beyond NUMBER_MAX."""
    NOT_A_LIST = "not_a_list"
    """It is not a list."""
    TOO_MANY = "too_many"
    """The list has more items than a reading may become; the first ones are there."""
    UNKNOWN = "unknown"
    """A condition was neither true nor false: a field in it is missing or has another type."""
    NULL = "null"
    """An expression had no value."""
    BACKWARDS = "backwards"
    """The event time is before that of the reading before it."""
    LATE = "late"
    """The reading's window was closed already; the reading is not in it."""
    RESTARTED = "restarted"
    """Late readings came in such a row that the clock was set back: the windows started again."""
    BUCKET_FULL = "bucket_full"
    """A bucket was closed before its time because it held as many readings as it may."""
    KEY_FORGOTTEN = "key_forgotten"
    """More values of `by` than are kept: the state of the one unused longest was given up."""
    FAILED = "failed"
    """The processor raised: a fault of ours. The reading was left out and the state is as before
    it, so that it harms nothing else."""
    TOO_LARGE = "too_large"
    """What was made has more fields or longer texts than a reading may have, and was left out."""
    KEY_REFUSED = "key_refused"
    """A value of `by` too long to be kept: the reading was left out."""
    STATE_FORGOTTEN = "state_forgotten"
    """What the chain remembers had become too large to be kept: the largest state was given up; of
    one with `by` that of the values unused longest."""


class Stepped(NamedTuple):
    """What one reading led to."""

    state: State
    readings: Sequence[Reading] = ()
    remarks: Sequence[str] = ()


class Applied(NamedTuple):
    """What a batch led to."""

    state: State
    readings: Sequence[Reading]
    remarks: Counter[str]


class Step(Protocol):
    """What a processor does with one reading."""

    initial: State
    """The state before the first one."""

    def step(self, state: State, reading: Reading) -> Stepped:
        """Never raises for any reading that the log accepts."""


class Processor(Protocol):
    """What a chain is made of."""

    initial: State

    def apply(self, state: State, readings: Sequence[Reading]) -> Applied:
        """`apply(s, a + b)` is `apply(s, a)` and then `apply(its state, b)`."""

    def reduced(self, state: State) -> State:
        """A smaller state, which has forgotten something; `initial` in the end."""


def stepped(step: Step, state: State, reading: Reading) -> Stepped:
    """One step that cannot stop the others."""
    try:
        return step.step(state, reading)
    except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError):
        return Stepped(state, (), (Remark.FAILED,))


class Fold:
    """A step, applied to one reading after the other."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self.initial = step.initial

    def apply(self, state: State, readings: Sequence[Reading]) -> Applied:
        out: list[Reading] = []
        remarks: Counter[str] = Counter()
        for reading in readings:
            state, more, said = stepped(self._step, state, reading)
            out += more
            remarks.update(said)
        return Applied(state, out, remarks)

    def reduced(self, state: State) -> State:  # noqa: ARG002
        return self.initial


def number(value: Scalar) -> float | None:
    """A field's value to calculate with; None for any other value."""
    return float(value) if is_number(value) and -NUMBER_MAX <= value <= NUMBER_MAX else None  # type: ignore[operator,arg-type]


def no_number(value: Scalar) -> str:
    """The remark for what `number` refused."""
    return Remark.MISSING if value is None else Remark.NOT_A_NUMBER
