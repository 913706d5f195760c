"""A pane: the part of the input that windows are put together of.

A window of a minute that moves every ten seconds has six of them.

A pane is {"readings": how many, "fields": field → partial (see `aggregates`)}. Nothing but its
partials is kept of a reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from edgewake.edge.processors.aggregates import AGGREGATES, Partial, merged, of
from edgewake.edge.processors.processor import no_number, number
from edgewake.protocol.frames.frame import Scalar

Pane: TypeAlias = Mapping[str, Any]


def empty() -> Pane:
    """No reading."""
    return {"readings": 0, "fields": {}}


def add(pane: Pane, watched: Sequence[str], fields: Mapping[str, Scalar]) -> tuple[Pane, list[str]]:
    """The pane with one more reading, and remarks on its fields that are not numbers.

    Those count as missing.
    """
    partials: dict[str, Partial] = dict(pane["fields"])
    remarks = []
    for name in watched:
        value = number(fields.get(name))
        if value is None:
            remarks.append(no_number(fields.get(name)))
        else:
            partials[name] = merged(partials[name], of(value)) if name in partials else of(value)
    return {"readings": pane["readings"] + 1, "fields": partials}, remarks


def joined(panes: Sequence[Pane]) -> Pane:
    """Several panes as one, in order. At least one."""
    readings, partials = 0, dict[str, Partial]()
    for pane in panes:
        readings += pane["readings"]
        for name, partial in pane["fields"].items():
            partials[name] = merged(partials[name], partial) if name in partials else partial
    return {"readings": readings, "fields": partials}


def summary(
    pane: Pane, watched: Sequence[str], aggregates: Sequence[str], *, plain: bool = False
) -> dict[str, Scalar]:
    """The fields of a window's reading: `readings`, and `<field>_<aggregate>`.

    They are null where the field never had a number. `plain`: the one aggregate under the field's
    own name, and nothing else.
    """
    values: dict[str, Scalar] = {} if plain else {"readings": pane["readings"]}
    for name in watched:
        partial = pane["fields"].get(name)
        for aggregate in aggregates:
            values[name if plain else f"{name}_{aggregate}"] = (
                None if partial is None else AGGREGATES[aggregate](partial)
            )
    return values
