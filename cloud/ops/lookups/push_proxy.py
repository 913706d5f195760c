"""Makes and ends webhook deliveries at a push proxy, for the operations pages.

The proxy knows this server by the key that it shows: the deliveries that are made here belong to
this server. The proxy checks the endpoint, and says what is wrong with it.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
import orjson
from pydantic import Field

from edgewake.cloud.web.http_part import Problem
from edgewake.protocol.config import Config
from edgewake.protocol.errors import ConfigError, Unavailable

ANSWER_S: Final = 20.0
"""Seconds for an answer. The proxy waits for a call that is under way, at most fifteen."""
LIST_S: Final = 3.0
"""Seconds for the list of ours: a page waits for it, and is shown without it."""
PASSED_ON: Final = frozenset({404, 409, 422, 429})
"""What it answers about the delivery itself; all else is about the proxy or about our key."""


class PushProxyConfig(Config):
    """A push proxy, at which the operations pages make deliveries to webhooks."""

    url: str = Field(pattern=r"^https?://.+$")
    """Address of a push proxy, e.g. "http://127.0.0.1:8703"; any of several."""
    key_file: Path | None = None
    """File with a reader's key that may `read` and `wake`; none where the proxy asks for none."""
    ca_file: Path | None = None
    """PEM of the authorities that the proxy's certificate is checked by; default: the system's."""


class PushProxy:
    """A client of one push proxy. Raises ConfigError where a file cannot be read."""

    def __init__(self, config: PushProxyConfig) -> None:
        self._url = f"{config.url.rstrip('/')}/v1/deliveries"
        self._headers = {"Content-Type": "application/json"}
        try:
            if config.key_file is not None:
                key = config.key_file.read_text("utf-8").strip()
                self._headers["Authorization"] = f"Bearer {key}"
            trusted = None if config.ca_file is None else str(config.ca_file)
            self._tls = ssl.create_default_context(cafile=trusted)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"[push] of ops.toml: {error}") from error

    async def our_names(self) -> Mapping[str, str]:
        """The names of our deliveries by id. Raises Problem and Unavailable."""
        found = await self._ask("GET", "", answer_s=LIST_S)
        # A proxy of an earlier version tells no ids: none of its deliveries is known as ours.
        return {one["id"]: one["name"] for one in found["deliveries"] if "id" in one}

    async def put(self, name: str, body: bytes) -> Mapping[str, Any]:
        """Makes a delivery, or changes one of ours. Raises Problem and Unavailable."""
        return await self._ask("PUT", f"/{name}", body)

    async def enable(self, name: str) -> Mapping[str, Any]:
        """Lets one of ours go on. Raises Problem and Unavailable."""
        return await self._ask("POST", f"/{name}/enable")

    async def end(self, name: str) -> None:
        """Ends one of ours. Raises Problem and Unavailable."""
        await self._ask("DELETE", f"/{name}")

    async def _ask(
        self, method: str, path: str, body: bytes | None = None, *, answer_s: float = ANSWER_S
    ) -> Mapping[str, Any]:
        try:
            async with httpx.AsyncClient(
                verify=self._tls, trust_env=False, timeout=answer_s
            ) as client:
                answer = await client.request(
                    method, self._url + quote(path), content=body, headers=self._headers
                )
                found = orjson.loads(answer.content or b"{}")
        except (httpx.HTTPError, orjson.JSONDecodeError) as error:
            raise Unavailable("the push proxy does not answer now") from error
        if not isinstance(found, dict):
            raise Unavailable("the push proxy's answer is invalid")
        if answer.is_error:
            raise _refusal(answer.status_code, found)
        return found


def _refusal(status: int, found: Mapping[str, Any]) -> Exception:
    """What the proxy refuses, as this API says it: never a 401, which would end a session here."""
    detail = str(found.get("detail") or f"it answered {status}")[:500]
    if status in PASSED_ON:
        code = str(found.get("title") or "refused").replace(" ", "_")
        return Problem(status, code, detail)
    if status in (401, 403):
        hint = "expected in key_file of [push] in ops.toml a key that may read and wake"
        return Problem(409, "push_refuses", f"the push proxy refuses this server: {detail}; {hint}")
    return Unavailable(f"the push proxy cannot do it now: {detail}")
