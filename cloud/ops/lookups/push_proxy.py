"""Makes and enables webhook deliveries at a push proxy, for the operations pages.

The proxy knows this server by the key that it shows: the deliveries that are made here belong to
this server. The proxy checks the endpoint, and says what is wrong with it.

The secret of a new delivery is made here: where the proxy stored it and its answer was lost, it is
asked for again with the same secret, and nobody is left with calls that he cannot check.

    ANSWER_BYTES_MAX   a proxy's answer: a delivery, with its filter and cursor, is some KB
    UNANSWERED_MAX     secrets kept of what was asked for without an answer; the oldest go first
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

import httpx
import orjson
from pydantic import Field, model_validator

from edgewake.cloud.calls import webhook
from edgewake.cloud.web.host import is_loopback
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol.config import Config
from edgewake.protocol.errors import ConfigError, Unavailable
from edgewake.protocol.files.changing_file import ChangingFile

log = logging.getLogger("edgewake.ops")

ANSWER_S: Final = 20.0
"""Seconds for a whole answer. The proxy waits for a call that is under way, at most fifteen."""
LIST_S: Final = 3.0
"""Seconds for the list of ours: a page waits for it, and is shown without it."""
ANSWER_BYTES_MAX: Final = 16 << 20
KEY_BYTES_MAX: Final = 8192
"""Bytes of `key_file`, as many as a proxy takes of a key or token."""
UNANSWERED_MAX: Final = 100
PASSED_ON: Final = frozenset({404, 409, 412, 422, 429})
"""What it answers about the delivery itself; all else is about the proxy or about our key."""


class PushProxyConfig(Config):
    """A push proxy, at which the operations pages make deliveries to webhooks."""

    url: str = Field(pattern=r"^https?://.+$")
    """Address of a push proxy, e.g. "http://127.0.0.1:8703"; any of several."""
    key_file: Path | None = None
    """File with a reader's key that may `read` and `wake`: deliveries made here belong to it. Read
    again when it changes; needed where the proxy is not on this machine."""
    ca_file: Path | None = None
    """PEM of the authorities that the proxy's certificate is checked by; default: the system's."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            host = httpx.URL(self.url).host
        except httpx.InvalidURL as error:
            raise ValueError(f"url = {self.url!r}: {error}; expected http://HOST:PORT") from None
        if not host:
            raise ValueError(f"url = {self.url!r}: no host; expected http://HOST:PORT")
        if self.key_file is None and not is_loopback(host):
            raise ValueError(
                f"url = {self.url!r} is another machine's, which knows this server without a key "
                "by its address alone, and what was made here would be nobody's after a change of "
                "it: expected key_file, with a key that stands in the proxy's [rights] key_file"
            )
        return self


