"""Phrases an error of pydantic for people: `expected 1 or more` and the like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

_KINDS: Final = {
    "int": "an integer", "float": "a number", "string": "text", "bool": "true or false",
    "list": "a list", "tuple": "a list",
    "dict": "an object", "model": "an object", "dataclass": "an object", "path": "a path",
    "bytes": "bytes", "url": "an address",
}  # fmt: skip
VALUE_CHARS_MAX: Final = 60
"""Characters of a value that are repeated."""


_WORDS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "missing": lambda _: "is missing",
    "extra_forbidden": lambda _: "is not known",
    "json_invalid": lambda it: f"expected JSON: {it.get('error', '')}",
    "greater_than_equal": lambda it: f"expected {it['ge']:,} or more",
    "less_than_equal": lambda it: f"expected {it['le']:,} or less",
    "greater_than": lambda it: f"expected more than {it['gt']:,}",
    "less_than": lambda it: f"expected less than {it['lt']:,}",
    "string_too_short": lambda it: f"expected at least {_count(it['min_length'], 'character')}",
    "string_too_long": lambda it: f"expected at most {_count(it['max_length'], 'character')}",
    "too_short": lambda it: f"expected at least {_count(it['min_length'], 'item')}",
    "too_long": lambda it: f"expected at most {_count(it['max_length'], 'item')}",
    "string_pattern_mismatch": lambda it: f"expected to match {it['pattern']}",
    "enum": lambda it: f"expected {_bare(it['expected'])}",
    "literal_error": lambda it: f"expected {_bare(it['expected'])}",
    "union_tag_invalid": lambda it: (
        f"{_bare(it['discriminator'])} {_bare(it['tag'])[:VALUE_CHARS_MAX]!r}: expected "
        f"{_or(_bare(it['expected_tags']).split(', '))}"
    ),
    "union_tag_not_found": lambda it: f"{_bare(it['discriminator'])} is missing",
}
_OF_A_KIND: Final = ("_type", "_parsing", "_from_float", "_parsing_size")


def expectation(error: Mapping[str, Any]) -> str:
    """The phrase for one item of `ValidationError.errors()`."""
    kind, context = str(error["type"]), error.get("ctx") or {}
    if kind in _WORDS:
        return _WORDS[kind](context)
    if kind in ("value_error", "assertion_error"):
        return str(context.get("error", error["msg"]))
    expected = _KINDS.get(kind.partition("_")[0]) if kind.endswith(_OF_A_KIND) else None
    return f"expected {expected}" if expected else str(error["msg"])


def _count(count: int, unit: str) -> str:
    return f"{count:,} {unit}{'' if count == 1 else 's'}"


def _bare(value: object) -> str:
    return str(value).replace("'", "")


def _or(words: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
