"""Types of fields, and the one type of a column of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from edgewake.protocol.frames.frame import Scalar


class FieldType(StrEnum):
    """Type of a field. A number is a 64-bit float everywhere."""

    NUMBER = "number"
    STRING = "string"
    BOOLEAN = "boolean"


_TYPES = {
    frozenset(kinds | null): type_
    for kinds, type_ in (
        ({int}, FieldType.NUMBER),
        ({float}, FieldType.NUMBER),
        ({int, float}, FieldType.NUMBER),
        ({str}, FieldType.STRING),
        ({bool}, FieldType.BOOLEAN),
        (set[type](), None),
    )
    for null in (set[type](), {type(None)})
}


def type_of_kinds(kinds: frozenset[type]) -> FieldType | None:
    """The one type of a column in which these Python types occur; None where all are null.

    Raises TypeError where they differ.
    """
    try:
        return _TYPES[kinds]
    except KeyError:
        raise TypeError(
            " and ".join(sorted(kind.__name__ for kind in kinds - {type(None)}))
        ) from None


def types_of(fields: Mapping[str, Sequence[Scalar]]) -> dict[str, FieldType]:
    """The types of a frame's columns; all-null columns are left out.

    Raises TypeError naming the field.
    """
    return types_of_kinds({name: frozenset(map(type, column)) for name, column in fields.items()})


def types_of_kinds(kinds: Mapping[str, frozenset[type]]) -> dict[str, FieldType]:
    """`types_of` where the types in each column are known already."""
    types: dict[str, FieldType] = {}
    for name, found in kinds.items():
        try:
            kind = type_of_kinds(found)
        except TypeError as error:
            raise TypeError(f"field {name!r} mixes {error}") from error
        if kind is not None:
            types[name] = kind
    return types