class PushProxy:
    """A client of one push proxy. Raises ConfigError where a file cannot be read."""

    def __init__(self, config: PushProxyConfig, random_bytes: Callable[[int], bytes]) -> None:
        self._url = f"{config.url.rstrip('/')}/v1/deliveries"
        self._random_bytes = random_bytes
        self._unanswered: dict[str, str] = {}
        """Secrets by the names of new deliveries of which it is unknown whether they are there."""
        self._key = (
            None
            if config.key_file is None
            else ChangingFile(
                config.key_file,
                _one_key,
                what="key for the push proxy",
                log=log,
                event="ops.push_key",
                key="[push] key_file",
                bytes_max=KEY_BYTES_MAX,
            )
        )
        try:
            trusted = None if config.ca_file is None else str(config.ca_file)
            self._tls = ssl.create_default_context(cafile=trusted)
        except OSError as error:
            raise ConfigError(f"[push] ca_file = {trusted!r}: {error}") from error

    async def our_names(self) -> Mapping[str, str]:
        """The names of our deliveries by id. Raises Problem and Unavailable."""
        found = await self._ask("GET", "", answer_s=LIST_S)
        return {one["id"]: one["name"] for one in found["deliveries"]}

    async def our_name(self, delivery_id: str) -> str | None:
        """The name of one of ours; None: it is another's. Raises Problem and Unavailable."""
        found = await self._ask("GET", "", params={"id": delivery_id})
        return next((one["name"] for one in found["deliveries"]), None)

    async def put(self, name: str, body: bytes, *, must_be_new: bool = False) -> Mapping[str, Any]:
        """Makes a delivery, or changes one of ours; one that `must_be_new` changes none.

        Raises Problem, with 412 where it must be new and is not, and Unavailable.
        """
        if not must_be_new:
            return await self._ask("PUT", f"/{name}", body)
        wanted = orjson.loads(body)
        made = None
        if wanted.get("secret") is None:
            made = self._unanswered.pop(name, None) or webhook.make_secret(self._random_bytes)
            wanted["secret"] = self._unanswered[name] = made
            while len(self._unanswered) > UNANSWERED_MAX:
                del self._unanswered[next(iter(self._unanswered))]
        try:
            found = await self._ask("PUT", f"/{name}", orjson.dumps(wanted), {"If-None-Match": "*"})
        except Problem:
            self._forget(name, made)
            raise
        self._forget(name, made)
        return {**found, "secret": made}

    def _forget(self, name: str, secret: str | None) -> None:
        """It was answered; another of this name may be asked for meanwhile."""
        if secret is not None and self._unanswered.get(name) == secret:
            del self._unanswered[name]

    async def enable(self, name: str) -> Mapping[str, Any]:
        """Lets one of ours go on. Raises Problem and Unavailable."""
        return await self._ask("POST", f"/{name}/enable")

    async def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        more: Mapping[str, str] | None = None,
        *,
        answer_s: float | None = None,
        params: Mapping[str, str] | None = None,
    ) -> Mapping[str, Any]:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        headers |= more or {}
        if self._key is not None:
            await asyncio.to_thread(self._key.look)
            headers["Authorization"] = f"Bearer {self._key.value}"
        try:
            async with (
                asyncio.timeout(answer_s or ANSWER_S),
                httpx.AsyncClient(verify=self._tls, trust_env=False, timeout=ANSWER_S) as client,
                client.stream(
                    method, self._url + quote(path), content=body, headers=headers, params=params
                ) as answer,
            ):
                found = orjson.loads(await _content(answer) or b"{}")
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, orjson.JSONDecodeError) as error:
            raise Unavailable("the push proxy does not answer now") from error
        if not isinstance(found, dict):
            raise Unavailable("the push proxy's answer is invalid")
        if answer.is_error:
            raise _refusal(answer, found)
        return found


def _one_key(text: str) -> str:
    """Raises ConfigError, which never shows a key."""
    words = text.split()
    if len(words) != 1:
        raise ConfigError(f"{len(words)} words: expected one key, and nothing else")
    if not words[0].isascii() or not words[0].isprintable():
        raise ConfigError("expected a key of printable ASCII characters")
    return words[0]


async def _content(answer: httpx.Response) -> bytes:
    """The body of an answer. Raises Unavailable where it is too large."""
    parts, size = [], 0
    async for part in answer.aiter_raw():
        size += len(part)
        if size > ANSWER_BYTES_MAX:
            raise Unavailable(f"the push proxy's answer has more than {ANSWER_BYTES_MAX} bytes")
        parts.append(part)
    return b"".join(parts)


def _refusal(answer: httpx.Response, found: Mapping[str, Any]) -> Exception:
    """What the proxy refuses, as this API says it: never a 401, which would end a session here."""
    status = answer.status_code
    detail = str(found.get("detail") or f"it answered {status}")[:500]
    if status in PASSED_ON:
        code = str(found.get("title") or "refused").replace(" ", "_")
        passed = {name: answer.headers[name] for name in ("Retry-After",) if name in answer.headers}
        return Problem(status, code, detail, headers=passed)
    if status in (401, 403):
        hint = "expected in key_file of [push] in ops.toml a key that may read and wake"
        return Problem(409, "push_refuses", f"the push proxy refuses this server: {detail}; {hint}")
    return Unavailable(f"the push proxy cannot do it now: {detail}")
