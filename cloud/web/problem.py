"""The body of an error as all HTTP parts answer it: problem+json (RFC 9457).

Light: a metrics port needs no more of a web framework.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

PROBLEM_TYPE: Final = "application/problem+json"


def problem_body(
    status: int, code: str, detail: str, more: Mapping[str, Any] | None = None
) -> bytes:
    """The body of a problem: `code` is an identifier for programs, `detail` a sentence for people.

    `more` goes beside the standard members.
    """
    body = {
        "type": f"urn:edgewake:problem:{code}",
        "title": code.replace("_", " "),
        "status": status,
        "detail": detail,
    }
    return orjson.dumps(body | dict(more or {}))
