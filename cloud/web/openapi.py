"""Adds what all parts share to an application's OpenAPI document.

Every error is a problem, with the statuses that occur.

FastAPI documents its own shape for 422 and nothing else. `describe` replaces it when the document
is first asked for: 422 where there is something to validate, 413 where there is a body, 401, 403
and 429 (too many wrong ones) where a key is needed, 400 (a parameter that is not known), 421 and
503 everywhere, and what a route declares with `problems`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from fastapi import FastAPI

from edgewake.cloud.web.problem import PROBLEM_TYPE

TEXTS: Final[Mapping[int, str]] = {
    400: "The request is wrong.",
    401: "No key, or one that is not known.",
    403: "The key may not do this.",
    404: "Not found.",
    409: "It stands against something that is there.",
    410: "It is there no more, or serves nobody any more.",
    412: "There is one already, and the request asks for a new one (`If-None-Match: *`).",
    413: "The body is too large.",
    421: "The request names a host that is not this server's.",
    422: "A value is not as expected; `errors` says where.",
    429: "A limit is reached; try again after Retry-After.",
    501: "A library that is needed is not installed.",
    503: "Something that is needed is away, or a limit is reached; try again after Retry-After.",
}
OF_KEYS: Final = (401, 403, 429)
"""Statuses where a key is needed."""
PROBLEM: Final[Mapping[str, Any]] = {
    "type": "object",
    "title": "Problem",
    "description": "An error (RFC 9457).",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {
            "type": "string",
            "description": (
                "urn:edgewake:problem:CODE; the code is a fixed identifier for programs."
            ),
        },
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "A sentence for people."},
    },
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """`responses` of a route that answers with these statuses, too."""
    return {status: _answer(status) for status in statuses}


def describe(app: FastAPI) -> None:
    """Complete the document of `app`."""
    made = app.openapi

    def completed() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = made()
            for operation in _operations(document):
                _complete(operation)
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            for name in ("HTTPValidationError", "ValidationError"):
                schemas.pop(name, None)
            schemas["Problem"] = dict(PROBLEM)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = completed  # type: ignore[method-assign]


def let_anonymous_in(app: FastAPI) -> None:
    """Mark keys as optional in every operation, where anonymous readers are allowed."""
    made = app.openapi

    def optional() -> dict[str, Any]:
        document = made()
        for operation in _operations(document):
            security = operation.get("security", [])
            if security and {} not in security:
                security.append({})
        return document

    app.openapi = optional  # type: ignore[method-assign]


def _answer(status: int) -> dict[str, Any]:
    return {
        "description": TEXTS[status],
        "content": {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }


def _operations(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for methods in document["paths"].values():
        yield from methods.values()


def _complete(operation: dict[str, Any]) -> None:
    answers = operation["responses"]
    needed = [400, 421, 503]
    if "422" in answers:
        needed.append(422)
    if "requestBody" in operation:
        needed.append(413)
    if operation.get("security"):
        needed += OF_KEYS
    for status in needed:
        answers[str(status)] = _answer(status)
