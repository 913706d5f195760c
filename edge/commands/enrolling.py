"""A device that comes in by a claim code: it asks the operations API for a password. Blocking."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Any, Final, NamedTuple

import orjson

from edgewake.protocol.errors import LocalError
from edgewake.protocol.printable import printable

ANSWER_S: Final = 15.0
ANSWER_BYTES_MAX: Final = 16_384
"""Bytes of an answer that are read; it has a few hundred."""


class Enrolled(NamedTuple):
    """What it was given."""

    password: str
    broker: str
    """host:port; empty where the server does not say it."""


def enrol(server: str, code: str, device: str) -> Enrolled:
    """Raises LocalError with the server's reason."""
    if not server.startswith(("http://", "https://")):
        raise LocalError(f"server {server!r}: expected http://HOST:PORT")
    request = urllib.request.Request(  # noqa: S310  (http or https, as looked at above)
        server.rstrip("/") + "/v1/enrol",
        data=orjson.dumps({"code": code, "device": device}),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:  # noqa: S310
            found = orjson.loads(answer.read(ANSWER_BYTES_MAX))
            broker = found["broker"]
            return Enrolled(
                str(found["items"][0]["password"]),
                "" if broker is None else f"{broker['host']}:{int(broker['port'])}",
            )
    except urllib.error.HTTPError as error:
        raise LocalError(f"{server}: {_reason(error)}") from error
    except OSError as error:
        raise LocalError(f"{server} does not answer: {error}") from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise LocalError(f"{server}: its answer is none of the operations API") from error


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        said: Any = orjson.loads(error.read(ANSWER_BYTES_MAX))
        return printable(str(said["detail"]))
    except (OSError, ValueError, KeyError, TypeError):
        return f"answered {error.code}"
