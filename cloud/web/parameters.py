"""Refuses unknown parameters of a query string, in all routes of all HTTP parts.

One that is misspelt, or that another route has, would be ignored: without it the client would be
given what it did not ask for. One that is there twice where one is expected would count once. Both
are 400, with the name that was probably meant.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Final, get_args, get_origin

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.datastructures import QueryParams

from edgewake.cloud.web.http_part import Problem

_KEPT: Final = "edgewake_parameters"
SHOWN_MAX: Final = 40
"""Characters of a wrong name that are repeated in the answer."""


async def known_parameters(request: Request) -> None:
    """A dependency of every route. Raises Problem."""
    if request.query_params:
        check(request.query_params, parameters_of(request.scope["route"]))


def check(given: QueryParams, known: Mapping[str, Parameter]) -> None:
    """Raises Problem for a word that is not known, or that is there more than once."""
    seen: set[str] = set()
    for word, _ in given.multi_items():
        if word not in known:
            raise Problem(
                400,
                "parameter",
                f"parameter {word[:SHOWN_MAX]!r} is not known; {_hint(word, known)}",
            )
        if word in seen and not known[word].may_repeat:
            raise Problem(
                400, "parameter", f"parameter {word!r} is there more than once: expected one value"
            )
        seen.add(word)


class Parameter:
    """What a route says of a parameter."""

    def __init__(self, *, may_repeat: bool, is_told: bool) -> None:
        self.may_repeat = may_repeat
        self.is_told = is_told
        """Is it in the documentation? Others are names that foreign clients use."""


def parameters_of(route: APIRoute) -> Mapping[str, Parameter]:
    """Find the parameters of a route once, by their names in an address."""
    found: Mapping[str, Parameter] | None = getattr(route, _KEPT, None)
    if found is None:
        found = dict(_parameters(route.dependant))
        setattr(route, _KEPT, found)
    return found


def _parameters(dependant: Dependant) -> Iterator[tuple[str, Parameter]]:
    for field in dependant.query_params:
        annotation = field.field_info.annotation
        may_repeat = any(get_origin(one) is list for one in (annotation, *get_args(annotation)))
        yield (
            field.alias,
            Parameter(
                may_repeat=may_repeat, is_told=getattr(field.field_info, "include_in_schema", True)
            ),
        )
    for part in dependant.dependencies:
        yield from _parameters(part)


def _hint(word: str, known: Mapping[str, Parameter]) -> str:
    told = sorted(name for name, about in known.items() if about.is_told)
    near = difflib.get_close_matches(word, told, n=1)
    if near:
        return f"did you mean {near[0]}?"
    return f"known are {', '.join(told)}" if told else "none is expected here"
