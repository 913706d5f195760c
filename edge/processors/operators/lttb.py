"""Downsampling that keeps the shape of a curve: largest triangle three buckets.

One reading of each bucket passes: the one that forms the largest triangle with the one chosen
before it and with the mean of the bucket after it (Sveinn Steinarsson, "Downsampling Time Series
for Visual Representation", 2013), so peaks stay peaks. A bucket is `every_s` of event time;
therefore a choice is made when the bucket after it is over. Chosen readings keep all their fields.

A bucket ends at the first reading of another one, also where the time goes backwards, or when it
holds BUCKET_READINGS_MAX, or texts of BUCKET_CHARS_MAX (a remark). A reading whose field is not a
number is left out, with a remark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from typing import Final

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.config import LttbConfig
from edgewake.edge.processors.processor import Remark, State, Stepped, no_number, number
from edgewake.protocol.frames.frame import Scalar

BUCKET_READINGS_MAX: Final = 200
"""Readings that wait in a bucket, of which there are two; they are in the state. A bucket with more
is closed early."""


BUCKET_CHARS_MAX: Final = 64 * 1024
"""Characters of their texts, with the same effect; the reading that exceeds it is in it."""


class Lttb:
    """The step.

    Its state: {"chosen": [t, value] of the last choice, "full": readings of the full bucket,
    "open": those of the one being filled, "chars": of their texts}.
    """

    initial: State = None

    def __init__(self, config: LttbConfig) -> None:
        self._field = config.field
        self._every_ms = round(config.every_s * 1000)

    def step(self, state: State, reading: Reading) -> Stepped:
        t, fields = reading
        value = number(fields.get(self._field))
        if value is None:
            return Stepped(state, (), (no_number(fields.get(self._field)),))
        row = [t, fields]
        if state is None:  # the first reading always goes on
            return Stepped({"chosen": [t, value], "full": [], "open": [], "chars": 0}, (reading,))
        chars, before = _chars(fields), state["chars"]
        is_full = len(state["open"]) == BUCKET_READINGS_MAX or before > BUCKET_CHARS_MAX
        if not state["open"] or (
            not is_full and t // self._every_ms == state["open"][-1][0] // self._every_ms
        ):
            return Stepped(state | {"open": [*state["open"], row], "chars": before + chars})
        remarks = (Remark.BUCKET_FULL,) if is_full else ()
        if not state["full"]:
            return Stepped(
                state | {"full": state["open"], "open": [row], "chars": chars}, (), remarks
            )
        t_chosen, chosen = self._choose(state["chosen"], state["full"], state["open"])
        after = {
            "chosen": [t_chosen, number(chosen[self._field])],
            "full": state["open"],
            "open": [row],
            "chars": chars,
        }
        return Stepped(after, ((t_chosen, chosen),), remarks)

    def _choose(
        self, before: Sequence[float], bucket: Sequence[Reading], after: Sequence[Reading]
    ) -> Reading:
        """Times are relative to `before`, so that their products keep their digits."""
        origin, height = before
        x = fsum(t - origin for t, _ in after) / len(after)
        y = fsum(float(fields[self._field]) - height for _, fields in after) / len(after)  # type: ignore[arg-type]  # numbers, as `step` saw

        def area(row: Reading) -> float:
            return abs((row[0] - origin) * y - x * (float(row[1][self._field]) - height))  # type: ignore[arg-type]

        t, fields = max(bucket, key=area)
        return t, fields


def _chars(fields: Mapping[str, Scalar]) -> int:
    return sum(len(value) for value in fields.values() if isinstance(value, str))
