"""Versions of rows that operators change: of two concurrent changes the second is refused.

Within a server changes come one after the other. Of two servers that make the same version, the
first record in Kafka's log has it: the second server puts back what it overwrote (TableWriter).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypedDict, TypeVar

from pydantic import BaseModel

from edgewake.cloud.ops.tables.table_writer import TableWriter
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.ops.alert import Rule
from edgewake.protocol.ops.board import Board
from edgewake.protocol.ops.named_set import NamedSet
from edgewake.protocol.ops.publication import Publication

TRIES_MAX: Final = 8
"""Versions that are tried where other servers are faster with each; then it is 503."""
Row = TypeVar("Row", Board, NamedSet, Publication, Rule)


class Kept(Protocol):
    """A stored row."""

    @property
    def version(self) -> int:
        """The version; the first one is 1."""

    @property
    def changed_by(self) -> str:
        """The person or key that made this version."""


class Stamp(TypedDict):
    """The fields of a row besides its text and name."""

    version: int
    changed_at: int
    changed_by: str


def is_same(kept: BaseModel, text: BaseModel) -> bool:
    """Returns whether a row has the content of the text."""
    return all(getattr(kept, name) == getattr(text, name) for name in type(text).model_fields)


def next_stamp(what: str, before: Kept | None, version: int | None, *, by: str, now: int) -> Stamp:
    """Makes the stamp of the row that replaces `before`.

    `what` names the row in messages. `version` is the one that was changed, if known. Raises
    Problem(409) where that is not the stored version.
    """
    kept = 0 if before is None else before.version
    if version is not None and version != kept:
        raise Problem(409, "changed_meanwhile", _conflict(what, before, version))
    return {"version": kept + 1, "changed_at": now, "changed_by": by}


def _conflict(what: str, before: Kept | None, version: int) -> str:
    if before is None:
        return f"{what} had version {version} and was removed meanwhile"
    return (
        f"{what} is version {before.version} now, changed by {before.changed_by}; yours is made of "
        f"version {version}. Read it again, and change that."
    )


async def keep(
    writer: TableWriter,
    topic: str,
    key: str,
    kept: Callable[[], Row | None],
    change: Callable[[Row | None], Row],
) -> Row:
    """Writes the row that `change` makes of the kept one, and returns it.

    Where another server was faster, `change` is asked again, with that server's row: a change of a
    certain version is refused then. One that returns the kept row writes nothing. Raises what
    `change` raises, or Unavailable.
    """
    async with writer.turns:
        for _ in range(TRIES_MAX):
            before = kept()
            row = change(before)
            if row is before or await writer.replace(topic, key, before, row):
                return row
    raise Unavailable(f"{topic}: other servers change {key!r} all the time")
