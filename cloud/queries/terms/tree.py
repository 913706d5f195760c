"""The tree of a query's expressions: fields, constants and calls. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from edgewake.cloud.queries.terms.functions import (
    COPIES,
)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a reading, `device` or a time; over results, one of their columns."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; None is SQL's NULL."""

    value: float | int | str | bool | None


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or function from FUNCTIONS."""

    function: str
    arguments: tuple[Expression, ...]
    size: int = field(init=False, compare=False, repr=False, default=1)
    """Functions, names and constants that Spark's column of it has. Counted here: to walk a tree in
    which one part stands in many places would take as long as Spark's plan of it."""

    def __post_init__(self) -> None:
        copies = COPIES.get(self.function, ())
        sizes = [size_of(argument) for argument in self.arguments]
        counted = [size * (copies[i] if i < len(copies) else 1) for i, size in enumerate(sizes)]
        object.__setattr__(self, "size", 1 + sum(counted))


def size_of(expression: Expression) -> int:
    """Functions, names and constants that Spark's column of it has."""
    return expression.size if isinstance(expression, Call) else 1


Expression: TypeAlias = Field | Literal | Call


def fields_of(expression: Expression) -> Iterator[str]:
    """The names that an expression uses."""
    if isinstance(expression, Field):
        yield expression.name
    elif isinstance(expression, Call):
        for argument in expression.arguments:
            yield from fields_of(argument)


def substitute(expression: Expression, values: Mapping[str, Expression]) -> Expression:
    """Replace names in an expression, which UNPIVOT does once for each of its fields."""
    if isinstance(expression, Field):
        return values.get(expression.name, expression)
    if isinstance(expression, Call):
        return Call(
            expression.function,
            tuple(substitute(argument, values) for argument in expression.arguments),
        )
    return expression
