"""Versions of rows that operators change: of two concurrent changes the second is refused. Pure."""

from __future__ import annotations

from typing import Protocol, TypedDict

from pydantic import BaseModel

from edgewake.cloud.web.http_part import Problem


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
