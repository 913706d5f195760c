"""Versions of what operators keep: the second of two concurrent changes is refused. Pure."""

from __future__ import annotations

from typing import Protocol, TypedDict

from pydantic import BaseModel

from edgewake.cloud.web.http_part import Problem


class Kept(Protocol):
    """A row that is kept."""

    @property
    def version(self) -> int:
        """1 for the first."""

    @property
    def changed_by(self) -> str:
        """The person or key that made this version."""


class Stamp(TypedDict):
    """What a row has besides its text and name."""

    version: int
    changed_at: int
    changed_by: str


def is_same(kept: BaseModel, text: BaseModel) -> bool:
    """Does the row say what the text says?"""
    return all(getattr(kept, name) == getattr(text, name) for name in type(text).model_fields)


def next_stamp(what: str, before: Kept | None, version: int | None, *, by: str, now: int) -> Stamp:
    """The stamp of the row that takes the place of `before`.

    `what`: a row, as people call it. `version`: the one that was changed, where that is known.
    Raises Problem(409) where that is not the version that is kept.
    """
    kept = 0 if before is None else before.version
    if version is not None and version != kept:
        raise Problem(409, "changed_meanwhile", _conflict(what, before, version))
    return {"version": kept + 1, "changed_at": now, "changed_by": by}


def _conflict(what: str, before: Kept | None, version: int) -> str:
    if before is None:
        return f"{what} was version {version}, and is removed meanwhile"
    return (
        f"{what} is version {before.version} now, changed by {before.changed_by}; yours is made of "
        f"version {version}. Read it again, and change that."
    )
