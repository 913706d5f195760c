"""Devices that ask for their access token themselves: ThingsBoard's provisioning, by a claim code.

    CONNECT with the user name `provision`
    /provision/request   {"deviceName": "boiler-7", "provisionDeviceKey": "edgewake",
                          "provisionDeviceSecret": "CLAIM CODE"}
    /provision/response  {"status": "SUCCESS", "credentialsType": "ACCESS_TOKEN",
                          "credentialsValue": "boiler-7:PASSWORD"}

By HTTP the same object is posted to /api/v1/provision, and the answer is the body. The operations
API counts the codes and keeps the passwords (`edgewake devices claim`), so a device that came in
this way is shut out as all others are.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from edgewake.cloud.client_share import Bound
from edgewake.cloud.turns import Turns
from edgewake.protocol.errors import ConfigError, Unavailable

PATH: Final = "/api/v1/provision"
USER: Final = "provision"
REQUEST: Final = "/provision/request"
RESPONSE: Final = "/provision/response"
ANSWER_S: Final = 10.0
"""Seconds for the operations API."""
ANSWER_BYTES_MAX: Final = 65_536
AT_ONCE_MAX: Final = 8
"""Requests that are asked at once; more wait. A client has at most all but one of these turns."""
WAITING_MAX: Final = 100
"""Requests that are asked or wait, of which a client has at most a fourth: who asks has no token,
and may be anybody. One more is told to ask again."""


def asked(body: bytes) -> Mapping[str, Any]:
    """What a request says; nothing where it has no object."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return said if isinstance(said, dict) else {}


def why_not(said: Mapping[str, Any]) -> str:
    """Why a request cannot be granted whatever its code is; empty: it may be."""
    if said.get("gateway"):
        return "a gateway is not provisioned: give it a line `TOKEN NAME gateway` in tokens_file"
    kind = said.get("credentialsType", "ACCESS_TOKEN")
    if kind != "ACCESS_TOKEN" or "token" in said:
        return "credentials of its own: expected none, the server makes an access token"
    for name in ("deviceName", "provisionDeviceSecret"):
        if not isinstance(said.get(name), str) or not said[name]:
            return f"{name} is missing; provisionDeviceSecret is a code of `edgewake devices claim`"
    return ""


def granted(token: str) -> bytes:
    """The answer with a token, in the words of ThingsBoard's old and new clients."""
    body = {
        "status": "SUCCESS",
        "provisionDeviceStatus": "SUCCESS",
        "credentialsType": "ACCESS_TOKEN",
        "credentialsValue": token,
        "accessToken": token,
    }
    return orjson.dumps(body)


def refused(why: str) -> bytes:
    """The answer to who gets none."""
    body = {"status": "FAILURE", "provisionDeviceStatus": "FAILURE", "errorMsg": why}
    return orjson.dumps(body)


AGAIN: Final = refused("the operations API does not answer now: ask again")
"""The one answer that is not final."""


class Provisioning:
    """Asks the operations API."""

    def __init__(self, url: str, ca_file: Path | None) -> None:
        """Raises OSError, ssl.SSLError where `ca_file` cannot be read."""
        self._url = f"{url.rstrip('/')}/v1/enrol"
        trusted = None if ca_file is None else str(ca_file)
        self._tls = ssl.create_default_context(cafile=trusted)
        self._of_clients = Turns(Bound("requests for tokens", WAITING_MAX), AT_ONCE_MAX)
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)

    async def answer(self, said: Mapping[str, Any], client: str) -> bytes:
        """What a device is told. `client`: who asks, as `client_share.Clients` names it."""
        if why := why_not(said):
            return refused(why)
        try:
            async with asyncio.timeout(ANSWER_S):
                over = await self._of_clients.take(client)
                try:
                    async with self._turns:
                        return await self._ask(said)
                finally:
                    over()
        except (Unavailable, TimeoutError):
            return AGAIN

    async def _ask(self, said: Mapping[str, Any]) -> bytes:
        import httpx  # 10 MB, and nearly no bridge is asked

        asked = {"code": said["provisionDeviceSecret"], "device": said["deviceName"]}
        try:
            async with httpx.AsyncClient(verify=self._tls, trust_env=False) as client:
                answer = await client.post(self._url, json=asked)
                body = orjson.loads(answer.content[:ANSWER_BYTES_MAX])
        except (httpx.HTTPError, orjson.JSONDecodeError):
            return AGAIN
        return read(answer.status_code, body)


def opened(url: str | None, ca_file: Path | None) -> Provisioning | None:
    """None where no device is to come in so. Raises ConfigError."""
    if url is None:
        return None
    try:
        return Provisioning(url, ca_file)
    except OSError as error:
        raise ConfigError(f"enrol_ca_file = {ca_file}: {error}") from error


def read(status: int, body: Any) -> bytes:
    """What the operations API said, in ThingsBoard's words."""
    if status >= 500:
        return AGAIN
    if status != 200:
        detail = body.get("detail") if isinstance(body, dict) else None
        return refused(str(detail or f"the operations API answered {status}")[:500])
    try:
        one = body["items"][0]
        return granted(f"{one['device']}:{one['password']}")
    except (KeyError, IndexError, TypeError):
        return refused("enrol_url: the answer is not one of the operations API")
