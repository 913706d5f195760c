"""Typed calls of the functions of queries: arguments are checked against the signatures. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from edgewake.cloud.queries.terms.functions import (
    FUNCTIONS,
    SAME,
    STRING,
    TIME,
    Kind,
    OtherKind,
    Signature,
)
from edgewake.cloud.queries.terms.tree import (
    Call,
    Expression,
)
from edgewake.protocol.errors import QueryError
from edgewake.protocol.frames.field_type import FieldType

Typed: TypeAlias = tuple[Expression, Kind]


def call(function: str, arguments: Sequence[Typed], clause: str) -> Typed:
    """A call with its type; raises QueryError where an argument has another type."""
    signature = FUNCTIONS[function]
    kinds = [kind for _, kind in arguments]
    same: Kind = None
    if SAME in signature.takes:
        same = one_kind(function, kinds, clause)
    else:
        for taken, kind in zip(_taken(signature, len(kinds)), kinds, strict=True):
            check_kinds(function, [kind], taken, clause)
    gives = same if signature.gives == SAME else _kind(signature.gives)
    return Call(function, tuple(argument for argument, _ in arguments)), gives


def _kind(name: FieldType | OtherKind | str) -> Kind:
    return TIME if name == TIME else FieldType(name)


def _taken(signature: Signature, count: int) -> Sequence[FieldType | OtherKind | str]:
    return signature.takes * count if signature.repeats else signature.takes


def check_kinds(
    what: str, kinds: Sequence[Kind], expected: FieldType | OtherKind | str, clause: str
) -> None:
    """Raises QueryError where one of the known types is not the expected one."""
    for kind in kinds:
        if kind is not None and kind != expected:
            hint = "; use cast(x AS string)" if expected == STRING and what == "concat" else ""
            raise QueryError(f"{clause}: {what} takes a {expected}, found a {kind}{hint}")


def one_kind(what: str, kinds: Sequence[Kind], clause: str) -> Kind:
    """The one type of values that are compared; raises QueryError where they have several."""
    found = {kind for kind in kinds if kind is not None}
    if len(found) > 1:
        raise QueryError(f"{clause}: {what} compares a {' with a '.join(sorted(found))}")
    return found.pop() if found else None
