"""The event routes' way to their parameters: each is a text that is checked behind it.

FastAPI looks for each parameter of each dependency in every request, which took more time than the
rest of a long poll. Its description of the routes stands (the document, the names that are known);
the texts are taken by a table that is made from it once.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, Final, get_args, get_type_hints

from fastapi import Request
from fastapi.params import Header
from fastapi.routing import APIRoute
from starlette.responses import Response

from edgewake.cloud.access.event_words import Words
from edgewake.cloud.rights.guard import principal_of
from edgewake.cloud.web import parameters

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
STREAM = "stream"
"""The parameter that may be repeated."""
LISTS: Final = frozenset({"accept", "if-none-match"})
"""Headers that are lists: sent several times they are one (RFC 9110, 5.3)."""


class EventRoute(APIRoute):
    """Its endpoint is given `http`, `words` and `reader`, the parts of its path, and `stream`."""

    def get_route_handler(self) -> Handler:
        otherwise = super().get_route_handler()
        has_streams = any(field.name == STREAM for field in self.dependant.query_params)

        async def handle(http: Request) -> Response:
            given = http.query_params
            more: dict[str, Any] = dict(http.path_params)
            if has_streams:
                more[STREAM] = given.getlist(STREAM)
                if not more[STREAM]:
                    return await otherwise(http)  # what is missing is said as in any other route
            parameters.check(given, parameters.parameters_of(self))
            found: Response = await self.endpoint(
                http=http, words=words_of(http), reader=principal_of(http.scope), **more
            )
            return found

        return handle


def words_of(http: Request) -> Words:
    """The words of a request, in its address and its headers."""
    in_address, in_headers = _names()
    given = {
        in_address[name]: text for name, text in http.query_params.items() if name in in_address
    }
    for name, field in in_headers.items():
        texts = http.headers.getlist(name)
        if texts:
            given[field] = ", ".join(texts) if name in LISTS else texts[0]
    return Words(**given)


@cache
def _names() -> tuple[Mapping[str, str], Mapping[str, str]]:
    """The field of Words for each name in an address, and in the headers."""
    hints = get_type_hints(Words, include_extras=True)
    in_address, in_headers = {}, {}
    for field in fields(Words):
        (told,) = [one for one in get_args(hints[field.name])[1:] if hasattr(one, "alias")]
        if isinstance(told, Header):
            in_headers[(told.alias or field.name.replace("_", "-")).lower()] = field.name
        else:
            in_address[told.alias or field.name] = field.name
    return in_address, in_headers
