"""Plain values: frozen dataclasses that pydantic checks where they come in.

Nothing needs pydantic afterwards.

A small device pays for pydantic only while it starts (`edgewake.edge.life`): what runs afterwards
makes and holds such values and never imports it. So it is imported inside the functions below,
which check; what comes in meanwhile is read by `edgewake.protocol.plain_json`. The class says what
is good: types, bounds (`key`, `Length`), functions (`Check`), and `__post_init__`, which raises
ValueError, for what belongs together. A value made by its constructor is checked by `__post_init__`
alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Self,
    TypeVar,
    dataclass_transform,
)

import orjson

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, TypeAdapter
    from pydantic_core import CoreSchema

T = TypeVar("T")

_NONE: Final = dataclasses.MISSING
_CHECKERS: Final[dict[type, TypeAdapter[Any]]] = {}


def key(*, default: Any = _NONE, default_factory: Any = _NONE, **bounds: Any) -> Any:
    """A field with bounds, by pydantic's names: ge, gt, le, lt, min_length, max_length, pattern.

    Required without a default.
    """
    return dataclasses.field(default=default, default_factory=default_factory, metadata=bounds)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(key,))
class Plain:
    """Base of plain values: its subclasses are dataclasses, frozen, with fields by name only.

    Fields that are not known are left out.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def checked(cls, values: Mapping[str, Any]) -> Self:
        """Check Python values.

        Raises pydantic.ValidationError, which is a ValueError.
        """
        return checker(cls).validate_python(values)

    @classmethod
    def from_json(cls, text: bytes | str) -> Self:
        """Check JSON. Raises pydantic.ValidationError, which is a ValueError."""
        return checker(cls).validate_json(text)

    def to_json(self) -> bytes:
        """Encode the value so that `from_json` reads it."""
        return orjson.dumps(self)


class ConfigTable(Plain):
    """A table of a configuration file: keys that are not known are refused."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}


def checker(kind: type[T]) -> TypeAdapter[T]:
    """The validator of a kind, made once: making one takes longer than many checks."""
    from pydantic import TypeAdapter

    if kind not in _CHECKERS:
        _CHECKERS[kind] = TypeAdapter(kind)
    return _CHECKERS[kind]


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """In `Annotated`: `function` gets a value of the type and returns it.

    It raises ValueError with what was expected.
    """

    function: Callable[[Any], Any]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self.function, handler(source))


@dataclasses.dataclass(frozen=True, slots=True)
class Length:
    """In `Annotated`: bounds of a text's characters, or of the items of a tuple or dict.

    A `Check` comes after it.
    """

    least: int
    most: int | None = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        schema: Any = handler(source)
        return {
            **schema,
            "min_length": self.least,
            **({} if self.most is None else {"max_length": self.most}),
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Matching:
    """In `Annotated`: the whole of a text matches `pattern`, which is `^…$`."""

    pattern: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        schema: Any = handler(source)
        return {**schema, "pattern": self.pattern}


@dataclasses.dataclass(frozen=True, slots=True)
class TaggedBy:
    """In `Annotated`, with a union of values: the field `name`, which all have, identifies each."""

    name: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        from pydantic import Field

        return handler.generate_schema(Annotated[source, Field(discriminator=self.name)])
